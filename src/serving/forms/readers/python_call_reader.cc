#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/json/json.h"
#include "serving/forms/readers/argument_value.h"
#include "serving/forms/readers/call_reader.h"
#include "serving/forms/readers/python_literal.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {
namespace {

using Progress = CallReader::Progress;

constexpr std::size_t longest_name = 256;

bool is_identifier_byte(char byte) { return is_name_byte(byte) && byte != ':' && byte != '/'; }

std::size_t leading_identifier(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, is_identifier_byte) -
                                  text.begin());
}

// NAME(KEY=VALUE, ...), with Python's literals or JSON's as values.
class PythonReader final : public SteppedCallReader {
 public:
  explicit PythonReader(const CallContext& context) : context_(context) {}

 private:
  Progress step(std::string& held, bool last, ParsedOutput& output) override {
    switch (at_) {
      case At::head:
        return read_head(held, last, output);
      case At::key:
        return read_key(held, last, output);
      case At::value:
        return read_value(held, last, output);
    }
    MOTLEY_CHECK(false, "a state that reads nothing");
  }

  enum class At : std::uint8_t { head, key, value };

  Progress move_to(At at) {
    at_ = at;
    return moved_on();
  }

  // The length of KEY= at the front of a text. Zero if there is none; nothing if that is not known
  // yet.
  static std::optional<std::size_t> key_at(std::string_view text, bool last, std::string& key) {
    const std::size_t bytes = leading_identifier(text);
    const std::size_t spaces = leading_space(text.substr(bytes));
    const std::size_t at = bytes + spaces;
    // The next byte distinguishes it from a comparison.
    if (at + 1 >= text.size() && !last) return std::nullopt;
    if (bytes == 0 || at >= text.size() || text[at] != '=' || text.substr(at).starts_with("=="))
      return 0;
    key = text.substr(0, bytes);
    return at + 1;
  }

  Progress read_head(std::string& held, bool last, ParsedOutput& output) {
    const Progress otherwise = last ? Progress::none : Progress::more;
    const std::size_t bytes = leading_identifier(held);
    if (bytes > longest_name) return Progress::none;
    if (bytes == held.size()) return otherwise;
    const std::string name = held.substr(0, bytes);
    if (held[bytes] != '(' || !context_.accepts(name) || !is_plausible_name(name))
      return Progress::none;
    const std::size_t begin = bytes + 1;
    const std::size_t first = begin + leading_space(std::string_view(held).substr(begin));
    if (first == held.size()) return otherwise;
    std::string key;
    if (held[first] != ')') {
      const auto taken = key_at(std::string_view(held).substr(first), last, key);
      if (!taken) return Progress::more;
      if (*taken == 0) return Progress::none;
    }
    name_ = name;
    output.begin_call(name_);
    output.add_arguments("{");
    held.erase(0, first);
    return move_to(At::key);
  }

  Progress read_key(std::string& held, bool last, ParsedOutput& output) {
    held.erase(0, std::min(held.find_first_not_of(" \t\r\n,"), held.size()));
    if (held.empty()) return last ? Progress::done : Progress::more;
    const char next = held.front();
    if (next == ')' || next == ']' || next == '}' || next == '<') {
      if (next == ')') held.erase(0, 1);
      output.add_arguments("}");
      return Progress::done;
    }
    std::string key;
    const auto taken = key_at(held, last, key);
    if (!taken) return Progress::more;
    if (*taken == 0) return read_stray(held, last);
    types_ = context_.tools.types_of(name_, key);
    output.add_arguments(std::exchange(first_, false) ? "" : ",");
    output.add_arguments(json::string_literal(key) + ":");
    held.erase(0, *taken);
    scanned_ = mark_searched_ = 0;
    extent_ = {};
    return move_to(At::value);
  }

  // Text that is no argument belongs to the answer.
  Progress read_stray(std::string& held, bool last) {
    const std::size_t end = held.find_first_of(",)", 1);
    if (end == std::string::npos && !last) return Progress::more;
    stray_ += held.substr(0, end);
    held.erase(0, std::min(end, held.size()));
    return last && held.empty() ? Progress::done : move_to(At::key);
  }

  Progress read_value(std::string& held, bool last, ParsedOutput& output) {
    scanned_ += extent_.take(std::string_view(held).substr(scanned_));
    const std::size_t end = context_.form.end.empty()
                                ? std::string::npos
                                : held.find(context_.form.end, mark_searched_);
    if (end < scanned_ || (end != std::string::npos && !extent_.ended()))
      return end_at(held, end, output);
    mark_searched_ = held.size() - std::min(held.size(), context_.form.end.size());
    if (!extent_.ended() && !last) return Progress::more;
    const std::string_view text = trimmed(std::string_view(held).substr(0, scanned_));
    if (!extent_.ended()) {
      // An incomplete value might have become another one.
      output.add_arguments(text);
      held.clear();
      return Progress::done;
    }
    output.add_arguments(value_json(text));
    held.erase(0, scanned_);
    return move_to(At::key);
  }

  // An unclosed string ends with the calls.
  Progress end_at(std::string& held, std::size_t end, ParsedOutput& output) {
    std::string_view text = std::string_view(held).substr(0, end);
    text = text.substr(0, text.find_last_not_of(" \t\r\n)]") + 1);
    output.add_arguments(value_json(text));
    output.add_arguments("}");
    held.erase(0, end);
    return Progress::done;
  }

  std::string value_json(std::string_view text) const {
    if (const auto literal = python_literal_to_json(text)) return *literal;
    // Whether it contains unescaped quotes.
    const bool quoted = text.size() > 1 && (text.front() == '"' || text.front() == '\'');
    if (!quoted) return argument_json(text, types_);
    const bool closed = text.back() == text.front();
    return json::string_literal(text.substr(1, text.size() - (closed ? 2 : 1)));
  }

  CallContext context_;
  At at_ = At::head;
  std::string name_;
  bool first_ = true;
  std::optional<JsonTypes> types_;
  LiteralExtent extent_;
  std::size_t scanned_ = 0;
  std::size_t mark_searched_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> make_python_reader(const CallContext& context) {
  return std::make_unique<PythonReader>(context);
}

}  // namespace motley::serving
