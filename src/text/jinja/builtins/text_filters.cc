// Filters that return text.

#include <algorithm>
#include <array>
#include <string_view>

#include "base/cat.h"
#include "text/jinja/builtins/filter_lists.h"
#include "text/jinja/operators.h"
#include "text/jinja/syntax/attribute_path.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/format.h"
#include "text/jinja/values/represent.h"
#include "text/jinja/values/strings.h"

namespace motley::text::jinja {
namespace {

template <Case wanted>
Result<Value> change_case(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<1>(wanted == Case::lower ? "lower" : "upper", {"s"}, 1));
  MOTLEY_TRY(const Value text, to_string(runtime, values[0]));
  return in_case(runtime, text.string(), wanted);
}

Result<Value> capitalize(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("capitalize", {"s"}, 1));
  MOTLEY_TRY(const Value text, to_string(runtime, values[0]));
  return capitalized(runtime, text.string());
}

bool parts_words(char32_t character) {
  constexpr std::u32string_view between = U"-({[<";
  return is_space(character) || between.find(character) != std::u32string_view::npos;
}

// Words begin after white space, hyphens and opening brackets, unlike in str.title().
Result<Value> title_words(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("title", {"s"}, 1));
  MOTLEY_TRY(const Value whole, to_string(runtime, values[0]));
  const String& string = whole.string();
  const std::string_view text = string.text();
  TextBuilder result(runtime);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const Character first = character_at(text, at);
    const bool between = parts_words(first.code_point);
    while (at < text.size() && parts_words(character_at(text, at).code_point) == between)
      at += character_at(text, at).bytes;
    MOTLEY_TRY(const Value head, part_of(runtime, string, begin, begin + first.bytes));
    MOTLEY_TRY(const Value tail, part_of(runtime, string, begin + first.bytes, at));
    MOTLEY_TRY(const Value upper_head, in_case(runtime, head.string(), Case::upper));
    MOTLEY_TRY(const Value lower_tail, in_case(runtime, tail.string(), Case::lower));
    MOTLEY_TRY_VOID(result.append(upper_head.string().marked));
    MOTLEY_TRY_VOID(result.append(lower_tail.string().marked));
  }
  return result.finish();
}

Result<Value> center(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("center", {"value", "width"}, 1));
  MOTLEY_TRY(const Value text, to_string(runtime, values[0]));
  MOTLEY_TRY(const std::int64_t width, as_count_or(values[1], 80));
  return padded(runtime, text.string(), width, nullptr, Side::both);
}

Result<Value> trim(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("trim", {"value", "chars"}, 1));
  MOTLEY_TRY(const Value text, to_string(runtime, values[0]));
  const bool by_default = values[1].is(Kind::missing) || values[1].is(Kind::none);
  if (by_default) return strip(runtime, text.string(), Side::both, nullptr);
  MOTLEY_TRY(const String* const set, as_text(values[1], "trim"));
  return strip(runtime, text.string(), Side::both, set);
}

// str(value), which is no markup even if the value is.
Result<Value> plain_text(Runtime& runtime, const Value& value) {
  MOTLEY_TRY(const Value text, to_string(runtime, value));
  if (!text.string().markup) return text;
  TextBuilder copy(runtime);
  MOTLEY_TRY_VOID(copy.append(text.string().marked));
  return copy.finish();
}

Result<Value> replace_text(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<4>("replace", {"s", "old", "new", "count"}, 3));
  MOTLEY_TRY(const Value text, plain_text(runtime, values[0]));
  MOTLEY_TRY(const Value old, to_string(runtime, values[1]));
  MOTLEY_TRY(const Value put, to_string(runtime, values[2]));
  const bool all = values[3].is(Kind::missing) || values[3].is(Kind::none);
  MOTLEY_TRY(const std::int64_t most, as_count_or(all ? Value() : values[3], -1));
  return replace(runtime, text.string(), old.string(), put.string(), most);
}

Result<Value> to_text_filter(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("string", {"s"}, 1));
  return to_string(runtime, values[0]);
}

Result<Value> safe(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("safe", {"value"}, 1));
  TextBuilder text(runtime);
  MOTLEY_TRY_VOID(append_text(text, runtime, values[0]));
  return text.finish(true);
}

Result<Value> escape_filter(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("escape", {""}, 1));
  MOTLEY_TRY(const Value text, to_string(runtime, values[0]));
  return escape_html(runtime, text.string());
}

Result<Value> force_escape(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("forceescape", {"value"}, 1));
  MOTLEY_TRY(const Value text, plain_text(runtime, values[0]));
  return escape_html(runtime, text.string());
}

Result<Value> format_filter(Runtime& runtime, Arguments& arguments) {
  if (arguments.positional.size() > 1 && !arguments.keyword.empty())
    return failure("can't handle positional and keyword arguments at the same time");
  MOTLEY_TRY(const Value format, to_string(runtime, arguments.positional[0]));
  if (arguments.keyword.empty()) {
    MOTLEY_TRY_VOID(runtime.reserve(arguments.positional.size(), sizeof(Value)));
    const auto first = arguments.positional.begin() + 1;
    const Value values = runtime.tuple(std::vector<Value>(first, arguments.positional.end()));
    return format_percent(runtime, format.string(), values);
  }
  auto& values = runtime.heap().make<Dict>();
  for (const auto& [name, value] : arguments.keyword)
    MOTLEY_TRY_VOID(values.set(runtime, runtime.text(name), value));
  return format_percent(runtime, format.string(), Value::object(Kind::dict, &values));
}

Result<Value> join(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("join", {"value", "d", "attribute"}, 1));
  Value separator = runtime.text("");
  if (!values[1].is(Kind::missing)) {
    MOTLEY_TRY(separator, to_string(runtime, values[1]));
  }
  MOTLEY_TRY(const AttributePath path, AttributePath::read(runtime, values[2]));
  MOTLEY_TRY(Cursor cursor, Cursor::over(values[0]));
  TextBuilder result(runtime);
  for (bool first = true;; first = false) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return result.finish();
    MOTLEY_TRY(const Value part, path.get(runtime, item));
    if (!first) MOTLEY_TRY_VOID(result.append(separator.string().marked));
    MOTLEY_TRY_VOID(append_text(result, runtime, part));
  }
}

// A string of as many blanks as a value says.
Result<Value> blanks(Runtime& runtime, const Value& count, std::int64_t if_missing) {
  MOTLEY_TRY(const std::int64_t width, as_count_or(count, if_missing));
  TextBuilder text(runtime);
  MOTLEY_TRY_VOID(
      text.append_times({.text = " "}, width > 0 ? static_cast<std::size_t>(width) : 0));
  return text.finish();
}

Result<Value> indent(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<4>("indent", {"s", "width", "first", "blank"}, 1));
  MOTLEY_TRY(const String* const string, as_text(values[0], "indent"));
  MOTLEY_TRY(const bool first_too, as_flag(runtime, values[2]));
  MOTLEY_TRY(const bool blank_too, as_flag(runtime, values[3]));
  MOTLEY_TRY(const Value margin,
             values[1].is(Kind::string) ? values[1] : blanks(runtime, values[1], 4));
  MOTLEY_TRY(std::vector<Value> lines, split_lines(runtime, *string, false));
  // Python appends a line end before it splits the text into lines.
  const bool ends_line =
      !string->text().empty() &&
      is_line_end(
          character_at(string->text(), character_before(string->text(), string->text().size()))
              .code_point);
  // "\r" and the appended "\n" are one line end
  const bool joins_last = string->text().ends_with('\r');
  if (string->text().empty() || (ends_line && !joins_last)) lines.push_back(runtime.text(""));
  TextBuilder result(runtime);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const String& line = lines[i].string();
    if (i > 0) MOTLEY_TRY_VOID(result.append("\n", false));
    if (i == 0 ? first_too : blank_too || !line.text().empty())
      MOTLEY_TRY_VOID(result.append(margin.string().marked));
    MOTLEY_TRY_VOID(result.append(line.marked));
  }
  return result.finish(string->markup);
}

Result<Value> truncate(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values,
             arguments.bind<5>("truncate", {"s", "length", "killwords", "end", "leeway"}, 1));
  MOTLEY_TRY(const std::int64_t wanted, as_count_or(values[1], 255));
  MOTLEY_TRY(const bool kill_words, as_flag(runtime, values[2]));
  const Value end = values[3].is(Kind::missing) ? runtime.text("...") : values[3];
  MOTLEY_TRY(const String* const ellipsis, as_text(end, "truncate"));
  const bool usual = values[4].is(Kind::missing) || values[4].is(Kind::none);
  MOTLEY_TRY(const std::int64_t leeway, as_count_or(usual ? Value() : values[4], 5));
  const auto end_length = static_cast<std::int64_t>(length_of(*ellipsis));
  if (wanted < end_length) return failure(cat("expected length >= ", end_length, ", got ", wanted));
  if (leeway < 0) return failure(cat("expected leeway >= 0, got ", leeway));
  // Both are at least 0 here, and the string is far too short to overflow.
  MOTLEY_TRY(const std::size_t length, jinja::length(runtime, values[0]));
  const auto size = static_cast<std::int64_t>(length);
  if (size - leeway <= wanted) return values[0];
  MOTLEY_TRY(const String* const string, as_text(values[0], "truncate"));
  MOTLEY_TRY(const Value kept,
             characters_of(runtime, *string, 0,
                           static_cast<std::size_t>(std::min(size, wanted - end_length))));
  if (kill_words) return add_texts(runtime, kept.string(), *ellipsis);
  const Value blank = runtime.text(" ");
  MOTLEY_TRY(const std::vector<Value> words,
             split_from_right(runtime, kept.string(), &blank.string(), 1));
  return add_texts(runtime, words[0].string(), *ellipsis);
}

Result<Value> word_count(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("wordcount", {"s"}, 1));
  MOTLEY_TRY(const Value counted, to_string(runtime, values[0]));
  const std::string_view text = counted.string().text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  std::int64_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    at += character.bytes;
    const bool word = is_word(character.code_point);
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::integer(count);
}

// -------------------------------------------------------------------------------------- encodings

void append_url_byte(std::string& out, char each, bool in_query) {
  constexpr std::string_view hex = "0123456789ABCDEF";
  constexpr std::string_view kept = "_.-~";
  const auto byte = static_cast<unsigned char>(each);
  const bool is_plain =
      byte < 0x80 && (has(byte, alpha | decimal) || kept.find(each) != std::string_view::npos);
  if (is_plain || (byte == '/' && !in_query)) {
    out += each;
  } else if (byte == ' ' && in_query) {
    out += '+';
  } else {
    out += {'%', hex[byte >> 4U], hex[byte & 0xFU]};
  }
}

Result<void> append_url(TextBuilder& out, const MarkedText& text, bool in_query) {
  std::string piece;
  return for_each_run(text, [&](std::size_t at, std::size_t end, bool untrusted) -> Result<void> {
    while (at < end) {
      piece.clear();
      for (; at < end && piece.size() < piece_bytes; ++at)
        append_url_byte(piece, text.text[at], in_query);
      MOTLEY_TRY_VOID(out.append(piece, untrusted));
    }
    return {};
  });
}

Result<Value> url_encode(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("urlencode", {"value"}, 1));
  TextBuilder result(runtime);
  if (values[0].is(Kind::string) || !Cursor::can_walk(values[0])) {
    MOTLEY_TRY(const Value text, to_string(runtime, values[0]));
    MOTLEY_TRY_VOID(append_url(result, text.string().marked, false));
    return result.finish();
  }
  const bool is_dict = values[0].is(Kind::dict);
  const Value pairs =
      is_dict
          ? Value::object(Kind::view, &runtime.heap().make<View>(values[0].dict(), View::Of::items))
          : values[0];
  MOTLEY_TRY(Cursor cursor, Cursor::over(pairs));
  for (bool first = true;; first = false) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return result.finish();
    MOTLEY_TRY(const std::vector<Value> pair, to_vector(runtime, item));
    if (pair.size() != 2) return failure("urlencode takes pairs of a key and a value");
    MOTLEY_TRY(const Value key, to_string(runtime, pair[0]));
    MOTLEY_TRY(const Value value, to_string(runtime, pair[1]));
    if (!first) MOTLEY_TRY_VOID(result.append("&", false));
    MOTLEY_TRY_VOID(append_url(result, key.string().marked, true));
    MOTLEY_TRY_VOID(result.append("=", false));
    MOTLEY_TRY_VOID(append_url(result, value.string().marked, true));
  }
}

// json.dumps as transformers calls it.
Result<Value> to_json_filter(Runtime& runtime, Arguments& arguments) {
  MOTLEY_TRY(
      const auto values,
      arguments.bind<5>("tojson", {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1));
  JsonStyle style;
  MOTLEY_TRY(style.ascii, as_flag(runtime, values[1]));
  MOTLEY_TRY(style.sort_keys, as_flag(runtime, values[4]));
  const Value& margin = values[2];
  const bool has_lines =
      values[0].is(Kind::dict) || values[0].is(Kind::list) || values[0].is(Kind::tuple);
  if (has_lines && !margin.is(Kind::missing) && !margin.is(Kind::none)) {
    style.pretty = true;
    style.item_separator.text = ",";
    MOTLEY_TRY(const Value indent, margin.is(Kind::string) ? margin : blanks(runtime, margin, 0));
    MOTLEY_TRY_VOID(runtime.reserve(indent.string().text().size()));
    style.indent = indent.string().marked;
  }
  if (!values[3].is(Kind::missing) && !values[3].is(Kind::none)) {
    MOTLEY_TRY(const std::vector<Value> pair, to_vector(runtime, values[3]));
    if (pair.size() != 2)
      return failure("tojson takes two separators: between items, and after keys");
    MOTLEY_TRY(const String* const item, as_text(pair[0], "tojson"));
    MOTLEY_TRY(const String* const key, as_text(pair[1], "tojson"));
    MOTLEY_TRY_VOID(runtime.scan(item->text().size() + key->text().size()));
    MOTLEY_TRY_VOID(runtime.reserve(2, item->text().size() + key->text().size()));
    style.item_separator = item->marked;
    style.key_separator = key->marked;
  }
  return to_json(runtime, values[0], style);
}

constexpr Filter filters[] = {
    {"capitalize", capitalize},
    {"center", center},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", indent},
    {"join", join},
    {"lower", change_case<Case::lower>},
    {"replace", replace_text},
    {"safe", safe},
    {"string", to_text_filter},
    {"title", title_words},
    {"tojson", to_json_filter},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", change_case<Case::upper>},
    {"urlencode", url_encode},
    {"wordcount", word_count},
};

}  // namespace

std::span<const Filter> text_filters() { return filters; }

}  // namespace motley::text::jinja
