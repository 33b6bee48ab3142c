#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace motley::server {

// A call that a model wrote.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, an object

  bool operator==(const ToolCall&) const = default;
};

// How a model writes calls between <tool_call> and </tool_call>.
enum class CallSyntax : std::uint8_t {
  json,        // {"name": NAME, "arguments": {...}}: Qwen3, Hermes
  arg_tags,    // NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> ...: GLM
  parameters,  // <function=NAME> <parameter=KEY> VALUE </parameter> ... </function>: Qwen3-Coder
};

// Which parameters of which functions are strings, so that "5" stays one: in forms that write
// values without quotes, only the tools' schemas tell.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  // From the `tools` of a request.
  explicit ToolSchemas(const json::Value& tools);

  bool is_string(const std::string& function, const std::string& parameter) const;

 private:
  std::set<std::pair<std::string, std::string>> strings_;
};

// The call that stands between the tags; nothing where it is not well-formed.
std::optional<ToolCall> parse_tool_call(std::string_view text, CallSyntax syntax,
                                        const ToolSchemas& schemas);

// Calls of an output that a schema has shaped: [{"name", "parameters"}, ...].
std::optional<std::vector<ToolCall>> parse_call_list(std::string_view text);

}  // namespace motley::server
