#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace motley::serving {

// How a model writes one call.
enum class CallBody : std::uint8_t {
  json,     // {"name": NAME, "arguments": {...}}
  named,    // NAME, then a mark, then {...}
  pairs,    // NAME, then each argument's key and value between marks
  python,   // NAME(KEY=VALUE, ...)
  gemma,    // call:NAME{KEY:VALUE, ...}
  harmony,  // gpt-oss: a message to a function (HarmonyParser)
};

// The marks around names, keys and values in forms with unquoted values.
struct PairMarks {
  std::string_view before_name;
  std::string_view after_name;  // empty: the next mark ends the name
  std::string_view before_key;
  std::string_view after_key;
  std::string_view before_value;  // empty: the value follows the key directly
  std::string_view after_value;
  std::string_view close = {};  // after the last argument
  bool lines = false;           // a line end before and after a value belongs to the form
};

// How calls are identified when templates write them back.
enum class CallIds : std::uint8_t {
  any,
  nine_characters,  // letters and digits; the template refuses others
  as_written,       // the model numbers its calls
};

// How a family of models writes calls: marks around all of them, marks around each, and separators.
// A model's output may lack any of the marks.
struct ToolForm {
  std::string_view name;  // for --tool-form
  CallBody body = CallBody::json;
  std::string_view begin = {};
  std::string_view end = {};
  // An alternative that some models write.
  std::string_view other_begin = {};
  std::string_view other_end = {};
  std::string_view call_begin = {};
  std::string_view call_end = {};
  const PairMarks* pairs = nullptr;
  // Between the parts before the arguments of a named call.
  std::array<std::string_view, 2> separators = {};
  // `pairs` begin a call even without the marks before them.
  bool bare = false;
  // A call may begin a line without any mark, if it calls a function that the request names.
  bool starts_lines = false;
  // Any text between the marks could be a name, so only names of the request's functions count.
  bool known_names = false;
  CallIds ids = CallIds::any;

  // All that are not empty.
  std::vector<std::string_view> marks() const;
  // The mark after which an answer of one call is complete; may be empty.
  std::string_view mark_after_call() const { return call_end.empty() ? end : call_end; }
};

// In the order in which templates are compared with them.
std::span<const ToolForm> tool_forms();
// Null if there is none.
const ToolForm* find_tool_form(std::string_view name);

// How a family of models marks its reasoning, and the answer after it.
struct ReasoningForm {
  std::string_view name;  // for --reasoning-form
  std::string_view begin;
  std::string_view end;
  // Around the answer, after the reasoning; may be empty.
  std::string_view answer_begin = {};
  std::string_view answer_end = {};

  std::vector<std::string_view> marks() const;
};

std::span<const ReasoningForm> reasoning_forms();
const ReasoningForm* find_reasoning_form(std::string_view name);

}  // namespace motley::serving
