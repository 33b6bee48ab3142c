#include "server/output/call_reader.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "server/output/tag_search.h"

namespace motley::server {
namespace {

using Progress = CallReader::Progress;

// Whatever else stands before the end of a call that has had its arguments.
Progress skip_to_end(std::string& held, bool last) {
  const std::size_t end = held.find(call_end);
  if (end == std::string::npos) {
    held.erase(0, last ? held.size() : held.size() - begun_tag(held, call_end));
    return last ? Progress::done : Progress::more;
  }
  held.erase(0, end + call_end.size());
  return Progress::done;
}

class JsonCallReader final : public CallReader {
 public:
  Progress read(std::string& held, bool last, ParsedOutput& output) override {
    if (!begun_) {
      const std::size_t end = held.find(call_end);
      const std::string_view inside = std::string_view(held).substr(0, end);
      if (const auto head = read_json_call_head(inside)) {
        output.begin_call(head->name);
        held.erase(0, head->bytes);
        begun_ = true;
      } else if (end != std::string::npos || last) {
        // Its parts come in another order, if it is one.
        const auto call = parse_json_call(inside);
        if (!call) return Progress::none;
        output.begin_call(call->name);
        output.add_arguments(call->arguments);
        return skip_to_end(held, last);
      } else {
        return Progress::more;
      }
    }
    const std::size_t bytes = arguments_.take(held);
    output.add_arguments(std::string_view(held).substr(0, bytes));
    held.erase(0, bytes);
    if (!arguments_.ended()) return last ? Progress::done : Progress::more;
    return skip_to_end(held, last);
  }

 private:
  bool begun_ = false;
  JsonExtent arguments_;
};

// How forms that write values without quotes mark them.
struct PairTags {
  std::string_view before_name;
  std::string_view behind_name;  // empty: what comes next does
  std::string_view before_key;
  std::string_view behind_key;
  std::string_view before_value;  // empty: it begins behind the key
  std::string_view behind_value;
  std::string_view close = {};  // before </tool_call>
  bool lines = false;           // a line end on either side belongs to the form, not to the value
};
constexpr PairTags arg_tags = {.before_name = "",
                               .behind_name = "",
                               .before_key = "<arg_key>",
                               .behind_key = "</arg_key>",
                               .before_value = "<arg_value>",
                               .behind_value = "</arg_value>"};
constexpr PairTags parameter_tags = {.before_name = "<function=",
                                     .behind_name = ">",
                                     .before_key = "<parameter=",
                                     .behind_key = ">",
                                     .before_value = "",
                                     .behind_value = "</parameter>",
                                     .close = "</function>",
                                     .lines = true};

// Takes a tag and the white space before it off the front of a text, if they are there.
bool take_tag(std::string_view& text, std::string_view tag) {
  const std::string_view rest = text.substr(leading_space(text));
  if (!rest.starts_with(tag)) return false;
  text = rest.substr(tag.size());
  return true;
}

std::string trimmed(std::string_view text) {
  text = text.substr(0, trailing_space(text));
  return std::string(text.substr(leading_space(text)));
}

// What stands before a tag, without white space around it; the tag goes too.
std::optional<std::string> take_until(std::string_view& text, std::string_view tag) {
  const std::size_t end = text.find(tag);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, end);
  text.remove_prefix(end + tag.size());
  return trimmed(before);
}

// The text of a string literal, without its quotes.
std::string escaped(std::string_view text) {
  std::string literal;
  json::append_string(literal, text);
  return literal.substr(1, literal.size() - 2);
}

class PairsReader final : public CallReader {
 public:
  PairsReader(const PairTags& tags, const ToolSchemas& schemas) : tags_(tags), schemas_(schemas) {}

  Progress read(std::string& held, bool last, ParsedOutput& output) override {
    for (;;) {
      switch (at_) {
        case At::head:
          if (const Progress progress = read_head(held, last, output); at_ == At::head)
            return progress;
          break;
        case At::pair:
          if (!read_key(held, last, output)) return Progress::more;
          break;
        case At::string:
          if (!read_string(held, last, output)) return last ? Progress::done : Progress::more;
          break;
        case At::value:
          if (!read_value(held, output)) return last ? Progress::done : Progress::more;
          break;
        case At::end:
          return skip_to_end(held, last);
      }
    }
  }

 private:
  enum class At : std::uint8_t { head, pair, string, value, end };

  struct Key {
    std::string name;
    std::size_t bytes = 0;  // up to the value
  };
  std::optional<Key> key_at(std::string_view text) const {
    std::string_view rest = text;
    if (!take_tag(rest, tags_.before_key)) return std::nullopt;
    auto name = take_until(rest, tags_.behind_key);
    if (!name || name->empty()) return std::nullopt;
    // Without a tag of its own a value begins with the byte behind the key's.
    const bool begins =
        tags_.before_value.empty() ? !rest.empty() : take_tag(rest, tags_.before_value);
    if (!begins) return std::nullopt;
    return Key{*std::move(name), text.size() - rest.size()};
  }

  // With the first key, or where the call ends without one.
  Progress read_head(std::string& held, bool last, ParsedOutput& output) {
    const std::size_t end = held.find(call_end);
    std::string_view rest = std::string_view(held).substr(0, end);
    const bool whole = end != std::string::npos || last;
    const Progress otherwise = whole ? Progress::none : Progress::more;
    if (!take_tag(rest, tags_.before_name)) return otherwise;
    std::optional<std::string> name;
    if (!tags_.behind_name.empty()) {
      name = take_until(rest, tags_.behind_name);
    } else if (const std::size_t key = rest.find(tags_.before_key);
               whole || key != std::string_view::npos) {
      name = trimmed(rest.substr(0, key));
      rest.remove_prefix(std::min(key, rest.size()));
    }
    if (!name || name->empty() || name->find('<') != std::string::npos) return otherwise;
    const bool closes = take_tag(rest, tags_.close) && leading_space(rest) == rest.size();
    if (!(whole && closes) && !key_at(rest)) return otherwise;
    name_ = *std::move(name);
    output.begin_call(name_);
    output.add_arguments("{");
    held.erase(0, static_cast<std::size_t>(rest.data() - held.data()));
    at_ = At::pair;
    return Progress::more;
  }

  // The next pair, or the end of all; false where that can't be told yet.
  bool read_key(std::string& held, bool last, ParsedOutput& output) {
    const std::size_t end = held.find(call_end);
    const std::string_view inside = std::string_view(held).substr(0, end);
    const auto key = key_at(inside);
    if (!key && end == std::string::npos && !last) return false;
    if (!key) {
      output.add_arguments("}");
      at_ = At::end;
      return true;
    }
    silent_ = !keys_.insert(key->name).second;
    const bool is_string = schemas_.is_string(name_, key->name);
    add(output, keys_.size() > 1 ? "," : "");
    add(output, "\"" + escaped(key->name) + (is_string ? "\":\"" : "\":"));
    held.erase(0, key->bytes);
    at_ = is_string ? At::string : At::value;
    at_value_begin_ = true;
    return true;
  }

  bool read_string(std::string& held, bool last, ParsedOutput& output) {
    if (tags_.lines && std::exchange(at_value_begin_, false) && held.starts_with('\n'))
      held.erase(0, 1);
    const std::size_t end = held.find(tags_.behind_value);
    std::size_t certain = end;
    if (end == std::string::npos && last) {
      certain = held.size();
    } else if (end == std::string::npos) {
      certain = held.size() - begun_tag(held, tags_.behind_value);
      certain -= utf8::incomplete_tail(std::string_view(held).substr(0, certain));
    }
    std::string_view text = std::string_view(held).substr(0, certain);
    if (tags_.lines && text.ends_with('\n') && !(end == std::string::npos && last))
      text.remove_suffix(1);
    add(output, escaped(text));
    if (end == std::string::npos) {
      held.erase(0, text.size());
      return false;
    }
    add(output, "\"");
    held.erase(0, end + tags_.behind_value.size());
    at_ = At::pair;
    return true;
  }

  // JSON if it can be read as that, as it is written; else a string after all.
  bool read_value(std::string& held, ParsedOutput& output) {
    const std::size_t end = held.find(tags_.behind_value);
    if (end == std::string::npos) return false;
    std::string_view text = std::string_view(held).substr(0, end);
    const auto parsed = json::parse(text, "tool call");
    if (tags_.lines && text.starts_with('\n')) text.remove_prefix(1);
    if (tags_.lines && text.ends_with('\n')) text.remove_suffix(1);
    add(output, parsed.ok() ? trimmed(text) : json::write(json::Value(std::string(text))));
    held.erase(0, end + tags_.behind_value.size());
    at_ = At::pair;
    return true;
  }

  // A key that stands there twice counts once.
  void add(ParsedOutput& output, std::string_view text) const {
    if (!silent_) output.add_arguments(text);
  }

  const PairTags& tags_;
  const ToolSchemas& schemas_;
  At at_ = At::head;
  std::string name_;
  std::set<std::string> keys_;
  bool silent_ = false;
  bool at_value_begin_ = false;
};

}  // namespace

std::unique_ptr<CallReader> make_call_reader(CallSyntax syntax, const ToolSchemas& schemas) {
  switch (syntax) {
    case CallSyntax::json:
      return std::make_unique<JsonCallReader>();
    case CallSyntax::arg_tags:
      return std::make_unique<PairsReader>(arg_tags, schemas);
    case CallSyntax::parameters:
      return std::make_unique<PairsReader>(parameter_tags, schemas);
  }
  MOTLEY_CHECK(false, "a syntax of calls that nobody reads");
}

}  // namespace motley::server
