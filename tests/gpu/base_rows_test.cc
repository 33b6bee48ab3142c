// Base rows of whole models on a GPU: adapters beside them change no bit, whatever they adapt and
// whatever came before. The models are as wide as the kernels of released ones ask for, with random
// weights.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "tensor/device/device.h"

namespace motley::gpu_tests {
namespace {

using lora::Projection;
using runner::Chunk;
using Rows = std::vector<std::vector<float>>;

struct Shape {
  std::string_view name;
  std::string_view config;
};

constexpr std::string_view common =
    R"("vocab_size": 640, "num_hidden_layers": 3, "max_position_embeddings": 1024,
       "rms_norm_eps": 1e-6, "rope_theta": 10000.0)";

constexpr Shape shapes[] = {
    {"qwen3_moe", R"("model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 1024,
      "moe_intermediate_size": 768, "num_experts": 32, "num_experts_per_tok": 8,
      "norm_topk_prob": true, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
      "mlp_only_layers": [0])"},
    {"qwen2_moe", R"("model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 1024,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 1024, "num_experts": 32,
      "num_experts_per_tok": 4, "norm_topk_prob": false, "num_attention_heads": 16,
      "num_key_value_heads": 16, "decoder_sparse_step": 1)"},
    {"deepseek_v3", R"("model_type": "deepseek_v3", "hidden_size": 2048, "intermediate_size": 2048,
      "moe_intermediate_size": 512, "n_routed_experts": 32, "n_shared_experts": 1,
      "num_experts_per_tok": 8, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
      "norm_topk_prob": true, "routed_scaling_factor": 2.5, "num_attention_heads": 16,
      "num_key_value_heads": 16, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128)"},
    {"gpt_oss", R"("model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 1440,
      "num_local_experts": 32, "num_experts_per_tok": 4, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])"},
};

model::Config config_of(const Shape& shape) {
  const std::string text = cat("{", shape.config, ", ", common, "}");
  model::Config config =
      model::parse_config(json::parse(text, shape.name).value(), shape.name).value();
  config.naming.experts_transposed = false;
  return config;
}

// What an adapter has at its sites.
struct Parts {
  bool factors = true;
  bool zero = false;  // B is
  bool lora_bias = false;
  bool gain = false;
  bool replaced = false;
  bool replaced_bias = false;
  int rank = 16;
};

// One that changes these projections in all layers.
lora::Adapter adapter_at(const lora::BaseView& base, const std::vector<Projection>& projections,
                         const Parts& parts, std::uint64_t version) {
  lora::Adapter adapter;
  adapter.version = {.high = version, .low = 1};
  adapter.largest_rank = parts.rank;
  std::uint64_t state = version * 2654435761U + 88172645463325252U;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, float size, float mean) {
    lora::Matrix made{.rows = rows, .columns = columns, .values = {}};
    made.values.resize(static_cast<std::size_t>(rows * columns));
    for (float& value : made.values) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      value = mean + size * (static_cast<float>(state >> 40) / 8388608.0F - 1.0F);
    }
    adapter.matrices.push_back(std::move(made));
    return static_cast<int>(adapter.matrices.size()) - 1;
  };
  for (const lora::SiteSpec& spec : base.sites()) {
    const Projection projection = spec.site.projection;
    if (std::ranges::find(projections, projection) == projections.end()) continue;
    lora::SiteDelta delta{.site = spec.site, .in = spec.in, .out = spec.out, .factors = {}};
    const bool embedding = projection == Projection::embed;
    lora::Factors factors;
    if (parts.factors) {
      const std::int64_t a_rows = embedding ? spec.in : parts.rank;
      factors = {.a = matrix(a_rows, embedding ? parts.rank : spec.in, 0.05F, 0),
                 .b = matrix(spec.out, parts.rank, parts.zero ? 0.0F : 0.05F, 0),
                 .rank = parts.rank,
                 .scale = 1};
    }
    // All experts share one pair: enough to move every one of them.
    delta.factors.assign(static_cast<std::size_t>(std::max(spec.experts, 1)), factors);
    if (parts.lora_bias) delta.lora_bias = matrix(1, spec.out, 0.5F, 0);
    if (parts.gain) delta.gain = matrix(1, spec.out, 0.2F, 1);
    if (parts.replaced)
      delta.replaced =
          embedding ? matrix(spec.in, spec.out, 1, 0) : matrix(spec.out, spec.in, 0.05F, 0);
    if (parts.replaced_bias) delta.replaced_bias = matrix(1, spec.out, 0.5F, 0);
    adapter.sites.push_back(std::move(delta));
  }
  return adapter;
}

struct Neighbour {
  std::string name;
  std::vector<Projection> projections;
  Parts parts{};
};

std::vector<Neighbour> neighbours() {
  using enum Projection;
  return {{"router", {router}},
          {"q", {q}},
          {"qkv", {q, k, v}},
          {"o", {o}},
          {"q_a and q_b", {q_a, q_b}},
          {"kv_a", {kv_a}},
          {"kv_b", {kv_b}},
          {"dense feed-forward", {gate, up, down}},
          {"shared expert", {shared_gate, shared_up, shared_down}},
          {"gate of the shared expert", {shared_expert_gate}},
          {"experts", {expert_gate, expert_up, expert_down}},
          {"embedding", {embed}},
          {"head", {lm_head}},
          {"biases", {q, o, down}, {.lora_bias = true}},
          {"gains", {q, v, o, down, kv_b}, {.gain = true}},
          {"own router", {router}, {.factors = false, .replaced = true}},
          {"own head", {lm_head}, {.factors = false, .replaced = true}},
          {"own embedding", {embed}, {.factors = false, .replaced = true}},
          {"own bias of q", {q}, {.factors = false, .replaced_bias = true}},
          {"rank of 200", {q, k, v, o, router}, {.rank = 200}},
          {"all of them", {router,      q,         k,           v,
                           o,           q_a,       q_b,         kv_a,
                           kv_b,        gate,      up,          down,
                           shared_gate, shared_up, shared_down, shared_expert_gate,
                           expert_gate, expert_up, expert_down, embed,
                           lm_head}}};
}

// A model on the GPU with its runner and adapters.
class World {
 public:
  World(const Shape& shape, bool exact)
      : device_(tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}, {}).value()),
        model_(model::Model::random(config_of(shape), model::RandomWeights::Experts::bf16, *device_,
                                    {.exact = exact})
                   .value()),
        pool_(lora::Pool::create(*device_, {.bytes = std::uint64_t{512} << 20,
                                            .dtype = model_->activations(),
                                            .experts = model_->factor_layout(),
                                            .directory = true,
                                            .poison = true})
                  .value()),
        runner_(runner::Runner::create(*model_, *device_,
                                       {.max_rows = 1024,
                                        .max_sequences = 256,
                                        .max_tokens = 1024,
                                        .pages = 512,
                                        .logit_rows = 256,
                                        .adapters = pool_.get(),
                                        .keep_choices = true})
                    .value()) {}

  runner::Runner& runner() { return *runner_; }
  const model::Model& model() const { return *model_; }

  // No mix where the model has none of the projections.
  std::optional<lora::Mix> mix_of(const Neighbour& neighbour) {
    const lora::Adapter adapter =
        adapter_at(model_->base_view(), neighbour.projections, neighbour.parts, ++versions_);
    if (adapter.sites.empty()) return std::nullopt;
    const std::vector<lora::Mix::Part> parts = {
        {.adapter = pool_->load(neighbour.name, adapter).value()}};
    return lora::Mix::make(parts).value();
  }

  // New sequences. A step's logits, row by row: of every token of the prompts, or of a single token
  // behind each of them.
  struct Piece {
    std::int64_t tokens = 0;
    lora::Mix mix = {};
  };
  Rows step(const std::vector<Piece>& pieces, bool decodes = false) {
    runner::ConsecutivePages all_pages(runner_->kv());
    std::vector<std::vector<std::int32_t>> pages;
    std::vector<Chunk> prompts;
    std::vector<std::vector<std::int32_t>> tokens;
    std::int32_t next = 1;
    for (const Piece& piece : pieces) {
      std::vector<std::int32_t>& own = tokens.emplace_back();
      for (std::int64_t t = 0; t <= piece.tokens; ++t) own.push_back(next = (next * 37 + 11) % 640);
      pages.push_back(all_pages.take(piece.tokens + 1));
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto count = static_cast<std::size_t>(pieces[i].tokens);
      prompts.push_back({.pages = pages[i],
                         .tokens = std::span(tokens[i]).first(count),
                         .mix = pieces[i].mix,
                         .logits = decodes ? runner::LogitsOf::none : runner::LogitsOf::all});
    }
    Rows rows = logits_of(prompts);
    if (!decodes) return rows;
    std::vector<Chunk> single = prompts;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      single[i].length = pieces[i].tokens;
      single[i].tokens = std::span(tokens[i]).last(1);
      single[i].logits = runner::LogitsOf::last;
    }
    return logits_of(single);
  }

  Rows logits_of(const std::vector<Chunk>& chunks) {
    Rows rows;
    auto sink = [&](const tensor::Tensor& logits,
                    std::span<const runner::LogitRow> which) -> Result<void> {
      const auto width = static_cast<std::size_t>(logits.dim(1));
      for (std::size_t i = 0; i < which.size(); ++i) {
        std::vector<float>& row = rows.emplace_back(width);
        MOTLEY_TRY_VOID(runner_->stream().copy(row.data(),
                                               logits.select(static_cast<std::int64_t>(i)).bytes(),
                                               width * sizeof(float)));
      }
      return runner_->stream().synchronize();
    };
    runner_->step(chunks, sink).value();
    return rows;
  }

  // The experts that rows of the last step chose in a layer, padding too.
  std::vector<std::int32_t> choices(std::int64_t layer, std::int64_t rows) {
    const tensor::Tensor of_layer = runner_->choices().select(layer);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * of_layer.dim(1)));
    runner_->stream().copy(ids.data(), of_layer.bytes(), ids.size() * sizeof(ids[0])).value();
    runner_->stream().synchronize().value();
    return ids;
  }

 private:
  std::unique_ptr<tensor::Device> device_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<runner::Runner> runner_;
  std::uint64_t versions_ = 0;
};

class GpuBaseRows : public testing::TestWithParam<Shape> {};

std::size_t differing(const Rows& a, const Rows& b, std::size_t rows) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < rows; ++i) count += a[i] == b[i] ? 0 : 1;
  return count;
}

// Prompts of that many rows beside one of five tokens; then as many single tokens beside one.
TEST_P(GpuBaseRows, HaveTheSameBitsBesideAnyAdapter) {
  for (const bool exact : {false, true}) {
    World world(GetParam(), exact);
    for (const bool decodes : {false, true}) {
      const auto pieces = [&](std::int64_t rows, const lora::Mix& mix) {
        std::vector<World::Piece> all;
        if (decodes) {
          all.assign(static_cast<std::size_t>(rows), {.tokens = 3});
          all.push_back({.tokens = 3, .mix = mix});
        } else {
          all = {{.tokens = rows}, {.tokens = 5, .mix = mix}};
        }
        return all;
      };
      std::vector<std::int64_t> sizes = {1, 3, 12, 17, 60, 200};
      if (!decodes) sizes.push_back(600);
      std::vector<Rows> before;
      before.reserve(sizes.size());
      for (const std::int64_t rows : sizes) before.push_back(world.step(pieces(rows, {}), decodes));
      for (const Neighbour& neighbour : neighbours()) {
        const std::optional<lora::Mix> mix = world.mix_of(neighbour);
        if (!mix) continue;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          const auto rows = static_cast<std::size_t>(sizes[i]);
          const Rows beside = world.step(pieces(sizes[i], *mix), decodes);
          EXPECT_EQ(differing(before[i], beside, rows), 0U)
              << GetParam().name << (exact ? ", f32, " : ", bf16, ") << rows
              << (decodes ? " single tokens" : " rows of a prompt") << " beside " << neighbour.name;
          EXPECT_TRUE(before[i].back() != beside.back()) << neighbour.name << " does something";
        }
      }
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const Rows after = world.step(pieces(sizes[i], {}), decodes);
        EXPECT_EQ(differing(before[i], after, after.size()), 0U)
            << GetParam().name << (exact ? ", f32, " : ", bf16, ") << sizes[i]
            << " rows behind all adapters";
      }
    }
  }
}

// Prompts of one token are steps of single tokens with nothing behind them, beside an adapter too.
TEST_P(GpuBaseRows, OfPromptsOfOneTokenHaveTheSameBits) {
  World world(GetParam(), false);
  const lora::Mix mix = *world.mix_of(neighbours().back());
  for (const std::int64_t rows : {1, 3, 12, 17, 60, 200}) {
    std::vector<World::Piece> single(static_cast<std::size_t>(rows) + 1, {.tokens = 1});
    const Rows base = world.step(single);
    single.back().mix = mix;
    const Rows beside = world.step(single);
    EXPECT_EQ(differing(base, beside, single.size() - 1), 0U) << GetParam().name << ", " << rows;
    EXPECT_EQ(differing(beside, world.step(single), single.size()), 0U) << "by its graph";
  }
}

// The law of zero adapters, on every site at once and in one batch with the base.
TEST_P(GpuBaseRows, EqualThoseOfAZeroAdapter) {
  for (const bool exact : {false, true}) {
    World world(GetParam(), exact);
    Neighbour zero = neighbours().back();
    zero.parts.zero = true;
    const lora::Mix mix = *world.mix_of(zero);
    for (const std::int64_t rows : {1, 3, 12, 17, 60, 200, 600}) {
      const Rows base = world.step({{.tokens = rows}, {.tokens = 5}});
      const Rows adapted = world.step({{.tokens = rows, .mix = mix}, {.tokens = 5}});
      EXPECT_EQ(differing(base, adapted, base.size()), 0U)
          << GetParam().name << (exact ? ", f32, " : ", bf16, ") << rows << " rows of a prompt";
      if (rows > 200) continue;
      std::vector<World::Piece> single(static_cast<std::size_t>(rows), {.tokens = 3});
      const Rows decoded = world.step(single, true);
      for (std::size_t i = 0; i < single.size(); i += 2) single[i].mix = mix;
      EXPECT_EQ(differing(decoded, world.step(single, true), decoded.size()), 0U)
          << GetParam().name << (exact ? ", f32, " : ", bf16, ") << rows << " single tokens";
    }
  }
}

// A step of nine single tokens runs as one of sixteen rows, of which seven choose no expert.
TEST_P(GpuBaseRows, PaddingChoosesNoExpert) {
  World world(GetParam(), false);
  const lora::Mix mix = *world.mix_of(neighbours().front());
  const auto experts = static_cast<std::int32_t>(world.model().config().moe.router.experts);
  for (const std::int64_t rows : {9, 17, 33}) {
    for (const lora::Mix& beside : {lora::Mix(), mix, lora::Mix()}) {
      std::vector<World::Piece> single(static_cast<std::size_t>(rows), {.tokens = 1});
      single.back().mix = beside;
      // Once as it is and captured, once by its graph.
      for (int run = 0; run < 2; ++run) {
        world.step(single);
        const std::int64_t padded = (rows + 7) / 8 * 8;
        for (std::int64_t layer = 0; layer < 3; ++layer) {
          if (!world.model().config().moe_layers[static_cast<std::size_t>(layer)]) continue;
          const std::vector<std::int32_t> ids = world.choices(layer, padded);
          const std::size_t top_k = ids.size() / static_cast<std::size_t>(padded);
          for (std::size_t i = 0; i < ids.size(); ++i) {
            const bool live = i / top_k < static_cast<std::size_t>(rows);
            ASSERT_TRUE(live ? ids[i] >= 0 && ids[i] < experts : ids[i] == -1)
                << GetParam().name << ", " << rows << " rows, layer " << layer << ", row "
                << i / top_k << " chose " << ids[i];
          }
        }
      }
    }
  }
}

// Graphs are kept by class: what many labels, high ranks or mixes had captured is not what a small
// batch launches, and no batch has the others captured again.
TEST_P(GpuBaseRows, SmallBatchesKeepTheirGraphsBehindLargeOnes) {
  World world(GetParam(), false);
  runner::Runner& runner = world.runner();
  std::vector<lora::Mix> mixes;
  for (int i = 0; i < 20; ++i) {
    Neighbour each = neighbours()[2];
    if (each.projections.empty()) continue;
    each.projections.push_back(Projection::o);
    each.name = cat("adapter ", i);
    mixes.push_back(*world.mix_of(each));
  }
  const auto batch = [&](std::size_t labels) {
    std::vector<World::Piece> single(24, {.tokens = 1});
    for (std::size_t i = 0; i < single.size(); ++i) single[i].mix = mixes[i % labels];
    return single;
  };
  const Rows small = world.step(batch(4));
  world.step(batch(20));
  const std::size_t graphs = runner.graphs();
  EXPECT_EQ(graphs, 2U) << "few labels and many";
  const std::uint64_t launches = runner.graph_launches();
  EXPECT_EQ(world.step(batch(4)), small);
  world.step(batch(20));
  EXPECT_EQ(runner.graph_launches() - launches, 2U);
  EXPECT_EQ(runner.graphs(), graphs);
  // All that may come is captured ahead, once.
  while (runner.capture_ahead().value()) continue;
  const std::size_t all = runner.graphs();
  const std::uint64_t before = runner.graph_launches();
  for (const std::size_t labels : {1U, 16U, 17U, 20U}) world.step(batch(labels));
  EXPECT_EQ(runner.graph_launches() - before, 4U);
  EXPECT_EQ(runner.graphs(), all);
  EXPECT_FALSE(runner.capture_ahead().value());
  EXPECT_EQ(world.step(batch(4)), small) << "captured again, with the same bits";
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuBaseRows, testing::ValuesIn(shapes),
                         [](const auto& shape) { return std::string(shape.param.name); });

}  // namespace
}  // namespace motley::gpu_tests
