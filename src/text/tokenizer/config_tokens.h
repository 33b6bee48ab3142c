#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::text {

// The added_tokens of a tokenizer.json (null: it has none) with what added_tokens_decoder of the
// tokenizer_config.json beside it says: it decides how a token is looked for, and may add more.
Result<json::Value> with_config_tokens(const json::Value* added_tokens, const json::Value& config,
                                       std::string_view where);

}  // namespace motley::text
