#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "quant/module_list.h"
#include "quant/scheme.h"

namespace motley::quant {

// What a checkpoint's config.json says about how its weights are stored. Reading refuses, by name
// and with the reason, every method and every setting that would change the meaning of a weight and
// that no reader here knows.
class Config {
 public:
  // Modules of one scheme. Without one they are not quantised.
  struct Rule {
    ModuleList modules;
    std::optional<Scheme> scheme;
  };
  // Of several rules that match a module:
  enum class Order : std::uint8_t {
    best_match,  // the one with the least match (ModuleList::Match), of equal ones the last
    first,
  };

  // Nothing is quantised.
  Config() = default;
  // `method` as the file names it. Ignored modules are not quantised, whatever rules say.
  Config(std::string method, std::vector<Rule> rules, ModuleList ignored = {},
         Order order = Order::best_match)
      : method_(std::move(method)),
        rules_(std::move(rules)),
        ignored_(std::move(ignored)),
        order_(order) {}

  // The whole of config.json; one without a quantization_config gives Config().
  static Result<Config> read(const json::Object& config);
  // The same; where config.json has none, what older tools wrote beside it counts.
  static Result<Config> read(const json::Object& config, const std::filesystem::path& folder);

  // "none", "compressed-tensors", "gptq" ...
  std::string_view method() const { return method_; }

  // The scheme that a module's weight should have; nothing where the configuration leaves it plain.
  std::optional<Scheme> scheme_of(std::string_view module) const;

  // Activations stay as they are, whatever the file says of them.
  void keep_inputs_exact();
  // Whether a scheme rounds inputs.
  bool rounds_inputs() const;
  // What the log and `inspect` say of it beside the formats; may be empty.
  const std::vector<std::string>& remarks() const { return remarks_; }
  void add_remark(std::string text) { remarks_.push_back(std::move(text)); }

 private:
  std::string method_ = "none";
  std::vector<Rule> rules_;
  ModuleList ignored_;
  Order order_ = Order::best_match;
  std::vector<std::string> remarks_;
};

}  // namespace motley::quant
