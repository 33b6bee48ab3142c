#include "model/config/config.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/overloaded.h"
#include "base/system/files.h"
#include "kernels/recurrence.h"
#include "model/families.h"

namespace motley::model {
namespace {

constexpr std::size_t longest_config = 16'000'000;
constexpr std::int64_t max_layers = 10'000;

// rope_parameters (transformers v5), or rope_theta with rope_scaling (v4), whose kind is rope_type
// or type.
void read_rope(ConfigReader& json, const Family& family, Config& config) {
  GroupedConfig& attention = config.grouped();
  ops::RopeSpec& rope = attention.rope;
  rope.base = json.number_or("rope_theta", family.rope_base);
  double partial = json.number_or("partial_rotary_factor", family.rotated_part);

  std::optional<ConfigReader> settings = json.inner("rope_parameters");
  if (!settings) settings = json.inner("rope_scaling");
  if (settings) {
    ConfigReader& inner = *settings;
    rope.base = inner.number_or("rope_theta", rope.base);
    partial = inner.number_or("partial_rotary_factor", partial);
    const std::string kind = inner.text_or("rope_type", inner.text_or("type", "default"));
    if (kind == "default") {
      rope.scaling = ops::RopeSpec::Scaling::none;
    } else if (kind == "linear") {
      rope.scaling = ops::RopeSpec::Scaling::linear;
    } else if (kind == "llama3") {
      rope.scaling = ops::RopeSpec::Scaling::llama3;
      rope.low_freq_factor = inner.number("low_freq_factor");
      rope.high_freq_factor = inner.number("high_freq_factor");
    } else if (kind == "yarn") {
      rope.scaling = ops::RopeSpec::Scaling::yarn;
      rope.beta_fast = inner.number_or("beta_fast", 32.0);
      rope.beta_slow = inner.number_or("beta_slow", 1.0);
      rope.mscale = inner.number_or("mscale", 0.0);
      rope.mscale_all_dim = inner.number_or("mscale_all_dim", 0.0);
      rope.attention_factor = inner.number_or("attention_factor", 0.0);
      rope.truncate = inner.boolean_or("truncate", true);
    } else {
      inner.refuse(ErrorCode::unsupported, cat("rope_type ", quote(kind)),
                   "motley knows default, linear, llama3 and yarn");
    }
    if (rope.scaling != ops::RopeSpec::Scaling::none) {
      rope.factor = inner.number("factor");
      if (rope.scaling != ops::RopeSpec::Scaling::linear)
        rope.original_max_positions = inner.number_or("original_max_position_embeddings",
                                                      static_cast<double>(config.max_positions));
    }
    json.adopt(inner);
  }
  const auto require = [&](bool holds, std::string_view name, double number,
                           std::string_view must) {
    if (!holds)
      json.refuse(ErrorCode::bad_file, cat(name, " is ", number), cat("it must be ", must));
  };
  require(rope.base > 1, "rope_theta", rope.base, "above 1");
  require(rope.factor > 0, "the rope settings' factor", rope.factor, "above 0");
  require(partial > 0 && partial <= 1, "partial_rotary_factor", partial, "above 0, and 1 at most");
  rope.dims = static_cast<std::int64_t>(static_cast<double>(attention.head_dim) * partial);
  if (rope.dims < 2)
    json.refuse(ErrorCode::bad_file, "partial_rotary_factor leaves no dimension to rotate",
                "the config's sizes contradict each other");
}

void read_common(ConfigReader& json, Config& config) {
  config.hidden = json.integer("hidden_size");
  config.layers = json.integer("num_hidden_layers");
  if (config.layers > max_layers) {
    // Checked before anything is allocated per layer.
    json.refuse(ErrorCode::bad_file, cat("num_hidden_layers is ", config.layers),
                cat("it must be at most ", max_layers));
    return;
  }
  config.vocabulary = json.integer("vocab_size");
  config.dense_intermediate = json.integer_or("intermediate_size", 0);
  config.max_positions = json.integer_or("max_position_embeddings", 4096, 1);
  config.norm_eps = json.number("rms_norm_eps");
  config.tied_embeddings = json.boolean_or("tie_word_embeddings", false);
  if (const std::string kind = json.text_or("hidden_act", "silu"); kind != "silu")
    json.refuse(ErrorCode::unsupported, cat("hidden_act is ", quote(kind)),
                "motley knows silu (and gpt-oss's own)");

  // Families may add others, or put another kind in its place.
  config.mixers = {GroupedConfig{}};
  config.mixer_of_layer.assign(static_cast<std::size_t>(config.layers), 0);
  GroupedConfig& attention = config.grouped();
  attention.heads = json.integer("num_attention_heads");
  attention.kv_heads = json.integer_or("num_key_value_heads", attention.heads, 1);
  attention.head_dim = json.integer_or("head_dim", config.hidden / attention.heads, 1);
  attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  if (json.boolean_or("use_sliding_window", false))
    json.refuse(ErrorCode::unsupported, "use_sliding_window is true",
                "no released model of this family uses it");
  config.moe_layers.assign(static_cast<std::size_t>(config.layers), false);
}

// Invariants of every family, so that later code neither divides by zero nor reads out of bounds.
class Invariants {
 public:
  explicit Invariants(ConfigReader& json) : json_(json) {}

  void require(bool holds, std::string_view what) {
    if (!holds)
      json_.refuse(ErrorCode::bad_file, std::string(what),
                   "the config's sizes contradict each other");
  }
  void operator()(const GroupedConfig& attention) {
    require(attention.heads % attention.kv_heads == 0,
            "num_attention_heads is no multiple of num_key_value_heads");
    require_rotated(attention.rope, attention.head_dim, "head_dim and partial_rotary_factor");
  }
  void operator()(const LatentConfig& attention) {
    require(attention.rope.dims > 0, "no rotated dimensions");
    require_rotated(attention.rope, attention.rope_dim, "qk_rope_head_dim");
  }
  void operator()(const DeltaNetConfig& net) {
    require(net.value_heads % net.key_heads == 0,
            "linear_num_value_heads is no multiple of linear_num_key_heads");
    require_at_most(net.key_width, kernels::max_key_width, "linear_key_head_dim");
    require_at_most(net.taps, kernels::max_taps, "linear_conv_kernel_dim");
    // States are as large as their product with a key: it stays within 64 bits.
    require_at_most(net.keys(), max_width, "linear_num_key_heads times linear_key_head_dim");
    require_at_most(net.values(), max_width, "linear_num_value_heads times linear_value_head_dim");
  }

 private:
  static constexpr std::int64_t max_width = 1'000'000'000;

  void require_at_most(std::int64_t number, std::int64_t most, std::string_view name) {
    if (number > most)
      json_.refuse(ErrorCode::bad_file, cat(name, " is ", number),
                   cat("it must be at most ", most));
  }
  void require_rotated(const ops::RopeSpec& rope, std::int64_t width, std::string_view names) {
    require(rope.dims >= 0 && rope.dims % 2 == 0 && rope.dims <= width,
            cat(names, " leave ", rope.dims, " of a head's ", width,
                " dimensions to rotate, which is done in pairs"));
  }

  ConfigReader& json_;
};

// The keys that say how experts are chosen, as this config calls them.
std::vector<std::string_view> router_keys(const ConfigReader& json) {
  std::vector<std::string_view> keys{
      "num_experts", "num_local_experts", "n_routed_experts",     "num_experts_per_tok",
      "n_group",     "topk_group",        "routed_scaling_factor"};
  std::erase_if(keys, [&](std::string_view key) { return !json.has(key); });
  return keys;
}

void check(ConfigReader& json, const Config& config) {
  Invariants invariants(json);
  for (const MixerConfig& mixer : config.mixers) std::visit(invariants, mixer);
  const bool has_dense = config.dense_and_experts ||
                         std::ranges::find(config.moe_layers, false) != config.moe_layers.end();
  invariants.require(!has_dense || config.dense_intermediate > 0,
                     "no intermediate_size for the dense layers");
  invariants.require(config.norm_eps > 0 && std::isfinite(config.norm_eps),
                     "rms_norm_eps is not positive");
  if (!config.has_experts()) return;
  invariants.require(config.moe.intermediate > 0, "no intermediate_size for the experts");
  if (const auto router = moe::validate(config.moe.router); !router.ok())
    json.refuse(ErrorCode::bad_file, router.error().what(), cat("check ", join(router_keys(json))));
}

Result<const Family*> find_family(std::string_view model_type, std::string_view where) {
  const std::span<const Family> all = families();
  const auto family = std::ranges::find(all, model_type, &Family::model_type);
  if (family != all.end()) return &*family;
  std::vector<std::string_view> known;
  for (const Family& each : all) known.push_back(each.model_type);
  return Error(ErrorCode::unsupported, cat("model_type ", quote(model_type)), std::string(where),
               cat("motley knows ", join(known)));
}

Result<Config> read_as(const Family& family, ConfigReader& json) {
  Config config;
  read_common(json, config);
  MOTLEY_TRY_VOID(json.result());
  read_rope(json, family, config);
  family.read(json, config);
  check(json, config);
  MOTLEY_TRY_VOID(json.result());
  return config;
}

}  // namespace

const ops::RopeSpec* rope_of(const MixerConfig& mixer) {
  return std::visit(
      Overloaded{[](const DeltaNetConfig&) -> const ops::RopeSpec* { return nullptr; },
                 [](const auto& attention) { return &attention.rope; }},
      mixer);
}

bool Config::has_experts() const { return std::ranges::find(moe_layers, true) != moe_layers.end(); }

Result<Config> parse_config(const json::Value& value, std::string_view where) {
  auto object = value.as_object(where);
  if (!object.ok()) return std::move(object).error().as(ErrorCode::bad_file);
  ConfigReader json(**object, std::string(where));
  const std::string model_type = json.text_or("model_type", "");
  MOTLEY_TRY(const Family* const family, find_family(model_type, where));
  std::optional<ConfigReader> text = json.inner("text_config");
  MOTLEY_TRY_VOID(json.result());
  if (!text) {
    MOTLEY_TRY(Config config, read_as(*family, json));
    config.model_type = model_type;
    return config;
  }
  // A wrapper around a text model. Whether head and embedding are one table is the wrapper's word.
  MOTLEY_TRY(const Family* const inner,
             find_family(text->text_or("model_type", model_type), cat(where, ", text_config")));
  MOTLEY_TRY(Config config, read_as(*inner, *text));
  config.model_type = model_type;
  config.tied_embeddings = json.boolean_or("tie_word_embeddings", false);
  MOTLEY_TRY_VOID(json.result());
  return config;
}

Result<json::Value> read_config_json(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  MOTLEY_TRY(const std::string text, read_text(path, longest_config));
  auto value = json::parse(text, printable(path.string()));
  if (!value.ok()) return std::move(value).error().as(ErrorCode::bad_file);
  return value;
}

Result<Config> read_config(const std::filesystem::path& folder) {
  MOTLEY_TRY(const json::Value value, read_config_json(folder));
  return parse_config(value, printable((folder / "config.json").string()));
}

}  // namespace motley::model
