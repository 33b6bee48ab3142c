#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/result.h"
#include "quant/config.h"

// One reader of a quantization_config for each quant_method.
namespace motley::quant {

Result<Config> read_compressed_tensors(const json::Object& quantization);
Result<Config> read_fp8(const json::Object& quantization);
Result<Config> read_gptq(const json::Object& quantization);
Result<Config> read_awq(const json::Object& quantization);
Result<Config> read_mxfp4(const json::Object& quantization);
Result<Config> read_modelopt(const json::Object& quantization);

// A setting, or what it is where the object lacks it. `where` stands before the key in errors.
struct Settings {
  const json::Object& object;
  std::string where = {};

  std::string place(std::string_view key) const { return cat(where, key); }
  const json::Value* find(std::string_view key) const { return object.find_set(key); }
  Result<std::string> text(std::string_view key, std::string_view otherwise) const {
    const json::Value* const value = find(key);
    if (value == nullptr) return std::string(otherwise);
    MOTLEY_TRY(const std::string* text, value->as_string(place(key)));
    return *text;
  }
  Result<std::int64_t> integer(std::string_view key, std::int64_t otherwise) const {
    const json::Value* const value = find(key);
    if (value == nullptr) return otherwise;
    return value->as_integer(place(key));
  }
  Result<bool> flag(std::string_view key, bool otherwise) const {
    const json::Value* const value = find(key);
    if (value == nullptr) return otherwise;
    return value->as_boolean(place(key));
  }
  // Two lengths of a block; nothing where the object lacks them.
  Result<std::optional<std::array<std::int64_t, 2>>> block(std::string_view key) const;
};

// A setting that no reader knows.
inline Error refuse(std::string what, std::string_view key) {
  return {ErrorCode::unsupported, std::move(what), cat("quantization_config, ", key),
          "see docs/guide/supported.md for the formats that can be read"};
}
// One that makes no sense.
inline Error bad_setting(std::string what, std::string_view key, std::string fix) {
  return {ErrorCode::bad_file, std::move(what), cat("quantization_config, ", key), std::move(fix)};
}

}  // namespace motley::quant
