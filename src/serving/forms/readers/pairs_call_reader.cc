#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "serving/forms/readers/argument_value.h"
#include "serving/forms/readers/call_reader.h"
#include "serving/forms/readers/json_arguments.h"
#include "serving/forms/tag_search.h"

namespace motley::serving {
namespace {

using Progress = CallReader::Progress;

constexpr std::size_t longest_word = 512;  // a name or key, including attributes of its mark

// The contents of a mark: `NAME`, `"NAME"`, or `"NAME" string="true"`.
struct MarkedWord {
  std::string name;
  std::optional<bool> is_string = {};
  std::size_t bytes = 0;  // with the end of the mark
};

// Reads the word after the begin of a mark. `after` is the end of the mark; if that is missing,
// the word ends before `next` or with the line.
std::optional<MarkedWord> read_word(std::string_view text, std::string_view after,
                                    std::string_view next = {}) {
  const std::size_t end = text.find(after);
  const std::size_t line = next.empty() ? text.find_first_of("\n<") : text.find(next);
  if (end == std::string_view::npos && line == std::string_view::npos) return std::nullopt;
  const bool closed = end <= line;
  MarkedWord word{.name = {}, .bytes = closed ? end + after.size() : line};
  std::string_view inside = trimmed(text.substr(0, closed ? end : line));
  word.name = inside;
  if (inside.starts_with('"') || inside.starts_with('\'')) {
    const std::size_t quote = inside.find(inside.front(), 1);
    if (quote == std::string_view::npos) return word;
    const std::string_view more = trimmed(inside.substr(quote + 1));
    if (more == "string=\"true\"") word.is_string = true;
    if (more == "string=\"false\"") word.is_string = false;
    if (more.empty() || word.is_string) word.name = inside.substr(1, quote - 1);
  }
  return word;
}

// NAME, then keys and values between marks. Where a mark is missing, the next one ends the part.
class PairsReader final : public SteppedCallReader {
 public:
  explicit PairsReader(const CallContext& context)
      : context_(context), marks_(*context.form.pairs) {}

 private:
  Progress step(std::string& held, bool last, ParsedOutput& output) override {
    switch (at_) {
      case At::head:
        return read_head(held, last, output);
      case At::pair:
        return read_pair(held, last, output);
      case At::value:
        return read_value(held, last, output);
      case At::object:
        return read_object(held, last, output);
      case At::close:
        return read_close(held, last);
    }
    MOTLEY_CHECK(false, "a state that reads nothing");
  }

  enum class At : std::uint8_t { head, pair, value, object, close };

  // What ends a call.
  std::array<std::string_view, 3> end_marks() const {
    return {marks_.close, context_.form.end, context_.form.call_end};
  }
  // What may follow the last argument, and is not consumed.
  std::array<std::string_view, 5> outer_marks() const {
    return {marks_.close, context_.form.end, context_.form.call_end, context_.form.begin,
            marks_.before_name};
  }

  Progress move_to(At at) {
    at_ = at;
    return moved_on();
  }

  // ------------------------------------------------------------------ before the first argument

  std::optional<MarkedWord> name_at(std::string_view text, bool last) const {
    if (!marks_.before_name.empty())
      return read_word(text.substr(marks_.before_name.size()), marks_.after_name);
    const std::size_t bytes = leading_name(text);
    if (bytes == text.size() && !last) return std::nullopt;
    return MarkedWord{.name = std::string(text.substr(0, bytes)), .bytes = bytes};
  }

  // A call is certain if its name is followed by an argument or by its end.
  Progress read_head(std::string& held, bool last, ParsedOutput& output) {
    const Progress otherwise = last ? Progress::none : Progress::more;
    auto name = name_at(held, last);
    if (!name) return held.size() > longest_word ? Progress::none : otherwise;
    if (!context_.accepts(name->name)) return Progress::none;
    if (!is_plausible_name(name->name) && !context_.tools.has(name->name)) return Progress::none;
    std::size_t at = name->bytes;
    if (!marks_.before_name.empty()) at += marks_.before_name.size();
    const std::string_view rest = std::string_view(held).substr(at);
    const std::size_t spaces = leading_space(rest);
    const std::string_view next = rest.substr(spaces);
    if (next.empty()) {
      if (!last || !marks_.before_name.empty()) return otherwise;
    } else if (const Begins key = begins_with(next, marks_.before_key, last); key != Begins::no) {
      if (key == Begins::perhaps) return Progress::more;
      const Begins value = value_follows(next, last);
      if (value != Begins::yes) return value == Begins::no ? Progress::none : Progress::more;
    } else if (const Begins end = begins_with_any(next, last); end != Begins::yes) {
      if (end == Begins::perhaps) return Progress::more;
      if (next.front() == '{' && !marks_.before_name.empty()) {
        // Its arguments as JSON.
      } else if (marks_.before_name.empty() || !follows(next)) {
        return marks_.before_name.empty() ? Progress::none : otherwise;
      }
    }
    name_ = std::move(name->name);
    output.begin_call(name_);
    if (next.starts_with('{')) {
      held.erase(0, at + spaces);
      return move_to(At::object);
    }
    output.add_arguments("{");
    held.erase(0, at);
    return move_to(At::pair);
  }

  // All arguments as one JSON object.
  Progress read_object(std::string& held, bool last, ParsedOutput& output) {
    return object_.read(held, last, output) ? move_to(At::close) : Progress::more;
  }
  Progress read_close(std::string& held, bool last) const {
    const std::size_t spaces = leading_space(held);
    const Begins close = begins_with(std::string_view(held).substr(spaces), marks_.close, last);
    if (close == Begins::perhaps) return Progress::more;
    if (close == Begins::yes) held.erase(0, spaces + marks_.close.size());
    return Progress::done;
  }

  // Whether a key is followed by a value, if values have marks, before the call ends.
  Begins value_follows(std::string_view text, bool last) const {
    if (marks_.before_value.empty()) return Begins::yes;
    const std::size_t value =
        std::min(text.find(marks_.before_value), text.find(marks_.after_value));
    std::size_t end = std::string_view::npos;
    for (const std::string_view mark : outer_marks()) {
      if (!mark.empty()) end = std::min(end, text.find(mark));
    }
    if (value < end) return Begins::yes;
    return last || end != std::string_view::npos ? Begins::no : Begins::perhaps;
  }
  // Whether an argument or the end follows, after other words.
  bool follows(std::string_view text) const {
    return text.find(marks_.before_key) != std::string_view::npos ||
           (!marks_.close.empty() && text.find(marks_.close) != std::string_view::npos);
  }
  Begins begins_with_any(std::string_view text, bool last) const {
    Begins best = Begins::no;
    for (const std::string_view mark : outer_marks())
      best = std::max(best, begins_with(text, mark, last));
    return best;
  }

  // ----------------------------------------------------------------------------- between arguments

  Progress finish(ParsedOutput& output) {
    output.add_arguments("}");
    return Progress::done;
  }

  Progress read_pair(std::string& held, bool last, ParsedOutput& output) {
    const std::size_t spaces = leading_space(held);
    spaces_ += held.substr(0, spaces);
    held.erase(0, spaces);
    if (held.empty()) return last ? finish(output) : Progress::more;
    const Begins key = begins_with(held, marks_.before_key, last);
    if (key == Begins::yes) return read_key(held, last, output);
    const Begins close = begins_with(held, marks_.close, last);
    if (close == Begins::yes) {
      held.erase(0, marks_.close.size());
      return finish(output);
    }
    const Begins end = begins_with_any(held, last);
    if (end == Begins::yes) return finish(output);
    if (key == Begins::perhaps || end == Begins::perhaps) return Progress::more;
    return read_stray(held, last, output);
  }

  // Words between arguments belong to the answer. The first of them may be a broken mark.
  Progress read_stray(std::string& held, bool last, ParsedOutput& output) {
    std::size_t end = held.find(marks_.before_key, 1);
    std::size_t begun = begun_tag(held, marks_.before_key);
    for (const std::string_view mark : outer_marks()) {
      if (mark.empty()) continue;
      end = std::min(end, held.find(mark, 1));
      begun = std::max(begun, begun_tag(held, mark));
    }
    const bool found = end != std::string::npos;
    if (!found) end = last ? held.size() : std::max<std::size_t>(1, held.size() - begun);
    if (!stray_.empty()) stray_ += spaces_;
    spaces_.clear();
    stray_ += held.substr(0, end);
    held.erase(0, end);
    if (found) return move_to(At::pair);
    return last ? finish(output) : Progress::more;
  }

  Progress read_key(std::string& held, bool last, ParsedOutput& output) {
    const std::string_view after = std::string_view(held).substr(marks_.before_key.size());
    auto key = read_word(after, marks_.after_key, marks_.before_value);
    if (!key && !last && after.size() <= longest_word) return Progress::more;
    if (!key || key->name.empty()) return read_stray(held, last, output);
    std::size_t at = marks_.before_key.size() + key->bytes;
    if (!marks_.before_value.empty()) {
      const std::size_t spaces = leading_space(std::string_view(held).substr(at));
      const std::string_view rest = std::string_view(held).substr(at + spaces);
      const Begins begins = begins_with(rest, marks_.before_value, last);
      if (begins == Begins::perhaps) return Progress::more;
      // If the mark is missing, the form's white space is removed nevertheless.
      at += spaces + (begins == Begins::yes ? marks_.before_value.size() : 0);
    }
    types_ = context_.tools.types_of(name_, key->name);
    if (key->is_string) types_ = marked_types(*key->is_string, types_);
    is_string_ = types_ && types_->allows(JsonType::string);
    output.add_arguments(std::exchange(first_, false) ? "\"" : ",\"");
    add_escaped(key->name, output);
    output.add_arguments(is_string_ ? "\":\"" : "\":");
    held.erase(0, at);
    value_begins_ = true;
    streamed_ = false;
    searched_ = 0;
    return move_to(At::value);
  }

  // The types of a value whose mark says whether it is a string.
  static std::optional<JsonTypes> marked_types(bool is_string, std::optional<JsonTypes> types) {
    if (is_string) return JsonType::string;
    if (!types) return std::nullopt;
    const JsonTypes others =
        *types & (JsonTypes(JsonType::null) | JsonType::boolean | JsonType::integer |
                  JsonType::number | JsonType::array | JsonType::object);
    return others == JsonTypes::none() ? std::nullopt : std::optional(others);
  }

  // ---------------------------------------------------------------------------------------- values

  struct ValueEnd {
    std::size_t at = 0;     // everything before is the value
    std::size_t bytes = 0;  // of the mark that ends it
    bool found = false;
  };

  ValueEnd find_end(std::string_view held, bool last) {
    std::size_t from = searched_;
    for (;;) {
      const std::size_t own = held.find(marks_.after_value, from);
      std::size_t at = std::min(held.find(marks_.before_key, from), own);
      for (const std::string_view mark : end_marks()) {
        if (!mark.empty()) at = std::min(at, held.find(mark, from));
      }
      if (at == std::string_view::npos) break;
      switch (ends_at(held, at, last)) {
        case Begins::yes:
          return {at, at == own ? marks_.after_value.size() : 0, true};
        case Begins::perhaps:
          searched_ = at;
          return {at, 0, false};
        case Begins::no:
          from = at + 1;
      }
    }
    std::size_t begun = begun_tag(held, marks_.after_value);
    begun = std::max(begun, begun_tag(held, marks_.before_key));
    for (const std::string_view mark : end_marks()) {
      if (!mark.empty()) begun = std::max(begun, begun_tag(held, mark));
    }
    searched_ = std::max(from, held.size() - begun);
    return {searched_, 0, false};
  }

  // Whether the mark at this position ends the value: a value may contain such text, and its own
  // end mark may be missing.
  Begins ends_at(std::string_view held, std::size_t at, bool last) const {
    const std::string_view rest = held.substr(at);
    if (rest.starts_with(marks_.before_key)) return key_follows(held, at, last);
    if (rest.starts_with(marks_.after_value))
      return goes_on(rest.substr(marks_.after_value.size()), last);
    for (const std::string_view mark : end_marks()) {
      if (!mark.empty() && rest.starts_with(mark)) return goes_on(rest.substr(mark.size()), last);
    }
    return Begins::no;
  }

  // Whether the next argument's mark follows: with the name of a parameter, or on a line of its
  // own.
  Begins key_follows(std::string_view held, std::size_t at, bool last) const {
    const std::string_view after = held.substr(at + marks_.before_key.size());
    const auto key = read_word(after, marks_.after_key, marks_.before_value);
    if (!key) return last || after.size() > longest_word ? Begins::no : Begins::perhaps;
    const bool declared =
        !context_.tools.has(name_) || context_.tools.types_of(name_, key->name).has_value();
    // A preceding line end would still be in `held`.
    const bool begins_line = at == 0 ? !streamed_ : held[at - 1] == '\n';
    return (declared || begins_line) && is_plausible_name(key->name) ? Begins::yes : Begins::no;
  }

  // Whether the call continues after a mark that may end the value: the next text is a mark of the
  // call, and not another end of the value.
  Begins goes_on(std::string_view text, bool last) const {
    text.remove_prefix(leading_space(text));
    if (text.empty()) return last ? Begins::yes : Begins::perhaps;
    const auto next = [&](std::string_view mark) {
      return mark.empty() ? std::string_view::npos : text.find(mark);
    };
    std::size_t mark = next(marks_.before_key);
    for (const std::string_view each : outer_marks()) mark = std::min(mark, next(each));
    mark = std::min(mark, next(context_.form.call_begin));
    const std::size_t own = next(marks_.after_value);
    if (own < mark) return Begins::no;
    if (mark != std::string_view::npos) return Begins::yes;
    return last ? Begins::yes : Begins::perhaps;
  }

  Progress read_value(std::string& held, bool last, ParsedOutput& output) {
    if (marks_.lines && value_begins_) {
      if (held.empty() && !last) return Progress::more;
      if (held.starts_with('\n')) held.erase(0, 1);
      value_begins_ = false;
    }
    const ValueEnd end = find_end(held, last);
    if (is_string_) return read_string(held, last, end, output);
    if (!end.found && !last) return Progress::more;
    std::string_view text = std::string_view(held).substr(0, end.found ? end.at : held.size());
    if (marks_.lines && end.found && text.ends_with('\n')) text.remove_suffix(1);
    // An incomplete value might have become another one.
    output.add_arguments(end.found ? argument_json(text, types_) : std::string(text));
    return leave_value(held, end);
  }

  Progress read_string(std::string& held, bool last, const ValueEnd& end, ParsedOutput& output) {
    std::size_t certain = end.at;
    if (!end.found) {
      if (last) certain = held.size();
      certain -= utf8::incomplete_tail(std::string_view(held).substr(0, certain));
    }
    std::string_view text = std::string_view(held).substr(0, certain);
    // A line end before a mark that replaces a missing one belongs to the form, too.
    const bool drops = end.found ? marks_.lines || end.bytes == 0 : !last;
    if (drops && text.ends_with('\n')) text.remove_suffix(1);
    add_escaped(text, output);
    if (end.found) {
      output.add_arguments("\"");
      return leave_value(held, end);
    }
    if (last) return leave_value(held, end);
    streamed_ = streamed_ || !text.empty();
    held.erase(0, text.size());
    searched_ -= std::min(searched_, text.size());
    return Progress::more;
  }

  // If the text ends here, the call ends with its value.
  Progress leave_value(std::string& held, const ValueEnd& end) {
    held.erase(0, end.found ? end.at + end.bytes : held.size());
    return end.found ? move_to(At::pair) : Progress::done;
  }

  CallContext context_;
  const PairMarks& marks_;
  At at_ = At::head;
  std::string name_;
  bool first_ = true;
  std::optional<JsonTypes> types_;
  bool is_string_ = false;
  bool value_begins_ = false;
  bool streamed_ = false;  // part of the value has been output
  std::size_t searched_ = 0;
  std::string spaces_;  // white space that has not been output
  JsonArguments object_;
};

}  // namespace

std::unique_ptr<CallReader> make_pairs_reader(const CallContext& context) {
  return std::make_unique<PairsReader>(context);
}

}  // namespace motley::serving
