#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// The first products of one x, at most max_joined, with contiguous ones merged.
class Joined {
 public:
  static constexpr std::size_t max_joined = 8;

  explicit Joined(std::span<const Linear> products) {
    for (const Linear& next : products) {
      if (count_ > 0 && continues(joined_[count_ - 1], next)) {
        Linear& last = joined_[count_ - 1];
        last.out += next.out;
        last.w.out = last.w_rows_per_head = last.out;
      } else {
        joined_[count_++] = next;
      }
    }
  }
  std::span<const Linear> span() const { return {joined_.data(), count_}; }

 private:
  // Whether two products of the same rows of x are one: weights and results are contiguous.
  static bool continues(const Linear& a, const Linear& b);

  std::array<Linear, max_joined> joined_;
  std::size_t count_ = 0;
};

}  // namespace motley::kernels::cuda
