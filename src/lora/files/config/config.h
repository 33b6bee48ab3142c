#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lora/files/config/pattern_list.h"
#include "lora/files/config/targets.h"
#include "lora/files/load.h"

namespace motley::lora {

// The parts of adapter_config.json that matter for inference. The file's tensors decide which
// modules are adapted; `targets` is used to detect missing ones.
struct Config {
  enum class Bias : std::uint8_t { none, all, lora_only };

  std::int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;
  // In the order of the file: the first match wins.
  PatternMap<std::int64_t> rank_pattern;
  PatternMap<double> alpha_pattern;
  Targets targets;
  std::vector<std::string> target_parameters;
  std::vector<std::string> modules_to_save;
  Bias bias = Bias::none;
  bool lora_bias = false;
  bool dora = false;
  bool ties_weights = false;                 // ensure_weight_tying
  BColumns b_columns = BColumns::automatic;  // Unsloth's marker
  // Shared by all patterns of a load; null if there are none.
  std::shared_ptr<text::MatchBudget> budget;
  std::string peft_version;  // empty where the file has none

  std::int64_t rank_of(std::string_view module) const;
  // An error if matching the patterns has exceeded the budget; their answers are then meaningless.
  Result<void> within_budget() const;
  // alpha / r, or alpha / sqrt(r), of a module.
  float scale_of(std::string_view module) const;
};

// Whether a list of targets names a module: by its whole name, or by its end after a dot.
bool names_module(const std::vector<std::string>& targets, std::string_view module);

// `where` names the text in messages. Kinds of adapters that motley does not support are refused
// here as `unsupported`.
Result<Config> parse_adapter_config(std::string_view text, std::string_view where);

}  // namespace motley::lora
