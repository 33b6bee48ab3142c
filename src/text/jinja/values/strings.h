#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/text_builder.h"
#include "text/jinja/values/value.h"

// Python's str methods, on strings that know which of their bytes are untrusted. Results keep the
// marks.
namespace motley::text::jinja {

std::size_t length_of(const String& string);

// Characters [begin, end) of a string, in steps of 1. The caller counts the search for them.
Result<Value> characters_of(Runtime& runtime, const String& string, std::size_t begin,
                            std::size_t end);

Result<Value> part_of(Runtime& runtime, const String& string, std::size_t begin_byte,
                      std::size_t end_byte);

Result<Value> repeat_text(Runtime& runtime, const String& string, std::size_t times);
Result<Value> add_texts(Runtime& runtime, const String& left, const String& right);

// Replaces &, <, >, ' and " by HTML entities, except in markup. The result is markup.
Result<void> append_escaped(TextBuilder& out, const MarkedText& text);
Result<Value> escape_html(Runtime& runtime, const String& string);

enum class Side : std::uint8_t { left, right, both };
// Removes characters of a set at the ends; no set: white space.
Result<Value> strip(Runtime& runtime, const String& string, Side side, const String* set);

// At most `most` splits; negative: all. No separator: runs of white space.
Result<std::vector<Value>> split(Runtime& runtime, const String& string, const String* separator,
                                 std::int64_t most);
Result<std::vector<Value>> split_from_right(Runtime& runtime, const String& string,
                                            const String* separator, std::int64_t most);
Result<std::vector<Value>> split_lines(Runtime& runtime, const String& string, bool keep_ends);
Result<Value> partition(Runtime& runtime, const String& string, const String& separator,
                        bool from_right);

// At most `most` replacements; negative: all.
Result<Value> replace(Runtime& runtime, const String& string, const String& old,
                      const String& replacement, std::int64_t most);

Result<Value> in_case(Runtime& runtime, const String& string, Case wanted);
Result<Value> capitalized(Runtime& runtime, const String& string);
// str.title(): words begin after characters without case.
Result<Value> titled(Runtime& runtime, const String& string);

// Padded on that side with a character to a width in characters; `both` centers.
Result<Value> padded(Runtime& runtime, const String& string, std::int64_t width, const String* fill,
                     Side side);

// Every `step`th character from `start` to before `stop`, as Python's slices clamp them.
struct SliceBounds {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::size_t count = 0;
};
Result<SliceBounds> slice_bounds(std::size_t length, const Value& start, const Value& stop,
                                 const Value& step);
Result<Value> slice_text(Runtime& runtime, const String& string, const SliceBounds& bounds);

}  // namespace motley::text::jinja
