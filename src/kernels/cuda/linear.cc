#include "kernels/cuda/linear.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/cuda/elementary.h"

namespace motley::kernels::cuda {
namespace {

// Where slabs can't serve: so few rows that no tile of the library's is full, and weights so small
// that launches and their ends cost as much as the bytes. There streams win, and sooner where they
// save launches.
constexpr std::int64_t few_rows = 8;
constexpr std::int64_t few_rows_together = 32;
constexpr std::int64_t small_weights = std::int64_t{8} << 20;  // numbers
constexpr std::int64_t small_weights_together = std::int64_t{12} << 20;

std::int64_t numbers_of(const Linear& p) { return p.heads * p.out * p.w.in; }

bool may_run_together(const Linear& a, const Linear& b) {
  return !b.batch_invariant && a.rows == b.rows && a.w.in == b.w.in && a.w.kind == b.w.kind &&
         a.w.block_columns == b.w.block_columns && linear_streams_supports(b);
}

// Larger weights are read as fast by the library, whose tiles have the better of many rows sooner.
constexpr std::int64_t slab_weights = std::int64_t{32} << 20;  // numbers
constexpr std::int64_t slab_weights_more_rows = std::int64_t{12} << 20;

bool suits_slabs(const Linear& p) {
  return !p.batch_invariant && linear_slabs_supports(p) &&
         numbers_of(p) <= (p.rows <= few_rows ? slab_weights : slab_weights_more_rows);
}

// How many of the first products slabs do in one launch.
std::size_t count_slabs(std::span<const Linear> products) {
  std::size_t count = 0;
  while (count < std::min(products.size(), linear_slabs_most) && suits_slabs(products[count]) &&
         products[count].rows == products[0].rows && products[count].w.in == products[0].w.in)
    ++count;
  return count;
}

// How many of the first products are better done in one launch of streams.
std::size_t count_together(std::span<const Linear> products) {
  std::int64_t numbers = 0;
  std::size_t count = 0;
  while (count < std::min(products.size(), linear_streams_most) &&
         may_run_together(products[0], products[count]))
    numbers += numbers_of(products[count++]);
  const bool few = products[0].rows <= few_rows_together && numbers <= small_weights_together;
  return few || products[0].w.kind != WeightKind::bf16 ? count : 0;
}

// Bytes of a row of a plain weight; 0 for the others.
std::int64_t plain_row_bytes(const WeightView& w) {
  switch (w.kind) {
    case WeightKind::f32:
      return 4 * w.in;
    case WeightKind::f16:
    case WeightKind::bf16:
      return 2 * w.in;
    default:
      return 0;
  }
}

// Whether both, of the same rows of x, are one product: weights and results lie side by side.
bool continues(const Linear& a, const Linear& b) {
  const auto whole = [](const Linear& p) {
    return p.heads == 1 && p.w_first == 0 && p.out == p.w.out;
  };
  return whole(a) && whole(b) && plain_row_bytes(a.w) > 0 && a.w.kind == b.w.kind &&
         a.w.in == b.w.in && a.y + a.out == b.y && a.y_stride == b.y_stride &&
         static_cast<const std::byte*>(a.w.data) + a.out * plain_row_bytes(a.w) == b.w.data;
}

// Products of one x, neighbours that are one in one.
std::size_t join(const Linears& p, std::span<Linear> joined) {
  std::size_t count = 0;
  for (const Linear& next : std::span(p.all, static_cast<std::size_t>(p.count))) {
    if (count > 0 && continues(joined[count - 1], next)) {
      Linear& last = joined[count - 1];
      last.out += next.out;
      last.w.out = last.w_rows_per_head = last.out;
    } else {
      joined[count++] = next;
    }
  }
  return count;
}

}  // namespace

void linear(const Linear& p, StreamHandle stream) {
  if (suits_slabs(p)) return linear_slabs({&p, 1}, {}, stream);
  const bool streams = linear_streams_supports(p);
  const bool few = p.rows <= few_rows && numbers_of(p) <= small_weights;
  if (!(streams && few && !p.batch_invariant) && linear_library(p, stream)) return;
  if (streams) return linear_streams({&p, 1}, stream);
  linear_exact(p, stream);
}

namespace {

// Products of one x, neighbours in memory joined.
class Joined {
 public:
  explicit Joined(const Linears& p) : count_(join(p, joined_)) {}
  std::span<const Linear> span() const { return {joined_.data(), count_}; }

  static constexpr std::int64_t most = 8;

 private:
  std::array<Linear, most> joined_;
  std::size_t count_;
};

}  // namespace

void linears(const Linears& p, StreamHandle stream) {
  if (p.count > Joined::most) {
    linears({.all = p.all, .count = Joined::most}, stream);
    return linears({.all = p.all + Joined::most, .count = p.count - Joined::most, .ahead = p.ahead},
                   stream);
  }
  const Joined joined(p);
  std::span<const Linear> left = joined.span();
  while (!left.empty()) {
    std::size_t count = count_slabs(left);
    if (count > 0) {
      linear_slabs(left.first(count), count == left.size() ? p.ahead : Ahead{}, stream);
    } else if (count = count_together(left); count > 1) {
      linear_streams(left.first(count), stream);
    } else {
      count = 1;
      linear(left[0], stream);
    }
    left = left.subspan(count);
  }
}

void norm_and_linears(const NormAndLinears& p, StreamHandle stream) {
  add_and_norm(p.rows, stream);
  linears(p.products, stream);
}

void linear_transposed(const LinearTransposed& p, StreamHandle stream) {
  if (!linear_transposed_library(p, stream)) linear_transposed_exact(p, stream);
}

}  // namespace motley::kernels::cuda
