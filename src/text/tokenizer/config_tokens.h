#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::text {

// Merges added_tokens_decoder of tokenizer_config.json into added_tokens of tokenizer.json (null:
// it has none): it overrides how a token is found, and may add tokens.
Result<json::Value> with_config_tokens(const json::Value* added_tokens, const json::Value& config,
                                       std::string_view where);

}  // namespace motley::text
