#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "server/api/fields/generation_fields.h"
#include "text/tokenizer.h"

namespace motley::server {

// The body of POST /v1/completions.
struct CompletionRequest {
  struct Prompt {
    std::vector<std::int32_t> tokens;
    std::string text;      // set if it is echoed
    bool decoded = false;  // the text is made of the tokens, without special ones
  };

  GenerationFields fields;
  std::vector<Prompt> prompts;
  bool echo = false;
};

// Prompts are texts or ids, one or a list of them; texts are tokenised with the model's
// post-processor.
Result<CompletionRequest> read_completion_request(const json::Value& body,
                                                  const ApiContext& context,
                                                  const text::Tokenizer& tokenizer);

}  // namespace motley::server
