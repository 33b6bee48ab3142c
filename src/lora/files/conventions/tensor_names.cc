#include "lora/files/conventions/tensor_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/cat.h"

namespace motley::lora {

namespace {

using Words = std::span<const std::string_view>;

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t dot = text.find('.');
    words.push_back(text.substr(0, dot));
    if (dot == std::string_view::npos) return words;
    text.remove_prefix(dot + 1);
  }
}

std::optional<std::int32_t> number(std::string_view word) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  // "007" is not the same as "7", and names no module.
  if (!whole || value < 0 || (word.size() > 1 && word[0] == '0')) return std::nullopt;
  return value;
}

template <std::size_t count>
std::optional<Projection> look_up(
    const std::array<std::pair<std::string_view, Projection>, count>& table,
    std::string_view word) {
  for (const auto& [key, projection] : table) {
    if (key == word) return projection;
  }
  return std::nullopt;
}

constexpr std::array<std::pair<std::string_view, Projection>, 8> attention_words{{
    {"q_proj", Projection::q},
    {"k_proj", Projection::k},
    {"v_proj", Projection::v},
    {"o_proj", Projection::o},
    {"q_a_proj", Projection::q_a},
    {"q_b_proj", Projection::q_b},
    {"kv_a_proj_with_mqa", Projection::kv_a},
    {"kv_b_proj", Projection::kv_b},
}};
constexpr std::array<std::pair<std::string_view, Projection>, 7> delta_net_words{{
    {"in_proj_qkv", Projection::in_qkv},
    {"in_proj_z", Projection::in_z},
    {"in_proj_b", Projection::in_b},
    {"in_proj_a", Projection::in_a},
    {"in_proj_qkvz", Projection::in_qkvz},
    {"in_proj_ba", Projection::in_ba},
    {"out_proj", Projection::delta_out},
}};
constexpr std::array<std::pair<std::string_view, Projection>, 6> mlp_words{{
    {"gate_proj", Projection::gate},
    {"up_proj", Projection::up},
    {"down_proj", Projection::down},
    {"gate", Projection::router},
    {"router", Projection::router},
    {"shared_expert_gate", Projection::shared_expert_gate},
}};
constexpr std::array<std::pair<std::string_view, Projection>, 3> shared_words{{
    {"gate_proj", Projection::shared_gate},
    {"up_proj", Projection::shared_up},
    {"down_proj", Projection::shared_down},
}};
constexpr std::array<std::pair<std::string_view, Projection>, 6> expert_words{{
    {"gate_proj", Projection::expert_gate},
    {"up_proj", Projection::expert_up},
    {"down_proj", Projection::expert_down},
    {"w1", Projection::expert_gate},
    {"w3", Projection::expert_up},
    {"w2", Projection::expert_down},
}};

// Parses the words behind "experts".
std::optional<Module> experts_module(std::int32_t layer, Words words, bool inner) {
  const auto module = [&](Projection projection, Form form, std::int32_t expert = 0) {
    return Module{{layer, projection}, form, expert};
  };
  if (words.empty())
    return module(Projection::expert_gate, inner ? Form::packed_inner : Form::packed);
  if (inner) return std::nullopt;
  if (words.size() == 1) {
    if (words[0] == "gate_up_proj") return module(Projection::expert_gate, Form::outer_gate_up);
    const auto projection = look_up(expert_words, words[0]);
    if (!projection) return std::nullopt;
    return module(*projection, Form::outer);
  }
  if (words.size() != 2) return std::nullopt;
  if (const auto expert = number(words[0])) {
    const auto projection = look_up(expert_words, words[1]);
    if (!projection) return std::nullopt;
    return module(*projection, Form::expert, *expert);
  }
  const auto expert = number(words[1]);
  if (!expert) return std::nullopt;
  if (words[0] == "gate_up_projs") return module(Projection::expert_gate, Form::linear, *expert);
  if (words[0] == "down_projs") return module(Projection::expert_down, Form::expert, *expert);
  return std::nullopt;
}

// Parses the words behind "layers.N".
std::optional<Module> layer_module(std::int32_t layer, Words words, bool inner) {
  if (words.size() < 2) return std::nullopt;
  const auto plain = [&](std::optional<Projection> projection) -> std::optional<Module> {
    if (!projection) return std::nullopt;
    return Module{{layer, *projection}, Form::plain, 0};
  };
  if (words[0] == "self_attn" || words[0] == "attn") {
    if (words.size() != 2) return std::nullopt;
    return plain(look_up(attention_words, words[1]));
  }
  if (words[0] == "linear_attn") {
    if (words.size() != 2) return std::nullopt;
    // As Tinker writes them.
    for (const auto& [part, word] : {std::pair(0, "in_proj_q"), {1, "in_proj_k"}, {2, "in_proj_v"}})
      if (words[1] == word) return Module{{layer, Projection::in_qkv}, Form::some_rows, part};
    return plain(look_up(delta_net_words, words[1]));
  }
  if (words[0] != "mlp" && words[0] != "block_sparse_moe") return std::nullopt;
  if (words[1] == "experts") return experts_module(layer, words.subspan(2), inner);
  if (words[1] == "shared_experts" || words[1] == "shared_expert") {
    if (words.size() != 3) return std::nullopt;
    return plain(look_up(shared_words, words[2]));
  }
  if (words.size() != 2) return std::nullopt;
  return plain(look_up(mlp_words, words[1]));
}

// Parses the words of a module's path; `inner`: experts.base_layer was its end.
std::optional<Module> module_of(Words words, bool inner) {
  while (!words.empty() && (words[0] == "model" || words[0] == "language_model"))
    words = words.subspan(1);
  if (words.empty()) return std::nullopt;
  if (words.size() == 1) {
    if (words[0] == "embed_tokens") return Module{{-1, Projection::embed}, Form::plain, 0};
    if (words[0] == "lm_head" || words[0] == "unembed_tokens")
      return Module{{-1, Projection::lm_head}, Form::plain, 0};
    return std::nullopt;
  }
  if (words[0] != "layers" || words.size() < 3) return std::nullopt;
  const auto layer = number(words[1]);
  if (!layer) return std::nullopt;
  return layer_module(*layer, words.subspan(2), inner);
}

// A tensor's name as words, without those that training wrappers insert.
std::vector<std::string_view> cleaned(std::string_view name) {
  constexpr std::string_view prefix = "base_model.model.";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  std::vector<std::string_view> words = split(name);
  std::erase_if(words, [](std::string_view word) {
    return word == "_orig_mod" || word == "default" || word == "modules_to_save";
  });
  return words;
}

struct Ending {
  Part part;
  std::size_t words;  // how many of them it takes
};

std::optional<Ending> ending_of(Words words) {
  const auto ends_with = [&](std::initializer_list<std::string_view> end) {
    if (words.size() <= end.size()) return false;
    return std::equal(end.begin(), end.end(),
                      words.end() - static_cast<std::ptrdiff_t>(end.size()));
  };
  if (ends_with({"lora_A", "weight"})) return Ending{Part::a, 2};
  if (ends_with({"lora_B", "weight"})) return Ending{Part::b, 2};
  if (ends_with({"lora_B", "bias"})) return Ending{Part::b_bias, 2};
  if (ends_with({"lora_embedding_A"})) return Ending{Part::embedding_a, 1};
  if (ends_with({"lora_embedding_B"})) return Ending{Part::embedding_b, 1};
  if (ends_with({"lora_magnitude_vector"})) return Ending{Part::magnitude, 1};
  if (ends_with({"lora_magnitude_vector", "weight"})) return Ending{Part::magnitude, 2};
  if (ends_with({"token_adapter", "trainable_tokens_delta"}))
    return Ending{Part::trainable_tokens, 2};
  if (ends_with({"weight"})) return Ending{Part::weight, 1};
  if (ends_with({"bias"})) return Ending{Part::bias, 1};
  return std::nullopt;
}

std::string joined(Words words) { return join(words, "."); }

}  // namespace

Result<TensorName> parse_tensor_name(std::string_view name) {
  const std::vector<std::string_view> words = cleaned(name);
  if (words.empty()) return Error(ErrorCode::bad_file, "the name means nothing in a LoRA adapter");
  const auto ending = ending_of(words);
  std::vector<std::string_view> path(words.begin(), words.end());
  if (ending) path.resize(path.size() - ending->words);

  TensorName result;
  result.saved_copy = name.find(".modules_to_save.") != std::string_view::npos;
  // "experts.base_layer.lora_A" nests two parameters; elsewhere base_layer is only a wrapper.
  const bool factors = ending && (ending->part == Part::a || ending->part == Part::b ||
                                  ending->part == Part::b_bias || ending->part == Part::magnitude);
  std::size_t nested = 0;
  while (nested < path.size() && path[path.size() - 1 - nested] == "base_layer") ++nested;
  const bool inner =
      factors && nested > 0 && nested < path.size() && path[path.size() - 1 - nested] == "experts";
  const std::size_t before = path.size();
  std::erase(path, "base_layer");
  result.in_base_layer = !inner && path.size() < before;
  result.path = joined(path);

  const bool of_experts = std::ranges::find(path, "experts") != path.end();
  if (of_experts && words.back().ends_with("bias") && (!ending || ending->part != Part::b_bias)) {
    return Error(
        ErrorCode::unsupported, "biases of experts can't be replaced", {},
        "train with bias=lora_only or none (bias=all of PEFT up to 0.20 trains these too), "
        "or merge the adapter into its base");
  }
  if (std::ranges::find(path, "conv1d") != path.end()) {
    return Error(ErrorCode::unsupported, "a convolution can't be adapted", {},
                 "leave conv1d out of target_modules, or merge the adapter into its base");
  }
  if (words.back() == "e_score_correction_bias") {
    return Error(ErrorCode::unsupported, "the router's correction bias can't be replaced");
  }
  if (!ending) {
    return Error(ErrorCode::bad_file, "the name means nothing in a LoRA adapter");
  }
  result.part = ending->part;
  if (inner && nested > 1) {
    return Error(ErrorCode::unsupported,
                 "more than two parameters of the experts are adapted, and motley knows two");
  }
  const auto module = module_of(path, inner);
  if (!module) {
    return Error(ErrorCode::bad_file, cat(quote(result.path), " is no module that motley knows"));
  }
  result.module = *module;
  return result;
}

std::string_view ignored_kind(std::string_view name) {
  for (const std::string_view word : split(name)) {
    // PEFT keeps the base's table beside a saved one.
    if (word == "original_module") return "the base's own copy of a saved module";
    // Both only shape gradients or noise in training; A and B are complete without them.
    if (word.starts_with("lora_velora")) return "VeLoRA's projection";
    if (word.starts_with("lora_monteclora")) return "MonteCLoRA's sampler";
    // Lists of leaf names match these modules too, and no text depends on them.
    if (word == "visual" || word == "vision_tower" || word == "vision_model")
      return "a vision tower's factors";
    if (word == "mtp") return "factors of multi-token prediction";
  }
  return {};
}

std::string whole_tensor_name(std::string_view name) {
  std::vector<std::string_view> words = cleaned(name);
  std::erase(words, "base_layer");
  for (const std::string_view word : words) {
    if (word.starts_with("lora_") || word == "token_adapter") return {};
  }
  return joined(words);
}

std::string replaced_module_path(std::string_view name) {
  std::vector<std::string_view> words = cleaned(name);
  const auto ending = ending_of(words);
  if (!ending || (ending->part != Part::weight && ending->part != Part::bias)) return {};
  words.pop_back();
  std::erase(words, "base_layer");
  return joined(words);
}

}  // namespace motley::lora
