#include "text/jinja/values/strings.h"

#include <algorithm>
#include <cstring>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/values/big_integer.h"

namespace motley::text::jinja {
namespace {

constexpr std::size_t nowhere = std::string_view::npos;

// In linear time for any needle.
std::size_t find_first(std::string_view text, std::string_view needle, std::size_t from) {
  const void* const found =
      memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return nowhere;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

Result<std::size_t> find_last(Runtime& runtime, std::string_view text, std::string_view needle) {
  MOTLEY_TRY_VOID(runtime.step(1 + (text.size() / 64 * (1 + (needle.size() / 16)))));
  return text.rfind(needle);
}

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Character character = character_at(text, at);
    if (!is_space(character.code_point)) break;
    at += character.bytes;
  }
  return at;
}

std::size_t skip_word(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Character character = character_at(text, at);
    if (is_space(character.code_point)) break;
    at += character.bytes;
  }
  return at;
}

// The end of the text without trailing spaces, or without trailing non-spaces.
std::size_t skip_back(std::string_view text, std::size_t end, bool spaces) {
  while (end > 0) {
    const std::size_t begin = character_before(text, end);
    if (is_space(character_at(text, begin).code_point) != spaces) break;
    end = begin;
  }
  return end;
}

std::u32string character_set(std::string_view text) {
  std::u32string set;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    set += character.code_point;
    at += character.bytes;
  }
  std::ranges::sort(set);
  return set;
}

std::vector<Value> split_spaces(Runtime& runtime, const String& string, std::int64_t most) {
  const std::string_view text = string.text();
  std::vector<Value> parts;
  std::size_t at = skip_spaces(text, 0);
  while (at < text.size()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(part_of(runtime, string, at, text.size()));
      break;
    }
    const std::size_t end = skip_word(text, at);
    parts.push_back(part_of(runtime, string, at, end));
    at = skip_spaces(text, end);
  }
  return parts;
}

std::vector<Value> split_spaces_from_right(Runtime& runtime, const String& string,
                                           std::int64_t most) {
  const std::string_view text = string.text();
  std::vector<Value> parts;
  std::size_t end = skip_back(text, text.size(), true);
  while (end > 0) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(part_of(runtime, string, 0, end));
      break;
    }
    const std::size_t begin = skip_back(text, end, false);
    parts.push_back(part_of(runtime, string, begin, end));
    end = skip_back(text, begin, true);
  }
  std::ranges::reverse(parts);
  return parts;
}

bool is_cased(char32_t character) { return has(character, lower | upper | title); }

// Whether the sigma at `at` ends its word: a character with case precedes it, and none follows.
bool is_final_sigma(std::string_view text, std::size_t at, std::size_t bytes) {
  std::size_t before = at;
  bool cased = false;
  while (before > 0 && !cased) {
    before = character_before(text, before);
    const char32_t character = character_at(text, before).code_point;
    if (has(character, case_ignorable)) continue;
    if (!is_cased(character)) return false;
    cased = true;
  }
  if (!cased) return false;
  for (std::size_t after = at + bytes; after < text.size();) {
    const Character next = character_at(text, after);
    if (!has(next.code_point, case_ignorable)) return !is_cased(next.code_point);
    after += next.bytes;
  }
  return true;
}

// Converts each character to the case that `choose` returns for it, in order.
template <class Choose>
Value change_case(Runtime& runtime, const String& string, Choose choose) {
  constexpr char32_t sigma = 0x3A3;
  constexpr char32_t final_sigma = 0x3C2;
  const std::string_view text = string.text();
  MarkedText result;
  auto span = string.marked.untrusted.begin();
  std::string changed;
  for (std::size_t at = 0; at < text.size();) {
    while (span != string.marked.untrusted.end() && span->end <= at) ++span;
    const bool untrusted = span != string.marked.untrusted.end() && span->begin <= at;
    const std::size_t end = span == string.marked.untrusted.end() ? text.size()
                            : untrusted                           ? span->end
                                                                  : span->begin;
    changed.clear();
    while (at < end) {
      const Character character = character_at(text, at);
      const Case wanted = choose(character.code_point);
      if (wanted == Case::lower && character.code_point == sigma &&
          is_final_sigma(text, at, character.bytes))
        utf8::append(changed, final_sigma);
      else
        append_in_case(changed, character.code_point, wanted);
      at += character.bytes;
    }
    result.append(changed, untrusted);
  }
  return runtime.text(std::move(result), string.markup);
}

}  // namespace

std::size_t length_of(const String& string) {
  return string.ascii ? string.text().size() : static_cast<std::size_t>(utf8::count(string.text()));
}

Value part_of(Runtime& runtime, const String& string, std::size_t begin_byte,
              std::size_t end_byte) {
  return runtime.text(string.marked.part(begin_byte, end_byte), string.markup);
}

Value characters_of(Runtime& runtime, const String& string, std::size_t begin, std::size_t end) {
  if (string.ascii) return part_of(runtime, string, begin, end);
  const std::size_t first = byte_of_character(string.text(), begin);
  const std::size_t size = byte_of_character(string.text().substr(first), end - begin);
  return part_of(runtime, string, first, first + size);
}

Result<Value> repeat_text(Runtime& runtime, const String& string, std::size_t times) {
  if (string.text().empty()) times = 0;
  MOTLEY_TRY_VOID(runtime.reserve(
      times, string.text().size() + (string.marked.untrusted.size() * sizeof(Span))));
  MOTLEY_TRY_VOID(runtime.scan(times * string.text().size()));
  MarkedText result;
  result.text.reserve(times * string.text().size());
  for (std::size_t i = 0; i < times; ++i) result.append(string.marked);
  return runtime.text(std::move(result), string.markup);
}

Result<Value> add_texts(Runtime& runtime, const String& left, const String& right) {
  MOTLEY_TRY_VOID(runtime.scan(left.text().size() + right.text().size()));
  const bool markup = left.markup || right.markup;
  MarkedText result = markup ? escaped(left) : left.marked;
  result.append(markup ? escaped(right) : right.marked);
  return runtime.text(std::move(result), markup);
}

MarkedText escaped(const String& string) {
  constexpr std::string_view special = "&<>'\"";
  constexpr std::string_view entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  if (string.markup) return string.marked;
  const std::string_view text = string.text();
  MarkedText result;
  std::size_t begin = 0;
  while (true) {
    const std::size_t at = std::min(text.find_first_of(special, begin), text.size());
    if (at > begin) result.append(string.marked.part(begin, at));
    if (at == text.size()) return result;
    result.append(entities[special.find(text[at])], string.marked.any_untrusted(at, at + 1));
    begin = at + 1;
  }
}

Value escape_html(Runtime& runtime, const String& string) {
  return runtime.text(escaped(string), true);
}

Result<Value> strip(Runtime& runtime, const String& string, Side side, const String* set) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  const std::u32string characters = set == nullptr ? std::u32string() : character_set(set->text());
  const auto goes = [&](std::size_t at) {
    const char32_t character = character_at(text, at).code_point;
    return set == nullptr ? is_space(character) : std::ranges::binary_search(characters, character);
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  if (side != Side::right) {
    while (begin < end && goes(begin)) begin += character_at(text, begin).bytes;
  }
  if (side != Side::left) {
    while (end > begin && goes(character_before(text, end))) end = character_before(text, end);
  }
  return part_of(runtime, string, begin, end);
}

Result<std::vector<Value>> split(Runtime& runtime, const String& string, const String* separator,
                                 std::int64_t most) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  if (separator == nullptr) return split_spaces(runtime, string, most);
  if (separator->text().empty()) return failure("empty separator");
  std::vector<Value> parts;
  std::size_t begin = 0;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = find_first(text, separator->text(), begin);
    if (at == nowhere) break;
    MOTLEY_TRY_VOID(runtime.step());
    parts.push_back(part_of(runtime, string, begin, at));
    begin = at + separator->text().size();
  }
  parts.push_back(part_of(runtime, string, begin, text.size()));
  return parts;
}

Result<std::vector<Value>> split_from_right(Runtime& runtime, const String& string,
                                            const String* separator, std::int64_t most) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  if (separator == nullptr) return split_spaces_from_right(runtime, string, most);
  if (separator->text().empty()) return failure("empty separator");
  std::vector<Value> parts;
  std::size_t end = text.size();
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    MOTLEY_TRY(const std::size_t at, find_last(runtime, text.substr(0, end), separator->text()));
    if (at == nowhere) break;
    parts.push_back(part_of(runtime, string, at + separator->text().size(), end));
    end = at;
  }
  parts.push_back(part_of(runtime, string, 0, end));
  std::ranges::reverse(parts);
  return parts;
}

Result<std::vector<Value>> split_lines(Runtime& runtime, const String& string, bool keep_ends) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const std::size_t line_end = at;
    at += character.bytes;
    if (!is_line_end(character.code_point)) continue;
    if (character.code_point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(part_of(runtime, string, begin, keep_ends ? at : line_end));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(part_of(runtime, string, begin, text.size()));
  return lines;
}

Result<Value> partition(Runtime& runtime, const String& string, const String& separator,
                        bool from_right) {
  if (separator.text().empty()) return failure("empty separator");
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  std::size_t at = nowhere;
  if (from_right) {
    MOTLEY_TRY(at, find_last(runtime, text, separator.text()));
  } else {
    at = find_first(text, separator.text(), 0);
  }
  const Value empty = runtime.text(MarkedText(), string.markup);
  const Value whole = part_of(runtime, string, 0, text.size());
  if (at == nowhere)
    return from_right ? runtime.tuple({empty, empty, whole}) : runtime.tuple({whole, empty, empty});
  const std::size_t end = at + separator.text().size();
  return runtime.tuple({part_of(runtime, string, 0, at), part_of(runtime, string, at, end),
                        part_of(runtime, string, end, text.size())});
}

Result<Value> replace(Runtime& runtime, const String& string, const String& old,
                      const String& replacement, std::int64_t most) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  const MarkedText& put = replacement.marked;
  const std::size_t weight = put.text.size() + (put.untrusted.size() * sizeof(Span)) + sizeof(Span);
  MarkedText result;
  std::size_t begin = 0;
  std::size_t from = 0;  // where the search continues
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    const std::size_t at = from > text.size() ? nowhere : find_first(text, old.text(), from);
    if (at == nowhere) break;
    MOTLEY_TRY_VOID(runtime.scan(put.text.size()));
    MOTLEY_TRY_VOID(runtime.reserve(static_cast<std::size_t>(done) + 1, weight));
    if (at > begin) result.append(string.marked.part(begin, at));
    result.append(put);
    begin = at + old.text().size();
    from = begin;
    // An empty needle is found before every character and at the end.
    if (old.text().empty()) from += at < text.size() ? character_at(text, at).bytes : 1;
  }
  if (begin < text.size()) result.append(string.marked.part(begin, text.size()));
  return runtime.text(std::move(result), string.markup);
}

Result<Value> in_case(Runtime& runtime, const String& string, Case wanted) {
  MOTLEY_TRY_VOID(runtime.scan(string.text().size()));
  return change_case(runtime, string, [wanted](char32_t) { return wanted; });
}

Result<Value> capitalized(Runtime& runtime, const String& string) {
  MOTLEY_TRY_VOID(runtime.scan(string.text().size()));
  bool first = true;
  return change_case(runtime, string, [&first](char32_t) {
    return std::exchange(first, false) ? Case::title : Case::lower;
  });
}

Result<Value> titled(Runtime& runtime, const String& string) {
  MOTLEY_TRY_VOID(runtime.scan(string.text().size()));
  bool inside = false;
  return change_case(runtime, string, [&inside](char32_t character) {
    return std::exchange(inside, is_cased(character)) ? Case::lower : Case::title;
  });
}

Result<Value> padded(Runtime& runtime, const String& string, std::int64_t width, const String* fill,
                     Side side) {
  if (fill != nullptr && length_of(*fill) != 1)
    return failure("The fill character must be exactly one character long");
  const auto length = static_cast<std::int64_t>(length_of(string));
  const std::size_t missing = width > length ? static_cast<std::size_t>(width - length) : 0;
  MOTLEY_TRY_VOID(runtime.reserve(missing, 4));
  MOTLEY_TRY_VOID(runtime.scan(missing + string.text().size()));
  std::size_t left = 0;
  if (side == Side::left) left = missing;
  // Python's rule for an odd number.
  if (side == Side::both) left = (missing / 2) + (missing & static_cast<std::size_t>(width) & 1);
  const MarkedText space{.text = " "};
  const MarkedText& unit = fill == nullptr ? space : fill->marked;
  MarkedText result;
  for (std::size_t i = 0; i < left; ++i) result.append(unit);
  result.append(string.marked);
  for (std::size_t i = left; i < missing; ++i) result.append(unit);
  return runtime.text(std::move(result), string.markup);
}

Result<SliceBounds> slice_bounds(std::size_t length, const Value& start, const Value& stop,
                                 const Value& step) {
  const auto size = static_cast<std::int64_t>(length);
  const auto given = [](const Value& value) -> Result<std::optional<std::int64_t>> {
    if (value.is(Kind::missing) || value.is(Kind::none)) return std::optional<std::int64_t>();
    if (value.is(Kind::boolean)) return std::optional<std::int64_t>(value.boolean() ? 1 : 0);
    if (value.is(Kind::integer)) return std::optional(value.integer());
    // Larger than any length.
    if (value.is(Kind::big_integer))
      return std::optional(is_negative(value.big_integer()) ? INT64_MIN : INT64_MAX);
    return failure("slice indices must be integers or None or have an __index__ method");
  };
  MOTLEY_TRY(const auto by, given(step));
  SliceBounds bounds;
  bounds.step = by.value_or(1);
  if (bounds.step == 0) return failure("slice step cannot be zero");
  const bool backward = bounds.step < 0;
  const std::int64_t lowest = backward ? -1 : 0;
  const std::int64_t highest = backward ? size - 1 : size;
  const auto clamped = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? std::max(*at, -size - 1) + size : *at, lowest, highest);
  };
  MOTLEY_TRY(const auto from, given(start));
  MOTLEY_TRY(const auto to, given(stop));
  bounds.start = clamped(from, backward ? highest : lowest);
  const std::int64_t end = clamped(to, backward ? lowest : highest);
  const std::int64_t distance = backward ? bounds.start - end : end - bounds.start;
  if (distance <= 0) return bounds;
  // The magnitude of the step, without overflow for the smallest integer.
  const std::uint64_t magnitude = backward ? ~static_cast<std::uint64_t>(bounds.step) + 1
                                           : static_cast<std::uint64_t>(bounds.step);
  bounds.count =
      static_cast<std::size_t>(((static_cast<std::uint64_t>(distance) - 1) / magnitude) + 1);
  return bounds;
}

Result<Value> slice_text(Runtime& runtime, const String& string, const SliceBounds& bounds) {
  MOTLEY_TRY_VOID(runtime.scan(string.text().size()));
  const auto start = static_cast<std::size_t>(std::max<std::int64_t>(bounds.start, 0));
  if (bounds.count == 0) return runtime.text(MarkedText(), string.markup);
  if (bounds.step == 1) return characters_of(runtime, string, start, start + bounds.count);
  std::vector<std::size_t> begins;
  for (std::size_t at = 0; at < string.text().size(); at += character_at(string.text(), at).bytes)
    begins.push_back(at);
  begins.push_back(string.text().size());
  MarkedText result;
  auto at = bounds.start;
  for (std::size_t i = 0; i < bounds.count; ++i) {
    const auto index = static_cast<std::size_t>(at);
    result.append(string.marked.part(begins[index], begins[index + 1]));
    if (i + 1 < bounds.count) at += bounds.step;
  }
  return runtime.text(std::move(result), string.markup);
}

}  // namespace motley::text::jinja
