// Reads the input as a model's config.json. What is accepted has sizes that nothing behind it
// divides by zero or reads outside of; what is refused gets a message of one line.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "model/config/config.h"
#include "quant/config.h"

namespace {

void check_message(const motley::Error& error) {
  const std::string message = error.message();
  MOTLEY_CHECK(!message.empty() && message == motley::printable(message), "one printable line");
}

struct CheckMixer {
  static void check_rotated(const motley::ops::RopeSpec& rope) {
    MOTLEY_CHECK(rope.dims >= 0 && rope.dims % 2 == 0, "whole pairs are rotated");
  }
  void operator()(const motley::model::GroupedConfig& attention) const {
    MOTLEY_CHECK(attention.heads >= 1 && attention.kv_heads >= 1 && attention.head_dim >= 1,
                 "heads that have a size");
    MOTLEY_CHECK(attention.heads % attention.kv_heads == 0, "whole groups of heads");
    MOTLEY_CHECK(attention.window >= 0, "a window looks back");
    check_rotated(attention.rope);
  }
  void operator()(const motley::model::DeltaNetConfig& net) const {
    MOTLEY_CHECK(net.key_heads >= 1 && net.key_width >= 1 && net.value_width >= 1 && net.taps >= 2,
                 "a delta net that has a size");
    MOTLEY_CHECK(net.value_heads >= 1 && net.value_heads % net.key_heads == 0,
                 "as many value heads for each key head");
    constexpr std::int64_t largest = 1'000'000'000;
    MOTLEY_CHECK(
        net.keys() <= largest && net.values() <= largest && net.key_width <= 256 && net.taps <= 8,
        "a state whose size is a number");
  }
  void operator()(const motley::model::LatentConfig& latent) const {
    MOTLEY_CHECK(latent.heads >= 1 && latent.q_rank >= 0 && latent.kv_rank >= 1 &&
                     latent.nope_dim >= 1 && latent.rope_dim >= 1 && latent.value_dim >= 1,
                 "latents that have a size");
    check_rotated(latent.rope);
  }
};

void check_mixers(const motley::model::Config& config) {
  MOTLEY_CHECK(static_cast<std::int64_t>(config.mixer_of_layer.size()) == config.layers,
               "a mixer for each layer");
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    std::visit(CheckMixer{}, config.mixer(layer));
}

void check_experts(const motley::model::Config& config) {
  MOTLEY_CHECK(static_cast<std::int64_t>(config.moe_layers.size()) == config.layers,
               "every layer is dense or has experts");
  if (!config.has_experts()) return;
  const motley::model::MoeConfig& moe = config.moe;
  MOTLEY_CHECK(moe.intermediate >= 1 && moe.shared_intermediate >= 0, "experts that have a size");
  MOTLEY_CHECK(moe.router.experts >= 1 && moe.router.top_k >= 1, "a router that chooses");
  MOTLEY_CHECK(moe.router.top_k <= moe.router.experts, "no more choices than experts");
}

void check_config(const motley::json::Value& value) {
  const auto config = motley::model::parse_config(value, "config.json");
  if (!config.ok()) return check_message(config.error());
  MOTLEY_CHECK(config->layers >= 1 && config->layers <= 10'000, "a number of layers");
  MOTLEY_CHECK(config->hidden >= 1 && config->vocabulary >= 1 && config->max_positions >= 1,
               "sizes are positive");
  MOTLEY_CHECK(config->norm_eps > 0 && std::isfinite(config->norm_eps), "a norm that divides");
  check_mixers(*config);
  check_experts(*config);
}

void check_quantization(const motley::json::Object& object) {
  const auto config = motley::quant::Config::read(object);
  if (!config.ok()) return check_message(config.error());
  for (const std::string_view module :
       {"", "lm_head", "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.experts.3.up_proj",
        "model.language_model.layers.0.linear_attn.in_proj_qkv"}) {
    const auto scheme = config->scheme_of(module);
    if (!scheme) continue;
    const motley::quant::Format& format = scheme->format;
    MOTLEY_CHECK(format.bits >= 1 && format.bits <= 32, "a width that numbers have");
    MOTLEY_CHECK(scheme->stored_bits >= 1 && scheme->stored_bits <= 8, "a width that files have");
    MOTLEY_CHECK(format.block_rows >= 1 && format.block_columns >= 0, "blocks that have a size");
    MOTLEY_CHECK(!motley::quant::to_string(format).empty(), "a format has a name");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = motley::json::parse(text, "config.json");
  if (!value.ok()) return 0;
  check_config(*value);
  if (const motley::json::Object* const object = value->if_object()) check_quantization(*object);
  return 0;
}
