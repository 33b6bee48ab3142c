#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "lora/site.h"

namespace motley::lora {

// Parses a tensor's name: the module, its spelling, and the part of its adaptation.

enum class Part : std::uint8_t {
  a,                // lora_A.weight
  b,                // lora_B.weight
  b_bias,           // lora_B.bias
  embedding_a,      // lora_embedding_A
  embedding_b,      // lora_embedding_B
  magnitude,        // lora_magnitude_vector
  weight,           // a whole weight instead of the base's
  bias,             // a whole bias instead of the base's
  trainable_tokens  // token_adapter.trainable_tokens_delta
};

// How a module's name denotes a site. Expert sites have many spellings; nearly all others are
// `plain`.
enum class Form : std::uint8_t {
  plain,
  expert,         // experts.{e}.gate_proj, experts.down_projs.{e}
  linear,         // experts.gate_up_projs.{e}: gate and up of one expert
  outer,          // experts.gate_proj: all experts in one tensor of three dimensions
  outer_gate_up,  // experts.gate_up_proj, likewise
  packed,         // experts
  packed_inner,   // experts.base_layer
  some_rows,      // in_proj_q, in_proj_k, in_proj_v: rows of in_proj_qkv
};
constexpr bool is_of_experts(Form form) { return form != Form::plain && form != Form::some_rows; }

// Forms in which gate and up are fused, and packed forms, use the site of expert_gate.
struct Module {
  Site site;
  Form form = Form::plain;
  std::int32_t expert = 0;  // of `expert` and `linear`; of `some_rows`: which part

  friend auto operator<=>(const Module&, const Module&) = default;
};

struct TensorName {
  Module module;
  Part part = Part::a;
  // The module's path in the model as spelled in this file: "model.layers.0.mlp.experts.3.w1".
  // Patterns are matched against it.
  std::string path;
  bool in_base_layer = false;  // the name has .base_layer. where nesting does not require it
  bool saved_copy = false;     // the name has .modules_to_save.
};

// Parses a tensor's name. `bad_file`: unknown names. `unsupported`: whole tensors of modules that
// cannot be replaced, and biases of experts. Does not check whether the model has the site.
Result<TensorName> parse_tensor_name(std::string_view name);

// The kind of a tensor that has no effect on the adapter: "VeLoRA's projection", say. Empty for
// every other tensor.
std::string_view ignored_kind(std::string_view name);

// The base's name of a whole tensor, without PEFT's prefixes and wrappers; empty for adapter
// tensors.
std::string whole_tensor_name(std::string_view name);

// The path of a replaced module that motley does not know, for messages; empty unless the name is
// that of a whole weight.
std::string replaced_module_path(std::string_view name);

}  // namespace motley::lora
