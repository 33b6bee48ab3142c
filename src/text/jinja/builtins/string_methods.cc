// The methods of Python's str.

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/builtins/methods.h"
#include "text/jinja/syntax/cursor.h"
#include "text/jinja/values/format.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/text_search.h"

namespace motley::text::jinja {
namespace {

// A string, or null if it is None or omitted.
Result<const String*> optional_text(const Value& value, std::string_view function) {
  if (value.is(Kind::missing) || value.is(Kind::none)) return static_cast<const String*>(nullptr);
  return as_text(value, function);
}

// ------------------------------------------------------------------------- new strings from this

template <Side side>
Result<Value> strip_side(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("strip", {""}, 0));
  MOTLEY_TRY(const String* const set, optional_text(values[0], "strip"));
  return strip(runtime, self.string(), side, set);
}

template <Case wanted>
Result<Value> to_case(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("this method"));
  return in_case(runtime, self.string(), wanted);
}

Result<Value> capitalize(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("capitalize"));
  return capitalized(runtime, self.string());
}

Result<Value> make_title(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("title"));
  return titled(runtime, self.string());
}

// Python pads on the side opposite to the name's.
template <Side side>
Result<Value> pad(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("padding", {"", ""}, 1));
  MOTLEY_TRY(const std::int64_t width, as_count(values[0]));
  if (values[1].is(Kind::missing)) return padded(runtime, self.string(), width, nullptr, side);
  MOTLEY_TRY(const String* const fill, as_text(values[1], "padding"));
  return padded(runtime, self.string(), width, fill, side);
}

Result<Value> zero_fill(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("zfill", {""}, 1));
  MOTLEY_TRY(const std::int64_t width, as_count(values[0]));
  const String& string = self.string();
  const bool has_sign =
      !string.text().empty() && (string.text()[0] == '-' || string.text()[0] == '+');
  const Value zero = runtime.text("0");
  MOTLEY_TRY(const Value sign, part_of(runtime, string, 0, has_sign ? 1 : 0));
  MOTLEY_TRY(const Value rest, part_of(runtime, string, has_sign ? 1 : 0, string.text().size()));
  const std::int64_t rest_width = has_sign && width > 0 ? width - 1 : width;
  MOTLEY_TRY(const Value filled,
             padded(runtime, rest.string(), rest_width, &zero.string(), Side::left));
  return add_texts(runtime, sign.string(), filled.string());
}

Result<Value> replace_all(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("replace", {"", "", ""}, 2));
  MOTLEY_TRY(const String* const old, as_text(values[0], "replace"));
  MOTLEY_TRY(const String* replacement, as_text(values[1], "replace"));
  MOTLEY_TRY(const std::int64_t most, as_count_or(values[2], -1));
  if (self.string().markup) {
    MOTLEY_TRY(const Value safe, escape_html(runtime, *replacement));
    replacement = &safe.string();
  }
  return replace(runtime, self.string(), *old, *replacement, most);
}

Result<Value> join(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("join", {""}, 1));
  MOTLEY_TRY(Cursor cursor, Cursor::over(values[0]));
  const String& separator = self.string();
  TextBuilder result(runtime);
  for (std::size_t i = 0;; ++i) {
    MOTLEY_TRY(const Value item, cursor.next(runtime));
    if (item.is(Kind::missing)) return result.finish(separator.markup);
    if (!item.is(Kind::string))
      return failure(
          cat("sequence item ", i, ": expected str instance, ", type_name(item), " found"));
    if (i > 0) MOTLEY_TRY_VOID(result.append(separator.marked));
    MOTLEY_TRY_VOID(separator.markup && !item.string().markup
                        ? append_escaped(result, item.string().marked)
                        : result.append(item.string().marked));
  }
}

Result<Value> format_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  return format_braces(runtime, self.string(), arguments);
}

template <bool at_front>
Result<Value> remove_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("removeprefix", {""}, 1));
  MOTLEY_TRY(const String* const affix, as_text(values[0], "removeprefix"));
  const String& string = self.string();
  const std::size_t size = string.text().size();
  const std::size_t gone = affix->text().size();
  MOTLEY_TRY_VOID(runtime.scan(gone));
  if (at_front ? !string.text().starts_with(affix->text())
               : !string.text().ends_with(affix->text()))
    return self;
  return at_front ? part_of(runtime, string, gone, size) : part_of(runtime, string, 0, size - gone);
}

// ------------------------------------------------------------------------------------------ parts

template <bool from_right>
Result<Value> split_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<2>("split", {"sep", "maxsplit"}, 0));
  MOTLEY_TRY(const String* const separator, optional_text(values[0], "split"));
  MOTLEY_TRY(const std::int64_t most, as_count_or(values[1], -1));
  MOTLEY_TRY(std::vector<Value> parts,
             from_right ? split_from_right(runtime, self.string(), separator, most)
                        : split(runtime, self.string(), separator, most));
  return runtime.list(std::move(parts));
}

Result<Value> lines(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("splitlines", {"keepends"}, 0));
  MOTLEY_TRY(const std::int64_t keep, as_count_or(values[0], 0));
  MOTLEY_TRY(std::vector<Value> parts, split_lines(runtime, self.string(), keep != 0));
  return runtime.list(std::move(parts));
}

template <bool from_right>
Result<Value> partition_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<1>("partition", {""}, 1));
  MOTLEY_TRY(const String* const separator, as_text(values[0], "partition"));
  return partition(runtime, self.string(), *separator, from_right);
}

// ---------------------------------------------------------------------------------------- searches

// Bytes [begin, end) of a string within two optional bounds in characters; nothing if the bounds
// are empty in such a way that not even an empty string is found.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;
};

Result<std::optional<Window>> window(Runtime& runtime, const String& string, const Value& from,
                                     const Value& to) {
  MOTLEY_TRY_VOID(runtime.scan(string.text().size()));
  const auto given = [](const Value& value) {
    return !value.is(Kind::missing) && !value.is(Kind::none);
  };
  if (!given(from) && !given(to))
    return std::optional(Window{.begin = 0, .end = string.text().size()});
  const auto size = static_cast<std::int64_t>(length_of(string));
  const auto bound = [&](const Value& value, std::int64_t otherwise) -> Result<std::int64_t> {
    if (!given(value)) return otherwise;
    MOTLEY_TRY(const std::int64_t at, as_count(value));
    return at < 0 ? std::max(at, -size) + size : at;
  };
  MOTLEY_TRY(const std::int64_t begin, bound(from, 0));
  MOTLEY_TRY(const std::int64_t end, bound(to, size));
  if (begin > size || begin > end) return std::optional<Window>();
  const auto byte = [&](std::int64_t at) {
    return byte_of_character(string.text(), static_cast<std::size_t>(std::min(at, size)));
  };
  return std::optional(Window{.begin = byte(begin), .end = byte(end)});
}

template <bool at_front>
Result<Value> begins_or_ends(Runtime& runtime, const Value& self, Arguments& arguments) {
  constexpr std::string_view name = at_front ? "startswith" : "endswith";
  MOTLEY_TRY(const auto values, arguments.bind<3>(name, {"", "", ""}, 1));
  MOTLEY_TRY(const auto part, window(runtime, self.string(), values[1], values[2]));
  const auto fits = [&](const Value& affix) -> Result<bool> {
    MOTLEY_TRY(const String* const text, as_text(affix, name));
    if (!part) return false;
    MOTLEY_TRY_VOID(runtime.scan(text->text().size()));
    const std::string_view seen = self.string().text().substr(part->begin, part->end - part->begin);
    return at_front ? seen.starts_with(text->text()) : seen.ends_with(text->text());
  };
  if (!values[0].is(Kind::tuple)) {
    MOTLEY_TRY(const bool does, fits(values[0]));
    return Value::boolean(does);
  }
  for (const Value& affix : values[0].sequence().items) {
    MOTLEY_TRY(const bool does, fits(affix));
    if (does) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool from_right, bool must_be_there>
Result<Value> find_method_of(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("find", {"", "", ""}, 1));
  MOTLEY_TRY(const String* const needle, as_text(values[0], "find"));
  MOTLEY_TRY(const auto part, window(runtime, self.string(), values[1], values[2]));
  if (part) {
    const std::string_view seen = self.string().text().substr(part->begin, part->end - part->begin);
    std::size_t at = nowhere;
    if (from_right) {
      MOTLEY_TRY(const auto search, BackwardSearch::prepare(runtime, needle->text()));
      MOTLEY_TRY(at, search.find_last(runtime, seen));
    } else {
      MOTLEY_TRY_VOID(runtime.scan(seen.size() + needle->text().size()));
      at = find_first(seen, needle->text());
    }
    if (at != nowhere)
      return Value::integer(utf8::count(self.string().text().substr(0, part->begin + at)));
  }
  if (must_be_there) return failure("substring not found");
  return Value::integer(-1);
}

Result<Value> count_parts(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY(const auto values, arguments.bind<3>("count", {"", "", ""}, 1));
  MOTLEY_TRY(const String* const needle, as_text(values[0], "count"));
  MOTLEY_TRY(const auto part, window(runtime, self.string(), values[1], values[2]));
  if (!part) return Value::integer(0);
  const std::string_view seen = self.string().text().substr(part->begin, part->end - part->begin);
  const std::string_view wanted = needle->text();
  if (wanted.empty()) return Value::integer(utf8::count(seen) + 1);
  std::int64_t count = 0;
  for (std::size_t at = find_first(seen, wanted); at != nowhere;
       at = find_first(seen, wanted, at + wanted.size())) {
    MOTLEY_TRY_VOID(runtime.step());
    ++count;
  }
  return Value::integer(count);
}

// ----------------------------------------------------------------------------------------
// questions

// Whether it is not empty, and all characters have one of the properties.
template <std::uint16_t any_of>
Result<Value> all_are(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("this method"));
  const std::string_view text = self.string().text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    if (!has(character.code_point, any_of)) return Value::boolean(false);
    at += character.bytes;
  }
  return Value::boolean(!text.empty());
}

Result<Value> is_ascii_text(Runtime&, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("isascii"));
  return Value::boolean(self.string().ascii);
}

Result<Value> is_printable(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (self.string().text().empty()) return Value::boolean(true);
  return all_are<printable_character>(runtime, self, arguments);
}

template <std::uint16_t wanted>
Result<Value> has_case(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("this method"));
  MOTLEY_TRY_VOID(runtime.scan(self.string().text().size()));
  return Value::boolean(all_in_case(self.string().text(), wanted));
}

Result<Value> is_title(Runtime& runtime, const Value& self, Arguments& arguments) {
  MOTLEY_TRY_VOID(arguments.bind_nothing("istitle"));
  const std::string_view text = self.string().text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  bool inside = false;
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    at += character.bytes;
    const bool begins = has(character.code_point, upper | title);
    const bool goes_on = has(character.code_point, lower);
    if ((begins && inside) || (goes_on && !inside)) return Value::boolean(false);
    inside = begins || goes_on;
    any = any || inside;
  }
  return Value::boolean(any);
}

constexpr Method methods[] = {
    {"capitalize", capitalize},
    {"center", pad<Side::both>},
    {"count", count_parts},
    {"endswith", begins_or_ends<false>},
    {"find", find_method_of<false, false>},
    {"format", format_method},
    {"index", find_method_of<false, true>},
    {"isalnum", all_are<alpha | decimal | digit | numeric>},
    {"isalpha", all_are<alpha>},
    {"isascii", is_ascii_text},
    {"isdecimal", all_are<decimal>},
    {"isdigit", all_are<digit>},
    {"islower", has_case<lower>},
    {"isnumeric", all_are<numeric>},
    {"isprintable", is_printable},
    {"isspace", all_are<space>},
    {"istitle", is_title},
    {"isupper", has_case<upper>},
    {"join", join},
    {"ljust", pad<Side::right>},
    {"lower", to_case<Case::lower>},
    {"lstrip", strip_side<Side::left>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace_all},
    {"rfind", find_method_of<true, false>},
    {"rindex", find_method_of<true, true>},
    {"rjust", pad<Side::left>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_side<Side::right>},
    {"split", split_method<false>},
    {"splitlines", lines},
    {"startswith", begins_or_ends<true>},
    {"strip", strip_side<Side::both>},
    {"title", make_title},
    {"upper", to_case<Case::upper>},
    {"zfill", zero_fill},
};

}  // namespace

std::span<const Method> string_methods() { return methods; }

}  // namespace motley::text::jinja
