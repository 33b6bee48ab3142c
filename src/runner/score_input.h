#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace motley::runner {

// One adapter of a line and how much of it.
struct ScaledAdapter {
  std::string name;
  double scale = 1.0;

  friend bool operator==(const ScaledAdapter&, const ScaledAdapter&) = default;
};

// A line of `motley score --input`: tokens to score, with no adapter, one, or several.
struct ScoreLine {
  std::vector<std::int32_t> tokens;
  std::vector<ScaledAdapter> adapters;
  // How the line said it, for the output: null, a name, or a list.
  json::Value adapter_field;
  bool several = false;
  // A reference to compare with, entry i for token i; the first is null.
  std::optional<std::vector<double>> reference;
};

// Every line is checked before any work: the error names the first bad one by its number.
Result<std::vector<ScoreLine>> read_score_lines(const std::filesystem::path& path,
                                                std::int64_t vocabulary,
                                                const std::vector<std::string>& adapters);

// The same from text; `where` is what messages call it.
Result<std::vector<ScoreLine>> parse_score_lines(std::string_view text, std::string_view where,
                                                 std::int64_t vocabulary,
                                                 const std::vector<std::string>& adapters);

}  // namespace motley::runner
