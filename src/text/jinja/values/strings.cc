#include "text/jinja/values/strings.h"

#include <algorithm>
#include <bit>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/values/big_integer.h"
#include "text/jinja/values/text_search.h"

namespace motley::text::jinja {
namespace {

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

// The characters of a text, each once, in order.
Result<std::u32string> character_set(Runtime& runtime, std::string_view text) {
  // Sorting takes a step for some characters.
  MOTLEY_TRY_VOID(runtime.step(1 + (text.size() / 4)));
  MOTLEY_TRY_VOID(runtime.reserve(text.size(), sizeof(char32_t)));
  std::u32string set;
  set.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    set += character.code_point;
    at += character.bytes;
  }
  std::ranges::sort(set);
  set.erase(std::ranges::unique(set).begin(), set.end());
  return set;
}

// Parts of a string, each counted as it is made.
class Parts {
 public:
  Parts(Runtime& runtime, const String& string) : runtime_(runtime), string_(string) {}

  Result<void> add(std::size_t begin, std::size_t end) {
    MOTLEY_TRY(const Value part, part_of(runtime_, string_, begin, end));
    if (parts_.size() == parts_.capacity())
      MOTLEY_TRY_VOID(runtime_.reserve(1 + (3 * parts_.size()), sizeof(Value)));
    parts_.push_back(part);
    return {};
  }
  bool has(std::int64_t count) const { return static_cast<std::int64_t>(parts_.size()) == count; }
  std::vector<Value> take() { return std::move(parts_); }
  std::vector<Value> take_reversed() {
    std::ranges::reverse(parts_);
    return take();
  }

 private:
  Runtime& runtime_;
  const String& string_;
  std::vector<Value> parts_;
};

Result<std::vector<Value>> split_spaces(Runtime& runtime, const String& string, std::int64_t most) {
  const std::string_view text = string.text();
  Parts parts(runtime, string);
  std::size_t at = skip_spaces(text, 0);
  while (at < text.size()) {
    if (parts.has(most)) {
      MOTLEY_TRY_VOID(parts.add(at, text.size()));
      break;
    }
    const std::size_t end = skip_word(text, at);
    MOTLEY_TRY_VOID(parts.add(at, end));
    at = skip_spaces(text, end);
  }
  return parts.take();
}

Result<std::vector<Value>> split_spaces_from_right(Runtime& runtime, const String& string,
                                                   std::int64_t most) {
  const std::string_view text = string.text();
  Parts parts(runtime, string);
  std::size_t end = skip_back(text, text.size(), true);
  while (end > 0) {
    if (parts.has(most)) {
      MOTLEY_TRY_VOID(parts.add(0, end));
      break;
    }
    const std::size_t begin = skip_back(text, end, false);
    MOTLEY_TRY_VOID(parts.add(begin, end));
    end = skip_back(text, begin, true);
  }
  return parts.take_reversed();
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
Result<Value> change_case(Runtime& runtime, const String& string, Choose choose) {
  constexpr char32_t sigma = 0x3A3;
  constexpr char32_t final_sigma = 0x3C2;
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  TextBuilder result(runtime);
  std::string changed;
  const auto convert = [&](std::size_t at, std::size_t end, bool untrusted) -> Result<void> {
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
      if (changed.size() < piece_bytes) continue;
      MOTLEY_TRY_VOID(result.append(changed, untrusted));
      changed.clear();
    }
    return result.append(changed, untrusted);
  };
  MOTLEY_TRY_VOID(for_each_run(string.marked, convert));
  return result.finish(string.markup);
}

}  // namespace

std::size_t length_of(const String& string) {
  return string.ascii ? string.text().size() : static_cast<std::size_t>(utf8::count(string.text()));
}

Result<Value> part_of(Runtime& runtime, const String& string, std::size_t begin_byte,
                      std::size_t end_byte) {
  TextBuilder part(runtime);
  MOTLEY_TRY_VOID(runtime.step());
  MOTLEY_TRY_VOID(part.append_part(string.marked, begin_byte, end_byte));
  return part.finish(string.markup);
}

Result<Value> characters_of(Runtime& runtime, const String& string, std::size_t begin,
                            std::size_t end) {
  if (string.ascii) return part_of(runtime, string, begin, end);
  const std::size_t first = byte_of_character(string.text(), begin);
  const std::size_t size = byte_of_character(string.text().substr(first), end - begin);
  return part_of(runtime, string, first, first + size);
}

Result<Value> repeat_text(Runtime& runtime, const String& string, std::size_t times) {
  if (string.text().empty()) times = 0;
  TextBuilder result(runtime);
  MOTLEY_TRY_VOID(result.append_times(string.marked, times));
  return result.finish(string.markup);
}

Result<Value> add_texts(Runtime& runtime, const String& left, const String& right) {
  const bool markup = left.markup || right.markup;
  TextBuilder result(runtime);
  for (const String* const each : {&left, &right}) {
    MOTLEY_TRY_VOID(markup && !each->markup ? append_escaped(result, each->marked)
                                            : result.append(each->marked));
  }
  return result.finish(markup);
}

Result<void> append_escaped(TextBuilder& out, const MarkedText& text) {
  constexpr std::string_view special = "&<>'\"";
  constexpr std::string_view entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  return for_each_run(
      text, [&](std::size_t begin, std::size_t end, bool untrusted) -> Result<void> {
        const std::string_view run = std::string_view(text.text).substr(begin, end - begin);
        for (std::size_t from = 0; from < run.size();) {
          const std::size_t at = std::min(run.find_first_of(special, from), run.size());
          MOTLEY_TRY_VOID(out.append(run.substr(from, at - from), untrusted));
          if (at < run.size())
            MOTLEY_TRY_VOID(out.append(entities[special.find(run[at])], untrusted));
          from = at + 1;
        }
        return {};
      });
}

Result<Value> escape_html(Runtime& runtime, const String& string) {
  TextBuilder result(runtime);
  MOTLEY_TRY_VOID(runtime.step());
  MOTLEY_TRY_VOID(string.markup ? result.append(string.marked)
                                : append_escaped(result, string.marked));
  return result.finish(true);
}

Result<Value> strip(Runtime& runtime, const String& string, Side side, const String* set) {
  const std::string_view text = string.text();
  std::u32string characters;
  if (set != nullptr) {
    MOTLEY_TRY(characters, character_set(runtime, set->text()));
  }
  // Each character is looked up in the set.
  MOTLEY_TRY_VOID(runtime.step(1 + (text.size() / 64 * (1 + std::bit_width(characters.size())))));
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
  Parts parts(runtime, string);
  std::size_t begin = 0;
  while (!parts.has(most)) {
    const std::size_t at = find_first(text, separator->text(), begin);
    if (at == nowhere) break;
    MOTLEY_TRY_VOID(parts.add(begin, at));
    begin = at + separator->text().size();
  }
  MOTLEY_TRY_VOID(parts.add(begin, text.size()));
  return parts.take();
}

Result<std::vector<Value>> split_from_right(Runtime& runtime, const String& string,
                                            const String* separator, std::int64_t most) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  if (separator == nullptr) return split_spaces_from_right(runtime, string, most);
  if (separator->text().empty()) return failure("empty separator");
  MOTLEY_TRY(const BackwardSearch search, BackwardSearch::prepare(runtime, separator->text()));
  Parts parts(runtime, string);
  std::size_t end = text.size();
  while (!parts.has(most)) {
    MOTLEY_TRY(const std::size_t at, search.find_last(runtime, text.substr(0, end)));
    if (at == nowhere) break;
    MOTLEY_TRY_VOID(parts.add(at + separator->text().size(), end));
    end = at;
  }
  MOTLEY_TRY_VOID(parts.add(0, end));
  return parts.take_reversed();
}

Result<std::vector<Value>> split_lines(Runtime& runtime, const String& string, bool keep_ends) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  Parts lines(runtime, string);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const std::size_t line_end = at;
    at += character.bytes;
    if (!is_line_end(character.code_point)) continue;
    if (character.code_point == '\r' && at < text.size() && text[at] == '\n') ++at;
    MOTLEY_TRY_VOID(lines.add(begin, keep_ends ? at : line_end));
    begin = at;
  }
  if (begin < text.size()) MOTLEY_TRY_VOID(lines.add(begin, text.size()));
  return lines.take();
}

Result<Value> partition(Runtime& runtime, const String& string, const String& separator,
                        bool from_right) {
  if (separator.text().empty()) return failure("empty separator");
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  std::size_t at = nowhere;
  if (from_right) {
    MOTLEY_TRY(const BackwardSearch search, BackwardSearch::prepare(runtime, separator.text()));
    MOTLEY_TRY(at, search.find_last(runtime, text));
  } else {
    at = find_first(text, separator.text());
  }
  // Not found: the whole text, and two empty ones after or before it.
  const std::size_t begin = at != nowhere ? at : from_right ? 0 : text.size();
  const std::size_t end = at == nowhere ? begin : at + separator.text().size();
  MOTLEY_TRY(const Value before, part_of(runtime, string, 0, begin));
  MOTLEY_TRY(const Value found, part_of(runtime, string, begin, end));
  MOTLEY_TRY(const Value after, part_of(runtime, string, end, text.size()));
  return runtime.tuple({before, found, after});
}

Result<Value> replace(Runtime& runtime, const String& string, const String& old,
                      const String& replacement, std::int64_t most) {
  const std::string_view text = string.text();
  MOTLEY_TRY_VOID(runtime.scan(text.size()));
  TextBuilder result(runtime);
  std::size_t begin = 0;
  std::size_t from = 0;  // where the search continues
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    const std::size_t at = from > text.size() ? nowhere : find_first(text, old.text(), from);
    if (at == nowhere) break;
    MOTLEY_TRY_VOID(runtime.step());
    MOTLEY_TRY_VOID(result.append_part(string.marked, begin, at));
    MOTLEY_TRY_VOID(result.append(replacement.marked));
    begin = at + old.text().size();
    from = begin;
    // An empty needle is found before every character and at the end.
    if (old.text().empty()) from += at < text.size() ? character_at(text, at).bytes : 1;
  }
  MOTLEY_TRY_VOID(result.append_part(string.marked, begin, text.size()));
  return result.finish(string.markup);
}

Result<Value> in_case(Runtime& runtime, const String& string, Case wanted) {
  return change_case(runtime, string, [wanted](char32_t) { return wanted; });
}

Result<Value> capitalized(Runtime& runtime, const String& string) {
  bool first = true;
  return change_case(runtime, string, [&first](char32_t) {
    return std::exchange(first, false) ? Case::title : Case::lower;
  });
}

Result<Value> titled(Runtime& runtime, const String& string) {
  bool inside = false;
  return change_case(runtime, string, [&inside](char32_t character) {
    return std::exchange(inside, is_cased(character)) ? Case::lower : Case::title;
  });
}

Result<Value> padded(Runtime& runtime, const String& string, std::int64_t width, const String* fill,
                     Side side) {
  if (fill != nullptr && length_of(*fill) != 1)
    return failure("The fill character must be exactly one character long");
  MOTLEY_TRY_VOID(runtime.scan(string.text().size()));
  const auto length = static_cast<std::int64_t>(length_of(string));
  const std::size_t missing = width > length ? static_cast<std::size_t>(width - length) : 0;
  std::size_t left = 0;
  if (side == Side::left) left = missing;
  // Python's rule for an odd number.
  if (side == Side::both) left = (missing / 2) + (missing & static_cast<std::size_t>(width) & 1);
  const MarkedText space{.text = " "};
  const MarkedText& unit = fill == nullptr ? space : fill->marked;
  TextBuilder result(runtime);
  MOTLEY_TRY_VOID(result.append_times(unit, left));
  MOTLEY_TRY_VOID(result.append(string.marked));
  MOTLEY_TRY_VOID(result.append_times(unit, missing - left));
  return result.finish(string.markup);
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
  // Where each character begins.
  const std::size_t characters = length_of(string);
  MOTLEY_TRY_VOID(runtime.reserve(characters + 1, sizeof(std::size_t)));
  std::vector<std::size_t> begins;
  begins.reserve(characters + 1);
  for (std::size_t at = 0; at < string.text().size(); at += character_at(string.text(), at).bytes)
    begins.push_back(at);
  begins.push_back(string.text().size());
  TextBuilder result(runtime);
  MOTLEY_TRY_VOID(runtime.step(bounds.count / 4));
  auto at = bounds.start;
  for (std::size_t i = 0; i < bounds.count; ++i) {
    const auto index = static_cast<std::size_t>(at);
    MOTLEY_TRY_VOID(result.append_part(string.marked, begins[index], begins[index + 1]));
    if (i + 1 < bounds.count) at += bounds.step;
  }
  return result.finish(string.markup);
}

}  // namespace motley::text::jinja
