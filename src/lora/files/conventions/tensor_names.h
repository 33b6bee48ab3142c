#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "lora/site.h"

namespace motley::lora {

// What a tensor's name says: which module, spelled how, and which part of its adaptation.

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

// How a module stands for a site. Expert sites have many spellings; the others are `plain`.
enum class Form : std::uint8_t {
  plain,
  expert,         // experts.{e}.gate_proj, experts.down_projs.{e}
  linear,         // experts.gate_up_projs.{e}: gate and up of one expert
  outer,          // experts.gate_proj: all experts in one tensor of three dimensions
  outer_gate_up,  // experts.gate_up_proj, likewise
  packed,         // experts
  packed_inner,   // experts.base_layer
};

// The sites of a form that is gate and up in one, and of packed ones, are named by expert_gate.
struct Module {
  Site site;
  Form form = Form::plain;
  std::int32_t expert = 0;  // of `expert` and `linear`

  friend auto operator<=>(const Module&, const Module&) = default;
};

struct TensorName {
  Module module;
  Part part = Part::a;
  // The module's path in the model, as this file spells it: "model.layers.0.mlp.experts.3.w1".
  // Patterns are matched against it.
  std::string path;
  bool in_base_layer = false;  // .base_layer. stood in the name where nesting did not ask for it
  bool saved_copy = false;     // .modules_to_save. stood in the name
};

// Understands a tensor's name. `bad_file` for names that mean nothing here, `unsupported` for whole
// tensors of modules that can't be replaced and for biases of experts. Whether the model has the
// site is not asked.
Result<TensorName> parse_tensor_name(std::string_view name);

// What a tensor is that says nothing about the adapter's numbers: "VeLoRA's projection", say. Empty
// for every other tensor.
std::string_view ignored_kind(std::string_view name);

// The name that a whole tensor of the base has there, without PEFT's prefixes and wrappers; empty
// for tensors of adapters.
std::string whole_tensor_name(std::string_view name);

// The path of a replaced module that is none of ours, for messages; empty where the name is not
// that of a whole weight.
std::string replaced_module_path(std::string_view name);

}  // namespace motley::lora
