#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "quant/weight.h"

namespace motley::quant {

// What a checkpoint's config.json says about how its weights are stored. Reading refuses, by name
// and with the reason, every method and every setting that would change the meaning of a weight and
// that no decoder here knows.
class Config {
 public:
  enum class Method : std::uint8_t { none, compressed_tensors, fp8 };

  // Nothing is quantised.
  Config() = default;

  // The whole of config.json; one without a quantization_config gives Config().
  static Result<Config> read(const json::Object& config);

  Method method() const { return method_; }

  // The format that a module's weight should have; nothing where the configuration leaves it plain.
  // For fp8 the tensors themselves decide, and this is what a quantised one has.
  std::optional<Format> format_of(std::string_view module) const;

  // "compressed-tensors", "fp8"
  std::string_view method_name() const;

 private:
  // Compiled patterns are shared: a Config is copied freely.
  class Matcher;
  struct Group {
    std::shared_ptr<const Matcher> targets;
    Format format;
  };

  static Result<Config> read_compressed_tensors(const json::Object& quantization);
  static Result<Config> read_fp8(const json::Object& quantization);

  Method method_ = Method::none;
  std::vector<Group> groups_;
  std::shared_ptr<const Matcher> ignore_;
};

}  // namespace motley::quant
