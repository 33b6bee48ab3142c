#include "text/jinja/sorting.h"

#include <algorithm>
#include <numeric>

#include "text/jinja/operators.h"

namespace motley::text::jinja {
namespace {

// Merges two neighbouring sorted runs. The right one goes first only where it must.
Result<void> merge(Runtime& runtime, const std::vector<Value>& keys, bool descending,
                   const std::vector<std::size_t>& from, std::vector<std::size_t>& to,
                   std::size_t begin, std::size_t middle, std::size_t end) {
  std::size_t left = begin;
  std::size_t right = middle;
  for (std::size_t at = begin; at < end; ++at) {
    bool takes_right = left == middle;
    if (left < middle && right < end) {
      const Value& ours = keys[from[left]];
      const Value& theirs = keys[from[right]];
      MOTLEY_TRY(takes_right, descending ? compare(runtime, Order::less, ours, theirs)
                                         : compare(runtime, Order::less, theirs, ours));
    }
    to[at] = from[takes_right ? right++ : left++];
  }
  return {};
}

}  // namespace

// By hand: the comparison can fail, which std::stable_sort has no way to say.
Result<std::vector<std::size_t>> sorted_order(Runtime& runtime, const std::vector<Value>& keys,
                                              bool descending) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::size_t> merged(keys.size());
  for (std::size_t run = 1; run < keys.size(); run *= 2) {
    for (std::size_t begin = 0; begin < keys.size(); begin += 2 * run) {
      const std::size_t middle = std::min(begin + run, keys.size());
      const std::size_t end = std::min(begin + (2 * run), keys.size());
      MOTLEY_TRY_VOID(merge(runtime, keys, descending, order, merged, begin, middle, end));
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace motley::text::jinja
