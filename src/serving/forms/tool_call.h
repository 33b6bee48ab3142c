#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::serving {

// A call that a model wrote.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, an object

  bool operator==(const ToolCall&) const = default;
};

// Parses {"name": NAME, "arguments": {...}}, or with "parameters"; nothing if it is malformed.
std::optional<ToolCall> parse_json_call(std::string_view text);

// The begin of such a call, up to the brace of its arguments.
struct JsonCallHead {
  std::string name;
  std::size_t bytes = 0;  // before the brace
};
// Nothing if the name does not come first, or if more text is needed.
std::optional<JsonCallHead> read_json_call_head(std::string_view text);

// Whether a text that begins with a brace may become such a call, by its first key.
bool may_be_json_call(std::string_view text);

// Finds the closing brace of a JSON object in text that arrives in pieces. The first byte is the
// opening brace, or is inside of `depth` open ones.
class JsonExtent {
 public:
  enum class Quotes : std::uint8_t { json, python };  // with python ' is a quote, too

  explicit JsonExtent(std::int64_t depth = 0, Quotes quotes = Quotes::json)
      : depth_(depth), quotes_(quotes) {}

  // How many bytes of `text` belong to the object: all, or those up to its end.
  std::size_t take(std::string_view text);
  bool ended() const { return ended_; }
  // Whether the next byte begins a mark inside the object.
  bool broken() const { return broken_; }
  // The brackets that would close it here.
  std::string closing() const { return {open_.rbegin(), open_.rend()}; }

 private:
  std::int64_t depth_;
  std::string open_;  // the closing bracket of each open one
  Quotes quotes_;
  char quote_ = 0;  // of the open string
  bool escaped_ = false;
  bool ended_ = false;
  bool broken_ = false;
};

}  // namespace motley::serving
