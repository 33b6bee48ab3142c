#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "server/api/fields.h"
#include "text/generation_config.h"

// The fields that completions and chat completions share.
namespace motley::server {

// What requests may refer to.
struct ApiContext {
  std::string base;  // the id of the base model
  std::int64_t vocabulary = 0;
  const text::GenerationConfig* defaults = nullptr;
};

struct GenerationFields {
  std::string model;  // as the client wrote it
  std::vector<engine::ScaledAdapter> adapters = {};
  engine::SamplingParams sampling = {};
  std::string_view grammar_field = {};  // that sampling.grammar comes from
  std::optional<std::int64_t> max_tokens = {};
  int choices = 1;
  int priority = 0;
  std::vector<std::string> stop = {};
  bool include_stop = false;  // in the text
  std::vector<std::int32_t> stop_ids = {};
  bool stream = false;
  bool include_usage = false;
};

// Whether it is one of the names that adapters may have: letters, digits, '.', '_', '/' and '-', 1
// to 200 of them.
bool is_adapter_name(std::string_view name);

// The adapter that BASE:ADAPTER or ADAPTER names.
std::string_view adapter_part(std::string_view model, std::string_view base);

// Takes all of them; whether named adapters exist is the engine's to say.
Result<GenerationFields> read_generation_fields(Fields& fields, const ApiContext& context);

}  // namespace motley::server
