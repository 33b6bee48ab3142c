#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

// What a model's makers want for requests that do not say it themselves, and where answers end.
namespace motley::text {

struct GenerationConfig {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  // Ids that end an answer, ascending: the union of what generation_config.json and config.json
  // say.
  std::vector<std::int32_t> end_tokens;
  // Ids below it are the model's, as config.json says; nothing where it doesn't.
  std::optional<std::int64_t> vocabulary;

  void add_end_token(std::int32_t id);
  // Takes out, and returns, the end tokens that the model can't say.
  std::vector<std::int32_t> drop_unknown_end_tokens();
};

// From a model's folder; a file that is absent sets nothing.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder);

// Reads one object of either file into `into`; `where` is what messages call it. Settings that are
// no sampling defaults, such as lengths, are left alone.
Result<void> read_generation_config(const json::Value& value, std::string_view where,
                                    GenerationConfig& into);
Result<void> read_end_tokens(const json::Value& value, std::string_view where,
                             GenerationConfig& into);

}  // namespace motley::text
