#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::text {

// Limits of one rendering; beyond them it fails. The defaults allow conversations of millions of
// tokens, and stop templates that do not end.
struct RenderLimits {
  std::int64_t steps = 20'000'000;  // nodes visited, values compared, 64-byte pieces of text read
  int depth = 400;                  // nesting of expressions, statements and values
  std::size_t output_bytes = std::size_t{64} << 20;
  // All values ever created, and what the current operations hold.
  std::size_t memory_bytes = std::size_t{512} << 20;
};

}  // namespace motley::text
