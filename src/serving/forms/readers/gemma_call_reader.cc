#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "serving/forms/readers/argument_value.h"
#include "serving/forms/readers/call_reader.h"
#include "serving/forms/readers/json_arguments.h"
#include "serving/forms/readers/python_literal.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {
namespace {

using Progress = CallReader::Progress;

constexpr std::string_view prefix = "call:";
constexpr std::string_view string_mark = "<|\"|>";
constexpr std::size_t deepest = 64;

// call:NAME{KEY:VALUE,...}: JSON with unquoted keys, and marks around strings.
class GemmaReader final : public SteppedCallReader {
 public:
  explicit GemmaReader(const CallContext& context) : context_(context) {}

 private:
  Progress step(std::string& held, bool last, ParsedOutput& output) override {
    switch (at_) {
      case At::head:
        return read_head(held, last, output);
      case At::item:
        return read_item(held, last, output);
      case At::value:
        return read_value(held, last, output);
      case At::string:
        return read_string(held, last, output);
    }
    MOTLEY_CHECK(false, "a state that reads nothing");
  }

  enum class At : std::uint8_t { head, item, value, string };

  struct Open {
    char closing = '}';
    bool first = true;
  };

  Progress move_to(At at) {
    at_ = at;
    return moved_on();
  }

  void open(std::string& held, ParsedOutput& output) {
    output.add_arguments(std::string_view(held).substr(0, 1));
    open_.push_back({.closing = held.front() == '{' ? '}' : ']'});
    held.erase(0, 1);
  }

  Progress read_head(std::string& held, bool last, ParsedOutput& output) {
    const std::string_view text = std::string_view(held).substr(prefix.size());
    const std::size_t bytes = leading_name(text);
    const std::string_view rest = text.substr(bytes);
    const std::size_t spaces = leading_space(rest);
    if (spaces == rest.size()) return last ? Progress::none : Progress::more;
    const std::string_view name = text.substr(0, bytes);
    if (rest[spaces] != '{' || !context_.accepts(name)) return Progress::none;
    name_ = name;
    output.begin_call(name_);
    held.erase(0, prefix.size() + bytes + spaces);
    open(held, output);
    return move_to(At::item);
  }

  // A key, an element, or a closing bracket.
  Progress read_item(std::string& held, bool last, ParsedOutput& output) {
    held.erase(0, std::min(held.find_first_not_of(" \t\r\n,"), held.size()));
    if (held.empty()) return last ? Progress::done : Progress::more;
    Open& open = open_.back();
    if (held.front() == '}' || held.front() == ']') {
      output.add_arguments(std::string_view(&open.closing, 1));
      held.erase(0, 1);
      open_.pop_back();
      return open_.empty() ? Progress::done : move_to(At::item);
    }
    const Begins end = begins_with(held, context_.form.end, last);
    if (end == Begins::perhaps) return Progress::more;
    if (end == Begins::yes) return close_all(output);
    if (open.closing == ']') {
      output.add_arguments(std::exchange(open.first, false) ? "" : ",");
      types_.reset();
      return move_to(At::value);
    }
    const std::size_t colon = held.find(':');
    const std::size_t closing = held.find(context_.form.end);
    if (closing < colon) {
      stray_ += held.substr(0, closing);
      held.erase(0, closing);
      return close_all(output);
    }
    if (colon == std::string::npos) {
      if (!last) return Progress::more;
      stray_ += std::exchange(held, {});
      return Progress::done;
    }
    std::string_view key = trimmed(std::string_view(held).substr(0, colon));
    for (const std::string_view mark :
         {string_mark, std::string_view("\""), std::string_view("'")}) {
      if (!key.starts_with(mark) || !key.ends_with(mark) || key.size() < 2 * mark.size()) continue;
      key = key.substr(mark.size(), key.size() - 2 * mark.size());
    }
    output.add_arguments(
        cat(std::exchange(open.first, false) ? "" : ",", json::string_literal(key), ":"));
    types_ = open_.size() == 1 ? context_.tools.types_of(name_, key) : std::nullopt;
    held.erase(0, colon + 1);
    return move_to(At::value);
  }

  Progress read_value(std::string& held, bool last, ParsedOutput& output) {
    held.erase(0, leading_space(held));
    if (held.empty()) return last ? Progress::done : Progress::more;
    const Begins quoted = begins_with(held, string_mark, last);
    if (quoted == Begins::perhaps) return Progress::more;
    if (quoted == Begins::yes) return begin_string(held, output);
    if (held.front() == '"' || held.front() == '\'') return read_quoted(held, last, output);
    if ((held.front() == '{' || held.front() == '[') && open_.size() < deepest) {
      open(held, output);
      return move_to(At::item);
    }
    std::size_t end = std::min(held.find_first_of(",}]\n"), held.find(context_.form.end));
    if (end == std::string::npos && !last) return Progress::more;
    const std::string_view text = trimmed(std::string_view(held).substr(0, end));
    // An unquoted word is no string.
    const bool is_null = text == "null" || text == "None";
    if (end == std::string::npos)
      output.add_arguments(text);
    else
      output.add_arguments(is_null ? "null" : argument_json(text, types_));
    held.erase(0, std::min(end, held.size()));
    return end == std::string::npos ? Progress::done : move_to(At::item);
  }

  // A string in quotes, as in JSON or Python.
  Progress read_quoted(std::string& held, bool last, ParsedOutput& output) {
    std::size_t end = 1;
    while (end < held.size() && held[end] != held.front()) end += held[end] == '\\' ? 2 : 1;
    const std::size_t mark = held.find(context_.form.end);
    if (end >= held.size() && mark == std::string::npos) {
      if (!last) return Progress::more;
      add_unclosed(held, output);
      held.clear();
      return Progress::done;
    }
    end = std::min(end + 1, mark);
    const std::string_view text = std::string_view(held).substr(0, end);
    const auto literal = python_literal_to_json(text);
    output.add_arguments(literal ? *literal : argument_json(text, JsonType::string));
    held.erase(0, end);
    return move_to(At::item);
  }

  // An incomplete quoted string, as the begin of JSON's.
  static void add_unclosed(std::string_view text, ParsedOutput& output) {
    if (const auto literal = python_literal_to_json(cat(text, text.front()))) {
      output.add_arguments(std::string_view(*literal).substr(0, literal->size() - 1));
    } else {
      output.add_arguments("\"");
      add_escaped(text.substr(1), output);
    }
  }

  // The calls end, and everything open is closed.
  Progress close_all(ParsedOutput& output) {
    for (; !open_.empty(); open_.pop_back())
      output.add_arguments(std::string_view(&open_.back().closing, 1));
    return Progress::done;
  }

  Progress begin_string(std::string& held, ParsedOutput& output) {
    held.erase(0, string_mark.size());
    output.add_arguments("\"");
    return move_to(At::string);
  }

  Progress read_string(std::string& held, bool last, ParsedOutput& output) {
    const std::size_t own = held.find(string_mark);
    const std::size_t end = std::min(own, held.find(context_.form.end));
    std::size_t certain = end;
    if (end == std::string::npos) {
      const std::size_t begun =
          std::max(begun_tag(held, string_mark), begun_tag(held, context_.form.end));
      certain = last ? held.size() : held.size() - begun;
      certain -= utf8::incomplete_tail(std::string_view(held).substr(0, certain));
    }
    add_escaped(std::string_view(held).substr(0, certain), output);
    held.erase(0, certain);
    if (end == std::string::npos) return last ? Progress::done : Progress::more;
    if (end == own) held.erase(0, string_mark.size());
    output.add_arguments("\"");
    return move_to(At::item);
  }

  CallContext context_;
  At at_ = At::head;
  std::string name_;
  std::vector<Open> open_;
  std::optional<JsonTypes> types_;
};

}  // namespace

std::unique_ptr<CallReader> make_gemma_reader(const CallContext& context) {
  return std::make_unique<GemmaReader>(context);
}

}  // namespace motley::serving
