#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::text {

// What one rendering may take before it ends in an error. The defaults allow conversations
// of millions of tokens, and none for templates that do not end.
struct RenderLimits {
  std::int64_t steps = 20'000'000;  // nodes visited, values compared, 64-byte pieces of text read
  int depth = 400;                  // expressions, statements and values inside each other
  std::size_t output_bytes = std::size_t{64} << 20;
  std::size_t memory_bytes = std::size_t{512} << 20;  // of all values ever made
};

}  // namespace motley::text
