#pragma once

#include <cstdint>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "server/api/fields/generation_fields.h"

namespace motley::server {

// The body of POST /inference/v1/generate: vLLM's tokens in, tokens out.
struct GenerateRequest {
  GenerationFields fields;
  std::vector<std::int32_t> tokens;
  bool with_text = false;  // in choices, and as the names of tokens
};

// `sampling_params` has the fields of completions. What it leaves out is neutral, whatever the
// model's generation_config.json says.
Result<GenerateRequest> read_generate_request(const json::Value& body, const ApiContext& context);

}  // namespace motley::server
