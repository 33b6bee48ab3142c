#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "base/number_types.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/linear/dense_select.h"
#include "kernels/cuda/linear/joined.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/tuned_thresholds.h"

namespace motley::kernels::cuda {
namespace {

// Launches the problem's first products with the kernel that the thresholds select. `ahead` follows
// after all of them.
DenseChoice run_first(const DenseProblem& problem, const Ahead& ahead, StreamHandle stream) {
  const std::span<const DenseThreshold> table = device_of(stream).thresholds().dense();
  const DenseChoice choice = select_dense(problem, table);
  MOTLEY_CHECK(choice.kernel != nullptr, no_dense_kernel(problem, table).message());
  DenseProblem first = problem;
  first.products = problem.products.first(choice.products);
  const bool all = choice.products == problem.products.size();
  choice.kernel->run(first, all ? ahead : Ahead{}, stream);
  return choice;
}

MatmulLibrary* library_of(StreamHandle stream) { return &device_of(stream).matmuls(); }

DenseProblem problem_of(const Linears& p, StreamHandle stream) {
  return {.products = {p.all, static_cast<std::size_t>(p.count)},
          .library = library_of(stream),
          .inputs = p.inputs,
          .coded = p.coded};
}

// The kernel that takes all of the products with the codes of their inputs; null: none does.
const DenseKernel* coded_kernel_for(const DenseProblem& problem, StreamHandle stream) {
  const DenseChoice choice = select_dense(problem, device_of(stream).thresholds().dense());
  const bool takes_all = choice.kernel != nullptr && choice.kernel->codes_inputs &&
                         choice.products == problem.products.size();
  return takes_all ? choice.kernel : nullptr;
}

// Bytes of a row of an unquantised weight; 0 for other weights.
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

// Rounds to bf16 after kernels that only write y.
void round_heads(const LinearPerHead& p, StreamHandle stream) {
  const Linear& l = p.product;
  RoundTo round{.rows = l.rows,
                .width = p.transposed ? l.w.in : l.out,
                .x = l.y,
                .x_stride = l.y_stride,
                .out = p.rounded,
                .out_type = DType::bf16,
                .out_stride = p.rounded_stride};
  // One launch, if heads are equally far apart across all rows.
  if (l.y_stride == l.heads * l.y_head_stride &&
      p.rounded_stride == l.heads * p.rounded_head_stride) {
    round.rows = l.rows * l.heads;
    round.x_stride = l.y_head_stride;
    round.out_stride = p.rounded_head_stride;
    return round_to(round, stream);
  }
  for (std::int64_t head = 0; head < l.heads; ++head) {
    round.x = l.y + head * l.y_head_stride;
    round.out = static_cast<motley::bf16*>(p.rounded) + head * p.rounded_head_stride;
    round_to(round, stream);
  }
}

}  // namespace

bool Joined::continues(const Linear& a, const Linear& b) {
  const auto whole = [](const Linear& p) {
    return p.heads == 1 && p.w_first == 0 && p.out == p.w.out;
  };
  return whole(a) && whole(b) && plain_row_bytes(a.w) > 0 && a.w.kind == b.w.kind &&
         a.w.in == b.w.in && a.y + a.out == b.y && a.y_stride == b.y_stride &&
         static_cast<const std::byte*>(a.w.data) + a.out * plain_row_bytes(a.w) == b.w.data;
}

void linear(const Linear& p, StreamHandle stream) {
  run_first({.products = {&p, 1}, .library = library_of(stream)}, {}, stream);
}

bool takes_codes(const Linears& p, StreamHandle stream) {
  return coded_kernel_for(problem_of(p, stream), stream) != nullptr;
}

void linears(const Linears& p, StreamHandle stream) {
  const std::span all(p.all, static_cast<std::size_t>(p.count));
  if (p.inputs != nullptr) {
    const DenseProblem problem = problem_of(p, stream);
    if (const DenseKernel* const kernel = coded_kernel_for(problem, stream))
      return kernel->run(problem, {}, stream);
    MOTLEY_CHECK(!p.coded, "codes for products that take them");
    arrange_inputs(*p.inputs, stream);
  }
  for (std::size_t begin = 0; begin < all.size(); begin += Joined::max_joined) {
    const std::size_t count = std::min(all.size() - begin, Joined::max_joined);
    const Ahead ahead = begin + count == all.size() ? p.ahead : Ahead{};
    const Joined joined(all.subspan(begin, count));
    std::span<const Linear> left = joined.span();
    while (!left.empty())
      left = left.subspan(
          run_first({.products = left, .library = library_of(stream)}, ahead, stream).products);
  }
}

void linear_transposed(const LinearTransposed& p, StreamHandle stream) {
  run_first({.products = {&p, 1}, .library = library_of(stream), .transposed = true}, {}, stream);
}

void linear_per_head(const LinearPerHead& p, StreamHandle stream) {
  if (p.product.rows <= 0 || p.product.heads <= 0) return;
  const DenseChoice choice = run_first({.products = {&p.product, 1},
                                        .library = library_of(stream),
                                        .transposed = p.transposed,
                                        .per_head = &p},
                                       {}, stream);
  if (p.rounded != nullptr && !choice.kernel->rounds) round_heads(p, stream);
}

}  // namespace motley::kernels::cuda
