#include "model/weights/kv_scales.h"

#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include "base/cat.h"
#include "model/weights/weight_source.h"

namespace motley::model {
namespace {

constexpr std::array<std::string_view, 4> key_names{"k_scale", "k_proj.k_scale",
                                                    "k_proj.output_scale", "kv_scale"};
constexpr std::array<std::string_view, 4> value_names{"v_scale", "v_proj.v_scale",
                                                      "v_proj.output_scale", "kv_scale"};

// The first that is there and positive; all of them count as used.
Result<std::optional<float>> read_first(WeightSource& source, std::int32_t layer,
                                        std::span<const std::string_view> names) {
  std::optional<float> first;
  for (const std::string_view own : names) {
    const std::string name = cat("model.layers.", layer, ".self_attn.", own);
    MOTLEY_TRY(const std::optional<float> scale, source.number(name));
    if (!scale) continue;
    if (!std::isfinite(*scale))
      return Error(ErrorCode::bad_file, cat("a scale of keys or values is ", *scale),
                   cat("tensor ", quote(name)), "download the checkpoint again");
    if (!first && *scale > 0) first = scale;
  }
  return first;
}

}  // namespace

Result<KvScales> read_kv_scales(WeightSource& source, std::int32_t layer) {
  MOTLEY_TRY(const std::optional<float> key, read_first(source, layer, key_names));
  MOTLEY_TRY(const std::optional<float> value, read_first(source, layer, value_names));
  if (!key && !value) return KvScales();
  return KvScales{.key = key.value_or(value.value_or(1)),
                  .value = value.value_or(key.value_or(1)),
                  .stored = true};
}

}  // namespace motley::model
