#include "base/spelling.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace motley {
namespace {

// The number of insertions, deletions, replacements and swaps of adjacent letters between two
// words.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string_view> closest(std::string_view word,
                                        std::span<const std::string_view> candidates) {
  // Up to a third of the letters may be wrong; otherwise it is another word.
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::optional<std::string_view> best;
  for (const std::string_view candidate : candidates) {
    // Words of very different lengths are no candidates, and need no comparison.
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter >= best_distance) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace motley
