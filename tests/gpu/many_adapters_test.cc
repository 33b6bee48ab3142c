// 256 and 512 adapters live in one batch of 256 rows, against each row alone and against the CPU.

#include "score/many_adapters.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::score_tests {
namespace {

constexpr std::size_t rows = 256;

// All experts are chosen, so that no rounding turns a choice around. Sizes that the kernels of
// production take, small enough for random weights to be the same on every device.
model::Config small_config() {
  constexpr std::string_view text = R"({"model_type": "qwen3_moe", "hidden_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "num_experts": 8, "num_experts_per_tok": 8, "moe_intermediate_size": 128,
    "intermediate_size": 256, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": true, "vocab_size": 512, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": false,
    "tie_word_embeddings": false})";
  return model::parse_config(json::parse(text, "a test").value(), "a test").value();
}

struct World {
  World(tensor::DeviceChoice::Kind kind, bool exact, bool batch_invariant, std::size_t adapters)
      : device(tensor::open_device({.kind = kind}, {.threads = 8}).value()),
        model(model::Model::random(small_config(), model::RandomWeights::Experts::bf16, *device,
                                   {.exact = exact, .batch_invariant = batch_invariant})
                  .value()),
        many(*model, *device, {.rows = rows, .adapters_per_row = adapters / rows, .scale = 16}) {}

  std::unique_ptr<tensor::Device> device;
  std::unique_ptr<model::Model> model;
  ManyAdapters many;
};

World on_gpu(bool exact, bool batch_invariant, std::size_t adapters) {
  return {tensor::DeviceChoice::Kind::cuda, exact, batch_invariant, adapters};
}

// Whether in float32, and adapters in all.
class GpuLiveAdapters : public testing::TestWithParam<std::tuple<bool, std::size_t>> {};

TEST_P(GpuLiveAdapters, AnswerAsEachRowAloneWhenBatchInvariant) {
  const auto [exact, adapters] = GetParam();
  World world = on_gpu(exact, true, adapters);
  EXPECT_EQ(world.many.pool().usage().pinned_adapters, adapters);
  const std::vector<ManyAdapters::Answer> together = world.many.all();
  for (std::size_t row = 0; row < rows; ++row)
    ASSERT_EQ(world.many.alone(row), together[row]) << "row " << row;
}

// In float32 every log-probability, as in score_test.cc; in bf16 their mean (2.3e-3 on a CPU).
TEST_P(GpuLiveAdapters, AnswerAsTheCpuDoes) {
  const auto [exact, adapters] = GetParam();
  World gpu = on_gpu(exact, false, adapters);
  World cpu(tensor::DeviceChoice::Kind::cpu, true, false, adapters);
  const std::vector<ManyAdapters::Answer> got = gpu.many.all();
  const std::vector<ManyAdapters::Answer> expected = cpu.many.all();
  double sum = 0;
  double most = 0;
  double max_moved = 0;
  std::size_t count = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    ASSERT_EQ(got[row].size(), expected[row].size());
    for (std::size_t i = 0; i < got[row].size(); ++i) {
      const double apart = std::abs(double{got[row][i]} - double{expected[row][i]});
      most = std::isnan(apart) ? INFINITY : std::max(most, apart);
      sum += apart;
      ++count;
    }
  }
  const ManyAdapters::Answer base = cpu.many.of_base(0);
  for (std::size_t i = 0; i < base.size(); ++i)
    max_moved = std::max(max_moved, std::abs(double{base[i]} - double{expected[0][i]}));
  EXPECT_GT(max_moved, 0.3) << "adapters that move nothing show nothing";
  if (exact)
    EXPECT_LE(most, 1e-3);
  else
    EXPECT_LE(sum / static_cast<double>(count), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(All, GpuLiveAdapters,
                         testing::Combine(testing::Bool(),
                                          testing::Values(std::size_t{256}, std::size_t{512})),
                         [](const auto& of) {
                           return cat(std::get<0>(of.param) ? "f32_" : "bf16_",
                                      std::get<1>(of.param));
                         });

}  // namespace
}  // namespace motley::score_tests
