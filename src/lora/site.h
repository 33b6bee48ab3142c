#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "dist/layout.h"
#include "tensor/tensor.h"

namespace motley::lora {

// The linear maps of a model that an adapter may change. Parts that a model may fuse (q, k, v;
// gate, up) are separate sites.
enum class Projection : std::uint8_t {
  q,
  k,
  v,
  o,  // attention
  q_a,
  q_b,
  kv_a,
  kv_b,  // MLA
  in_qkv,
  in_z,
  in_b,
  in_a,
  in_qkvz,
  in_ba,
  delta_out,  // a gated delta net
  gate,
  up,
  down,  // a dense feed-forward block
  shared_gate,
  shared_up,
  shared_down,
  shared_expert_gate,
  router,
  expert_gate,
  expert_up,
  expert_down,  // one map for each expert
  embed,
  lm_head,  // layer -1
};

// The properties of a projection.
struct ProjectionInfo {
  std::string_view name;  // in a layer, as in messages
  std::string_view part;  // of a model, and the map in it, as in summaries
  std::string_view map = {};
  // Whether a rank has all inputs of the map: it has a part of the outputs, or all. Of the others
  // it has a part of the inputs, and what it adds is a part of a sum over ranks.
  bool whole_inputs = true;
  bool of_experts = false;
};
constexpr ProjectionInfo info(Projection projection) {
  switch (projection) {
    case Projection::q:
      return {.name = "self_attn.q_proj", .part = "attention", .map = "q"};
    case Projection::k:
      return {.name = "self_attn.k_proj", .part = "attention", .map = "k"};
    case Projection::v:
      return {.name = "self_attn.v_proj", .part = "attention", .map = "v"};
    case Projection::o:
      return {.name = "self_attn.o_proj", .part = "attention", .map = "o", .whole_inputs = false};
    case Projection::q_a:
      return {.name = "self_attn.q_a_proj", .part = "attention", .map = "q_a"};
    case Projection::q_b:
      return {.name = "self_attn.q_b_proj", .part = "attention", .map = "q_b"};
    case Projection::kv_a:
      return {.name = "self_attn.kv_a_proj_with_mqa", .part = "attention", .map = "kv_a"};
    case Projection::kv_b:
      return {.name = "self_attn.kv_b_proj", .part = "attention", .map = "kv_b"};
    case Projection::gate:
      return {.name = "mlp.gate_proj", .part = "dense block", .map = "gate"};
    case Projection::up:
      return {.name = "mlp.up_proj", .part = "dense block", .map = "up"};
    case Projection::down:
      return {.name = "mlp.down_proj", .part = "dense block", .map = "down", .whole_inputs = false};
    case Projection::shared_gate:
      return {.name = "mlp.shared_experts.gate_proj", .part = "shared experts", .map = "gate"};
    case Projection::shared_up:
      return {.name = "mlp.shared_experts.up_proj", .part = "shared experts", .map = "up"};
    case Projection::shared_down:
      return {.name = "mlp.shared_experts.down_proj",
              .part = "shared experts",
              .map = "down",
              .whole_inputs = false};
    case Projection::shared_expert_gate:
      return {.name = "mlp.shared_expert_gate", .part = "shared experts", .map = "weighing gate"};
    case Projection::router:
      return {.name = "mlp.gate", .part = "router"};
    case Projection::expert_gate:
      return {
          .name = "mlp.experts.gate_proj", .part = "experts", .map = "gate", .of_experts = true};
    case Projection::expert_up:
      return {.name = "mlp.experts.up_proj", .part = "experts", .map = "up", .of_experts = true};
    case Projection::expert_down:
      return {.name = "mlp.experts.down_proj",
              .part = "experts",
              .map = "down",
              .whole_inputs = false,
              .of_experts = true};
    case Projection::embed:
      return {.name = "embed_tokens", .part = "embedding", .whole_inputs = false};
    case Projection::lm_head:
      return {.name = "lm_head", .part = "head"};
    case Projection::in_qkv:
      return {.name = "linear_attn.in_proj_qkv", .part = "delta net", .map = "in_proj_qkv"};
    case Projection::in_z:
      return {.name = "linear_attn.in_proj_z", .part = "delta net", .map = "in_proj_z"};
    case Projection::in_b:
      return {.name = "linear_attn.in_proj_b", .part = "delta net", .map = "in_proj_b"};
    case Projection::in_a:
      return {.name = "linear_attn.in_proj_a", .part = "delta net", .map = "in_proj_a"};
    case Projection::in_qkvz:
      return {.name = "linear_attn.in_proj_qkvz", .part = "delta net", .map = "in_proj_qkvz"};
    case Projection::in_ba:
      return {.name = "linear_attn.in_proj_ba", .part = "delta net", .map = "in_proj_ba"};
    case Projection::delta_out:
      return {.name = "linear_attn.out_proj",
              .part = "delta net",
              .map = "out_proj",
              .whole_inputs = false};
  }
  return {};
}

inline constexpr std::size_t projection_count = [] {
  std::size_t count = 0;
  while (!info(static_cast<Projection>(count)).name.empty()) ++count;
  return count;
}();

constexpr std::string_view name(Projection projection) { return info(projection).name; }
constexpr bool is_expert(Projection projection) { return info(projection).of_experts; }
constexpr bool has_whole_inputs(Projection projection) { return info(projection).whole_inputs; }

struct Site {
  std::int32_t layer = -1;
  Projection projection = Projection::q;

  friend auto operator<=>(const Site&, const Site&) = default;
};

// "layers.3.self_attn.q_proj", as in messages.
std::string to_string(Site site);

// The base model at a site. For embed, in is the vocabulary and out the hidden size.
struct SiteSpec {
  Site site;
  std::int64_t in = 0;
  std::int64_t out = 0;
  int experts = 0;  // 0: not an expert projection
  // Of a map whose rows are queries, keys and values: how many are each. Else zero.
  std::array<std::int64_t, 3> row_parts{};
};

// A rank's part of a site, where several ranks compute the model: some of its outputs, or some of
// its inputs, may be empty; and some of its experts.
struct SiteShard {
  Site site;
  dist::Ranges out;
  dist::Range in;
  std::optional<dist::Range> experts = {};  // nothing: all, or it is no expert site
  bool has_biases = true;                   // false: another rank adds them
};

// A family's own names of modules, as adapter files use them.
struct BlockNames {
  std::string_view moe = "mlp";  // layers.N.<moe>.experts; every family's is mlp in transformers 5
  std::string_view router = "gate";
  std::string_view shared_expert = "shared_experts";
};

// The base model as adapters see it: its sites, and its numbers where a formula needs them (DoRA).
class BaseView {
 public:
  virtual ~BaseView() = default;

  // In ascending order of site. A tied head is a separate site; gate, up and down of a layer's
  // experts are consecutive.
  virtual std::span<const SiteSpec> sites() const = 0;

  // The parts that this rank has, of those sites that are cut over ranks; in any order.
  virtual std::span<const SiteShard> shards() const { return {}; }

  // Whether the family stores fused experts as [E, in, out] with gate and up interleaved (row 2i is
  // gate i, 2i + 1 is up i), as gpt-oss does. Adapter files follow their base in both.
  virtual bool experts_transposed() const = 0;
  virtual bool gate_up_interleaved() const = 0;

  virtual BlockNames block_names() const { return {}; }

  // A tensor of the base's files by its name, valid as long as the base; nothing if the files have
  // no such tensor or there are no files.
  virtual std::optional<tensor::ConstTensor> file_tensor(std::string_view) const { return {}; }

  // The head shares the embedding's table: replacing one replaces the other.
  virtual bool tied_embeddings() const = 0;

  // Writes rows [begin, end) of a site's weight as float32 to out[(end - begin) * in]; expert is 0
  // for sites without experts. The embedding's rows are those of its table [vocabulary, hidden].
  virtual void rows(Site site, int expert, std::int64_t begin, std::int64_t end,
                    float* out) const = 0;
};

}  // namespace motley::lora
