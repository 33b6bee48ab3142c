// A model whose layers differ in their attention: loaded, run and scored as released ones are, on
// any number of ranks.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json/json.h"
#include "lora/test_world.h"
#include "model/model.h"
#include "runner/other_ranks.h"
#include "runner/runner.h"
#include "runner/score.h"

namespace motley::score_tests {
namespace {

using model::Config;
using model::GroupedConfig;

// Attention as it is in Qwen3.5, in both kinds of Gemma-4's layers, and with values that are keys.
Config mixed_config() {
  constexpr std::string_view text =
      R"({"model_type": "qwen3_moe", "hidden_size": 48, "vocab_size": 64, "intermediate_size": 64,
          "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2,
          "norm_topk_prob": true, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 16, "num_hidden_layers": 5, "rope_theta": 10000.0, "rms_norm_eps": 1e-6,
          "max_position_embeddings": 256})";
  Config config = model::parse_config(json::parse(text, "a test").value(), "a test").value();
  const GroupedConfig plain = config.grouped();
  GroupedConfig gated = plain;
  gated.gated = true;
  gated.rope.dims = 4;
  GroupedConfig windowed = plain;
  windowed.window = 7;
  windowed.value_norm = true;
  GroupedConfig global = plain;
  global.heads = 2;
  global.kv_heads = 1;
  global.head_dim = 32;
  global.scale = 1 / std::sqrt(32.0);
  global.values = model::Values::from_keys;
  global.value_norm = true;
  global.rope = {.dims = 16, .base = 500.0};
  GroupedConfig keys = plain;
  keys.kv_heads = 1;
  keys.values = model::Values::keys;
  keys.rope = {};
  config.mixers = {plain, gated, windowed, global, keys};
  config.mixer_of_layer = {3, 1, 4, 2, 0};
  return config;
}

class MixedModel {
 public:
  struct Options {
    int ranks = 1;
    bool fusion = true;
    std::int64_t max_rows = 64;  // of a step: prompts of more are divided
  };

  explicit MixedModel(const Options& options) {
    model::LoadOptions load{.fusion = options.fusion};
    if (options.ranks > 1) {
      others_ = runner::OtherRanks::create({.ranks = options.ranks}).value();
      load.ranks = &others_->communicator(0);
    }
    const auto make = [&](tensor::Device& device) {
      return model::Model::random(mixed_config(), model::RandomWeights::Experts::bf16, device,
                                  load);
    };
    model_ = make(device_).value();
    lora::Pool::Options pool{.bytes = std::uint64_t{4} << 20,
                             .page_bytes = 4096,
                             .dtype = DType::f32,
                             .experts = model_->factor_layout(),
                             .poison = true};
    runner::Runner::Options steps{.max_rows = options.max_rows,
                                  .max_sequences = 8,
                                  .max_tokens = 128,
                                  .pages = 64,
                                  .logit_rows = options.max_rows,
                                  .adapter_rank = 16,
                                  .mix_rank = 32};
    if (others_ != nullptr) {
      others_
          ->load_models([&](tensor::Device& device, dist::Communicator& ranks) {
            load.ranks = &ranks;
            return make(device);
          })
          .value();
      pool.other_ranks = others_->make_pools(pool).value();
      pool.shards = model_->base_view().shards();
      others_->make_runners(steps).value();
      steps.others = others_.get();
    }
    pool_ = lora::Pool::create(device_, pool).value();
    steps.adapters = pool_.get();
    runner_ = runner::Runner::create(*model_, device_, steps).value();
  }

  // Log-probabilities of two prompts, the second with an adapter of all maps of attention.
  std::vector<double> score() {
    std::vector<runner::ScoreLine> lines(2);
    std::mt19937 random(7);
    for (runner::ScoreLine& line : lines)
      for (int i = 0; i < 50; ++i) line.tokens.push_back(static_cast<std::int32_t>(random() % 64));
    const lora::Handle handle = pool_->load("adapter", adapter()).value();
    const std::vector<lora::Mix> mixes{
        {}, lora::Mix::make(std::array{lora::Mix::Part{handle, 1.0F}}).value()};
    std::vector<double> all;
    for (const runner::ScoreResult& result :
         runner::score(*runner_, lines, mixes, {.top = 0}).value())
      all.insert(all.end(), result.token_logprobs.begin() + 1, result.token_logprobs.end());
    return all;
  }

  const model::Model& model() const { return *model_; }

 private:
  lora::Adapter adapter() const {
    std::mt19937 random(11);
    lora::test::AdapterMaker maker(random);
    for (const lora::SiteSpec& spec : model_->base_view().sites()) {
      if (spec.site.projection > lora::Projection::o) continue;
      const int a = maker.add(3, spec.in);
      const int b = maker.add(spec.out, 3);
      maker.site(spec.site, spec.in, spec.out).factors[0] = maker.factors(a, b, 3, 0.2F);
    }
    return maker.done();
  }

  tensor::CpuDevice device_{{.threads = 1}};
  std::unique_ptr<runner::OtherRanks> others_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<runner::Runner> runner_;
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(MixedAttention, EachLayerKeepsWhatItsMixerSays) {
  const MixedModel whole({});
  const std::vector<model::CacheLayout>& layouts = whole.model().cache_layouts();
  ASSERT_EQ(layouts.size(), 5);
  EXPECT_EQ(layouts[0].heads, 1);
  EXPECT_EQ(layouts[0].key_width, 32);
  EXPECT_FALSE(layouts[0].values_in_keys);
  EXPECT_EQ(layouts[1].heads, 2);
  EXPECT_EQ(layouts[1].key_width, 16);
  EXPECT_TRUE(layouts[2].values_in_keys);
  const auto maps = [&](std::size_t layer) {
    return whole.model().layers()[layer].mixer->maps().front().maps;
  };
  EXPECT_EQ(maps(0).size(), 2) << "no v_proj";
  EXPECT_EQ(maps(1).front()->out(), 2 * 4 * 16) << "queries and gates";
  EXPECT_EQ(maps(3).size(), 3);
}

TEST(MixedAttention, HasTheSameBitsInAnyStepsAndOpByOp) {
  const std::vector<double> whole = MixedModel({}).score();
  EXPECT_EQ(MixedModel({.fusion = false}).score(), whole);
  EXPECT_EQ(MixedModel({.max_rows = 9}).score(), whole);
}

// With four ranks two have no heads of the layer that has two.
TEST(MixedAttention, RanksComputeWhatOneDoes) {
  const std::vector<double> whole = MixedModel({}).score();
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    // Sums over ranks have another order: float32's rounding over five layers.
    EXPECT_LE(largest_difference(MixedModel({.ranks = ranks}).score(), whole), 1e-5);
  }
}

}  // namespace
}  // namespace motley::score_tests
