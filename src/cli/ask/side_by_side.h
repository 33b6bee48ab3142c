#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motley::cli {

// One of the answering models, and its answer so far.
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
  // Available lines; if the answers need more, the last ones of each are shown.
  std::optional<std::size_t> height = {};
};

// The voices in columns as the width allows, as lines without line ends; colours and weights are
// escape sequences. No line is wider than the canvas.
std::vector<std::string> side_by_side(const std::vector<Voice>& voices, const Canvas& canvas);

// Lines of at most `width` columns, broken at spaces if possible. Control characters, which could
// move a terminal's cursor, become U+FFFD.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// The columns of a text on a terminal; it must have no control characters.
std::size_t columns_of(std::string_view text);

}  // namespace motley::cli
