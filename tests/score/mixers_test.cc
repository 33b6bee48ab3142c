// A model whose layers differ in their attention: loaded, run and scored as released ones are, on
// any number of ranks.

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"
#include "lora/test_world.h"
#include "model/grouped_attention.h"
#include "model/model.h"
#include "runner/other_ranks.h"
#include "runner/runner.h"
#include "runner/score.h"
#include "tensor/safetensors/safetensors.h"

namespace motley::score_tests {
namespace {

using model::Config;
using model::GroupedConfig;

constexpr std::string_view config_text =
    R"({"model_type": "qwen3_moe", "hidden_size": 48, "vocab_size": 64, "intermediate_size": 64,
        "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2,
        "norm_topk_prob": true, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "num_hidden_layers": 5, "rope_theta": 10000.0, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256})";

// Attention as it is in Qwen3.5, in both kinds of Gemma-4's layers, and with values that are keys.
Config mixed_config() {
  Config config = model::parse_config(json::parse(config_text, "a test").value(), "a test").value();
  const GroupedConfig plain = config.grouped();
  GroupedConfig gated = plain;
  gated.gated = true;
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
  GroupedConfig keys = plain;
  keys.kv_heads = 1;
  keys.values = model::Values::keys;
  config.mixers = {plain, gated, windowed, global, keys};
  config.mixer_of_layer = {3, 1, 4, 2, 0};
  return config;
}

// The same, where layers rotate in ways of their own, or not at all.
Config rotated_config() {
  Config config = mixed_config();
  const auto rope = [&](std::size_t mixer) -> ops::RopeSpec& {
    return std::get<GroupedConfig>(config.mixers[mixer]).rope;
  };
  rope(1).dims = 4;
  rope(3) = {.dims = 16, .base = 500.0};
  rope(4) = {};
  return config;
}

// A checkpoint of mixed_config() with random weights.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& folder) {
    const Config config = mixed_config();
    add("model.embed_tokens.weight", {config.vocabulary, config.hidden}, 1);
    add("lm_head.weight", {config.vocabulary, config.hidden}, 0.3F);
    add("model.norm.weight", {config.hidden}, 1);
    for (std::int32_t layer = 0; layer < config.layers; ++layer) {
      const std::string prefix = cat("model.layers.", layer, ".");
      for (const std::string_view norm : {"input_layernorm", "post_attention_layernorm"})
        add(cat(prefix, norm, ".weight"), {config.hidden}, 1);
      add_attention(prefix + "self_attn.", config.hidden,
                    std::get<GroupedConfig>(config.mixer(layer)));
      add(prefix + "mlp.gate.weight", {4, config.hidden}, 1);
      for (int expert = 0; expert < 4; ++expert) {
        const std::string experts = cat(prefix, "mlp.experts.", expert, ".");
        add(experts + "gate_proj.weight", {32, config.hidden}, 0.3F);
        add(experts + "up_proj.weight", {32, config.hidden}, 0.3F);
        add(experts + "down_proj.weight", {config.hidden, 32}, 0.3F);
      }
    }
    std::vector<tensor::NamedTensor> tensors;
    for (const auto& [name, shape, numbers] : tensors_)
      tensors.push_back(
          {name, tensor::ConstTensor(reinterpret_cast<const std::byte*>(numbers.data()), DType::f32,
                                     shape)});
    tensor::write_safetensors(folder / "model.safetensors", tensors).value();
    AtomicFile file = AtomicFile::create(folder / "config.json").value();
    file.write(config_text).value();
    file.commit().value();
  }

 private:
  struct Stored {
    std::string name;
    tensor::Shape shape;
    std::vector<float> numbers;
  };
  void add(std::string name, std::initializer_list<std::int64_t> shape, float size) {
    const tensor::Shape made = tensor::Shape::make(shape).value();
    std::vector<float> numbers = lora::test::random_numbers(random_, made.elements());
    for (float& number : numbers) number *= size;
    tensors_.push_back({std::move(name), made, std::move(numbers)});
  }
  void add_attention(const std::string& prefix, std::int64_t hidden, const GroupedConfig& sizes) {
    const std::int64_t q_rows = sizes.heads * sizes.head_dim * (sizes.gated ? 2 : 1);
    const std::int64_t kv_rows = sizes.kv_heads * sizes.head_dim;
    add(prefix + "q_proj.weight", {q_rows, hidden}, 0.4F);
    add(prefix + "k_proj.weight", {kv_rows, hidden}, 0.4F);
    if (sizes.values == model::Values::projected)
      add(prefix + "v_proj.weight", {kv_rows, hidden}, 0.4F);
    add(prefix + "o_proj.weight", {hidden, sizes.heads * sizes.head_dim}, 0.3F);
    add(prefix + "q_norm.weight", {sizes.head_dim}, 1);
    add(prefix + "k_norm.weight", {sizes.head_dim}, 1);
  }

  std::mt19937 random_{3};
  std::vector<Stored> tensors_;
};

class MixedModel {
 public:
  struct Options {
    int ranks = 1;
    bool fusion = true;
    std::int64_t max_rows = 64;             // of a step: prompts of more are divided
    std::filesystem::path checkpoint = {};  // of mixed_config(); empty: a random rotated_config()
  };

  explicit MixedModel(const Options& options) {
    model::LoadOptions load{.fusion = options.fusion};
    if (options.ranks > 1) {
      others_ = runner::OtherRanks::create({.ranks = options.ranks}).value();
      load.ranks = &others_->communicator(0);
    }
    // The file's configuration knows one mixer.
    load.mixer = [](model::WeightSource& source, const Config& config,
                    std::int32_t layer) -> Result<std::unique_ptr<model::Mixer>> {
      const Config mixed = config.mixers.size() > 1 ? config : mixed_config();
      MOTLEY_TRY(model::GroupedAttention mixer,
                 model::load_attention(source, config, std::get<GroupedConfig>(mixed.mixer(layer)),
                                       layer));
      return std::unique_ptr<model::Mixer>(
          std::make_unique<model::GroupedAttention>(std::move(mixer)));
    };
    const auto make = [&](tensor::Device& device) {
      if (!options.checkpoint.empty()) return model::Model::load(options.checkpoint, device, load);
      return model::Model::random(rotated_config(), model::RandomWeights::Experts::bf16, device,
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
  const std::vector<model::TokenCaches>& kept = whole.model().token_caches();
  ASSERT_EQ(kept.size(), 5);
  EXPECT_EQ(kept[0].front().heads, 1);
  EXPECT_EQ(kept[0].front().width, 32);
  EXPECT_EQ(kept[0].size(), 2);
  EXPECT_EQ(kept[1].front().heads, 2);
  EXPECT_EQ(kept[1].front().width, 16);
  EXPECT_EQ(kept[2].size(), 1) << "values are the keys";
  const auto maps = [&](std::size_t layer) {
    return whole.model().layers()[layer].mixer.block->maps().front().maps;
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

// With three and four ranks some have no heads of the layer that has two.
TEST(MixedAttention, RanksComputeWhatOneDoes) {
  const TemporaryFolder folder;
  const Checkpoint checkpoint(folder.path());
  const std::vector<double> whole = MixedModel({.checkpoint = folder.path()}).score();
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    // Sums over ranks have another order: float32's rounding over five layers.
    EXPECT_LE(largest_difference(MixedModel({.ranks = ranks, .checkpoint = folder.path()}).score(),
                                 whole),
              2e-5);
  }
}

}  // namespace
}  // namespace motley::score_tests
