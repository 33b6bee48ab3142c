#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motley::cli {

// One of those that answer, and what has come of its answer.
struct Voice {
  std::string name;
  std::string text = {};
  std::int64_t tokens = 0;
  bool ended = false;
  bool cut_off = false;  // by length
  bool failed = false;   // text says why
};

struct Canvas {
  std::size_t width = 80;  // columns
  // Lines that there are; where the answers need more, the last ones of each are shown.
  std::optional<std::size_t> height = {};
};

// The voices beside each other as the width has room for them, in lines without their ends, colours
// and weights as escape sequences. No line is wider than the canvas.
std::vector<std::string> side_by_side(const std::vector<Voice>& voices, const Canvas& canvas);

// Lines of at most `width` columns, broken at spaces where there are any. Control characters, which
// could move a terminal's cursor, become U+FFFD.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// Columns that a terminal gives the text, which holds no control characters.
std::size_t columns_of(std::string_view text);

}  // namespace motley::cli
