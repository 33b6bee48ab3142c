#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

// The model's defaults for sampling settings, and the tokens that end its answers.
namespace motley::text {

struct GenerationConfig {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  // Ids that end an answer, ascending: those of generation_config.json and of config.json.
  std::vector<std::int32_t> end_tokens;
  // The vocabulary size of config.json; nothing if it has none.
  std::optional<std::int64_t> vocabulary;

  void add_end_token(std::int32_t id);
  // Removes, and returns, end tokens outside of the vocabulary.
  std::vector<std::int32_t> drop_unknown_end_tokens();
};

// From a model's folder; an absent file sets nothing.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder);

// Reads the object of either file into `into`; `where` names it in messages. Other settings, such
// as lengths, are ignored.
Result<void> read_generation_config(const json::Value& value, std::string_view where,
                                    GenerationConfig& into);
Result<void> read_end_tokens(const json::Value& value, std::string_view where,
                             GenerationConfig& into);

}  // namespace motley::text
