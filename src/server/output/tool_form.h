#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace motley::server {

// How a model writes one call.
enum class CallBody : std::uint8_t {
  json,     // {"name": NAME, "arguments": {...}}
  named,    // NAME, then a mark, then {...}
  pairs,    // NAME, then each argument's key and value between marks
  python,   // NAME(KEY=VALUE, ...)
  gemma,    // call:NAME{KEY:VALUE, ...}
  harmony,  // gpt-oss: a message to a function (HarmonyParser)
};

// What stands around names, keys and values where a form writes values without quotes.
struct PairMarks {
  std::string_view before_name;
  std::string_view behind_name;  // empty: what comes next ends the name
  std::string_view before_key;
  std::string_view behind_key;
  std::string_view before_value;  // empty: the value begins behind the key
  std::string_view behind_value;
  std::string_view close = {};  // behind the last argument
  bool lines = false;           // a line end on either side of a value belongs to the form
};

// Ids of calls, which templates write back.
enum class CallIds : std::uint8_t {
  any,
  nine_characters,  // letters and digits, or the template refuses them
  as_written,       // the model numbers its calls
};

// How a family of models writes calls: marks around all of them, marks around each, and what stands
// between. Any of the marks may be missing in what a model really writes.
struct ToolForm {
  std::string_view name;  // for --tool-form
  CallBody body = CallBody::json;
  std::string_view begin = {};
  std::string_view end = {};
  // What some models write instead.
  std::string_view other_begin = {};
  std::string_view other_end = {};
  std::string_view call_begin = {};
  std::string_view call_end = {};
  const PairMarks* pairs = nullptr;
  // Between the parts of what stands before the arguments of a named call.
  std::array<std::string_view, 2> separators = {};
  // `pairs` begin a call without the marks before them.
  bool bare = false;
  // A call may begin a line without any mark, if it is one of a function that the request names.
  bool starts_lines = false;
  // Anything between the marks could be a name: only those of the request's functions are.
  bool known_names = false;
  CallIds ids = CallIds::any;

  // All that is not empty.
  std::vector<std::string_view> marks() const;
  // Behind which an answer of one call is whole; empty where a form has no such mark.
  std::string_view mark_behind_call() const { return call_end.empty() ? end : call_end; }
};

// In the order in which templates are compared with them.
std::span<const ToolForm> tool_forms();
// Null where there is none.
const ToolForm* find_tool_form(std::string_view name);

// How a family of models marks its reasoning, and the answer behind it.
struct ReasoningForm {
  std::string_view name;  // for --reasoning-form
  std::string_view begin;
  std::string_view end;
  // Around the answer, behind the reasoning; may be empty.
  std::string_view answer_begin = {};
  std::string_view answer_end = {};

  std::vector<std::string_view> marks() const;
};

std::span<const ReasoningForm> reasoning_forms();
const ReasoningForm* find_reasoning_form(std::string_view name);

}  // namespace motley::server
