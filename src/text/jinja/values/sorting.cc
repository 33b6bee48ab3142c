#include "text/jinja/values/sorting.h"

#include <algorithm>
#include <numeric>

#include "text/jinja/operators.h"

namespace motley::text::jinja {
namespace {

// A merge sort of positions by their keys.
class Sorter {
 public:
  Sorter(Runtime& runtime, const std::vector<Value>& keys, bool descending)
      : runtime_(runtime), keys_(keys), descending_(descending) {}

  Result<std::vector<std::size_t>> run() {
    const std::size_t size = keys_.size();
    MOTLEY_TRY_VOID(runtime_.reserve(2 * size, sizeof(std::size_t)));
    order_.resize(size);
    merged_.resize(size);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    for (std::size_t run = 1; run < size; run *= 2) {
      for (std::size_t begin = 0; begin < size; begin += 2 * run)
        MOTLEY_TRY_VOID(
            merge(begin, std::min(begin + run, size), std::min(begin + (2 * run), size)));
      order_.swap(merged_);
    }
    return std::move(order_);
  }

 private:
  // Merges two adjacent sorted runs. Equal elements of the left run come first.
  Result<void> merge(std::size_t begin, std::size_t middle, std::size_t end) {
    MOTLEY_TRY_VOID(runtime_.step((end - begin) / 8));
    std::size_t left = begin;
    std::size_t right = middle;
    for (std::size_t at = begin; at < end; ++at) {
      bool takes_right = left == middle;
      if (left < middle && right < end) {
        const Value& ours = keys_[order_[left]];
        const Value& theirs = keys_[order_[right]];
        MOTLEY_TRY(takes_right, descending_ ? compare(runtime_, Order::less, ours, theirs)
                                            : compare(runtime_, Order::less, theirs, ours));
      }
      merged_[at] = order_[takes_right ? right++ : left++];
    }
    return {};
  }

  Runtime& runtime_;
  const std::vector<Value>& keys_;
  bool descending_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> merged_;
};

}  // namespace

// Not std::stable_sort, because comparisons can fail.
Result<std::vector<std::size_t>> sorted_order(Runtime& runtime, const std::vector<Value>& keys,
                                              bool descending) {
  return Sorter(runtime, keys, descending).run();
}

}  // namespace motley::text::jinja
