#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/json/json.h"
#include "base/result.h"
#include "moe/experts.h"
#include "moe/router.h"
#include "ops/rope.h"

namespace motley::model {

// The shape of a model as its config.json describes it, for any version of transformers. A family
// (families/) fills it in; later code does not depend on the family.

enum class QkNorm : std::uint8_t {
  none,
  per_head,   // over each head's dimensions
  full_width  // over the whole projection
};

// What a layer's values are.
enum class Values : std::uint8_t {
  projected,  // v_proj's results
  from_keys,  // k_proj's results before their norm and rotation; there is no v_proj
  keys,       // the keys themselves
};

// Grouped-query attention.
struct GroupedConfig {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  QkNorm qk_norm = QkNorm::none;
  Values values = Values::projected;
  bool value_norm = false;  // of each head, without a weight
  // q_proj has a gate after each head's query; its sigmoid multiplies the head's result.
  bool gated = false;
  double clip = 0;  // q, k and v are clamped to [-clip, clip] after the norm; 0: not clamped
  bool sinks = false;
  std::int64_t window = 0;  // the positions that a row attends to, its own included; 0: all
  double scale = 0;         // of the scores
  ops::RopeSpec rope;       // 0 dims: heads are not rotated

  friend bool operator==(const GroupedConfig&, const GroupedConfig&) = default;
};

// Multi-head latent attention: keys and values are stored as one latent row per token.
struct LatentConfig {
  std::int64_t heads = 0;
  std::int64_t q_rank = 0;  // 0: q_proj instead of q_a and q_b
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;
  double inner_norm_eps = 1e-6;
  double scale = 0;  // of the scores
  ops::RopeSpec rope;

  friend bool operator==(const LatentConfig&, const LatentConfig&) = default;
};

// A gated delta net. Value head h reads the key head h / (value_heads / key_heads).
struct DeltaNetConfig {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_width = 0;  // of a head
  std::int64_t value_width = 0;
  std::int64_t taps = 0;  // of the convolution
  // The files' projections are in_proj_qkvz and in_proj_ba, with the rows of a key head and its
  // value heads side by side; else in_proj_qkv, in_proj_z, in_proj_b and in_proj_a.
  bool by_key_head = false;

  // Of all heads.
  std::int64_t keys() const { return key_heads * key_width; }
  std::int64_t values() const { return value_heads * value_width; }
  std::int64_t channels() const { return 2 * keys() + values(); }

  friend bool operator==(const DeltaNetConfig&, const DeltaNetConfig&) = default;
};

// One alternative for each kind of mixer. Code that depends on the kind visits it, so that a new
// kind fails to compile wherever it is not handled.
using MixerConfig = std::variant<GroupedConfig, LatentConfig, DeltaNetConfig>;
// How its heads are rotated; null: it has no positions.
const ops::RopeSpec* rope_of(const MixerConfig& mixer);

struct MoeConfig {
  moe::RouterSpec router;
  bool router_bias = false;
  bool correction_bias = false;
  std::int64_t intermediate = 0;
  bool expert_biases = false;
  moe::ActivationKind activation = moe::ActivationKind::silu_mul;
  double swiglu_limit = 7.0;
  double swiglu_alpha = 1.702;
  std::int64_t shared_intermediate = 0;  // 0: no shared expert
  bool shared_gate = false;              // sigmoid(w x) weighs the shared expert
};

// A family's own names and layouts.
struct Naming {
  std::string_view moe_block = "mlp";  // model.layers.N.<moe_block>
  std::string_view expert_gate = "gate_proj";
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  std::string_view router = "gate";
  std::string_view shared_expert = "shared_experts";
  // Fused experts are [E, in, out], with gate and up rows interleaved.
  bool experts_transposed = false;
  // Fused experts of releases are [E, in, out], with gate's columns before up's. Adapters of them
  // are of [E, out, in], as in other families.
  bool released_transposed = false;
};

struct Config {
  std::string model_type;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t vocabulary = 0;
  std::int64_t dense_intermediate = 0;
  std::int64_t max_positions = 0;
  double norm_eps = 0;
  bool norm_weight_in_f32 = false;  // the norm's weight multiplies before rounding, not after
  bool norms_add_one = false;       // the files' norms multiply by 1 + w
  bool tied_embeddings = false;

  // Each kind of mixer that a layer of the model has, and the number of each layer's.
  std::vector<MixerConfig> mixers;
  std::vector<std::int32_t> mixer_of_layer;

  // By layer: whether its feed-forward block has experts.
  std::vector<bool> moe_layers;
  // Whether these have a dense block, too, which reads the same x.
  bool dense_and_experts = false;
  MoeConfig moe;
  Naming naming;

  bool has_experts() const;
  const MixerConfig& mixer(std::int32_t layer) const {
    return mixers[static_cast<std::size_t>(mixer_of_layer[static_cast<std::size_t>(layer)])];
  }
  // The first mixer, for families whose layers have this kind alone so far.
  GroupedConfig& grouped() {
    auto* const first = std::get_if<GroupedConfig>(mixers.data());
    MOTLEY_CHECK(first != nullptr, "the first mixer is grouped attention");
    return *first;
  }
};

// Reads a config.json. `where` names it in messages.
Result<Config> parse_config(const json::Value& value, std::string_view where);
Result<Config> read_config(const std::filesystem::path& folder);

// The contents of a folder's config.json.
Result<json::Value> read_config_json(const std::filesystem::path& folder);

}  // namespace motley::model
