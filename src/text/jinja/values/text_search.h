#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"

// Searches in linear time for any text and needle; string_view's take their product at worst.
namespace motley::text::jinja {

inline constexpr std::size_t nowhere = std::string_view::npos;

// The first place at or after `from`, which is at most the text's size; `nowhere` if there is none.
// The caller counts the text's bytes once for searches that continue each other.
std::size_t find_first(std::string_view text, std::string_view needle, std::size_t from = 0);

// Searches for one needle from the end of texts. Counts its steps and its memory.
class BackwardSearch {
 public:
  static Result<BackwardSearch> prepare(Runtime& runtime, std::string_view needle);

  // The last place where the needle ends within the text.
  Result<std::size_t> find_last(Runtime& runtime, std::string_view text) const;

 private:
  explicit BackwardSearch(std::string_view needle) : needle_(needle) {}
  char from_end(std::size_t at) const { return needle_[needle_.size() - 1 - at]; }

  std::string_view needle_;
  // Of Knuth, Morris and Pratt, for the reversed needle: the longest proper prefix of its first
  // i + 1 characters that is also their suffix.
  std::vector<std::uint32_t> borders_;
};

}  // namespace motley::text::jinja
