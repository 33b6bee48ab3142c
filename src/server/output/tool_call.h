#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

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

// {"name": NAME, "arguments": {...}}, or with "parameters"; nothing where it is not well-formed.
std::optional<ToolCall> parse_json_call(std::string_view text);

// The beginning of such a call, up to the brace that opens its arguments.
struct JsonCallHead {
  std::string name;
  std::size_t bytes = 0;  // before the brace
};
// Nothing where the name does not come first, or more must come before all that is there.
std::optional<JsonCallHead> read_json_call_head(std::string_view text);

// Follows the text of a JSON object from its opening brace to the closing one, whatever stands in
// between.
class JsonExtent {
 public:
  // How many bytes of `text` belong to it: all, or those up to its end.
  std::size_t take(std::string_view text);
  bool ended() const { return ended_; }

 private:
  std::int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool ended_ = false;
};

}  // namespace motley::server
