#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::server {

// A call that a model wrote.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, an object

  bool operator==(const ToolCall&) const = default;
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

// Whether a text that begins with a brace may become such a call, by its first key.
bool may_be_json_call(std::string_view text);

// Follows the text of a JSON object to its closing brace, whatever stands in between. The first
// byte that it takes is the opening one, or stands inside `depth` open ones.
class JsonExtent {
 public:
  enum class Quotes : std::uint8_t { json, python };  // those of Python are ' too

  explicit JsonExtent(std::int64_t depth = 0, Quotes quotes = Quotes::json)
      : depth_(depth), quotes_(quotes) {}

  // How many bytes of `text` belong to it: all, or those up to its end.
  std::size_t take(std::string_view text);
  bool ended() const { return ended_; }
  // The next byte would be the beginning of a mark, where the object goes on.
  bool broken() const { return broken_; }
  // What would end it here.
  std::string closing() const { return {open_.rbegin(), open_.rend()}; }

 private:
  std::int64_t depth_;
  std::string open_;  // what closes each of them
  Quotes quotes_;
  char quote_ = 0;  // of the string that is open
  bool escaped_ = false;
  bool ended_ = false;
  bool broken_ = false;
};

}  // namespace motley::server
