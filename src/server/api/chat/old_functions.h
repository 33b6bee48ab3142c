#pragma once

#include <optional>

#include "base/json/json.h"
#include "server/api/fields/fields.h"

// OpenAI's first form of tools: `functions` and `function_call`.
namespace motley::server {

// The same as `tools` and `tool_choice`. Without functions there is none of either.
struct OldFunctions {
  std::optional<json::Value> tools;
  std::optional<json::Value> choice;
};
Result<OldFunctions> read_old_functions(Fields& fields);

// Messages with a `function_call`, and those of role "function", as templates know them: with
// `tool_calls`, and of role "tool". Other messages stay as they are.
void modernize_messages(json::Value& messages);

}  // namespace motley::server
