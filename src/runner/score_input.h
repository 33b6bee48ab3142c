#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "lora/scaled_adapter.h"

namespace motley::runner {

// A line of `motley score --input`: tokens to score, given as ids or as a prompt, with no adapter,
// one, or several.
struct ScoreLine {
  std::vector<std::int32_t> tokens;
  std::vector<lora::ScaledAdapter> adapters;
  // As given in the line, for the output: null, a name, or a list.
  json::Value adapter_field;
  bool several = false;
  // A reference to compare with, entry i for token i; the first is null.
  std::optional<std::vector<double>> reference;
};

// Names and limits that lines may refer to.
struct ScoreKnown {
  std::int64_t vocabulary = 0;
  std::vector<std::string> adapters;
  // Encodes a prompt; called only for lines that have one.
  std::function<Result<std::vector<std::int32_t>>(std::string_view)> encode;
};

// Checks every line before any work; the error names the first bad one by its number. "-" is
// standard input.
Result<std::vector<ScoreLine>> read_score_lines(const std::filesystem::path& path,
                                                const ScoreKnown& known);

// The same from text; `where` names it in messages.
Result<std::vector<ScoreLine>> parse_score_lines(std::string_view text, std::string_view where,
                                                 const ScoreKnown& known);

}  // namespace motley::runner
