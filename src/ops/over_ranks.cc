#include "ops/over_ranks.h"

#include <cmath>
#include <span>

#include "kernels/collectives.h"
#include "ops/check.h"
#include "ops/embed.h"
#include "tensor/arena.h"

namespace motley::ops {
namespace {

dist::Communicator& ranks_of(const Context& context) {
  MOTLEY_CHECK(context.ranks != nullptr, "a context of several ranks");
  return *context.ranks;
}

std::span<float> numbers_of(const tensor::Tensor& x) {
  MOTLEY_CHECK(x.dtype() == DType::f32 && x.is_contiguous(), "contiguous rows in f32");
  return {x.data<float>(), static_cast<std::size_t>(x.elements())};
}

DType crossing(const Context& context, bool exact = false) {
  return exact || context.exact ? DType::f32 : DType::bf16;
}

bool on_gpu(const tensor::ConstTensor& x) { return x.device().kind == tensor::DeviceKind::cuda; }

void sum_of_squares_on_cpu(const tensor::Tensor& x, float* sums) {
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    const float* const numbers = x.data<float>() + row * x.stride(0);
    float sum = 0;
    for (std::int64_t i = 0; i < x.dim(1); ++i) sum += numbers[i] * numbers[i];
    sums[row] = sum;
  }
}

void scale_on_cpu(const tensor::ConstTensor& weight, const CutNorm& norm, const float* sums,
                  const tensor::Tensor& x) {
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    float* const numbers = x.data<float>() + row * x.stride(0);
    const float mean = sums[row] / static_cast<float>(norm.whole_width);
    const float factor = 1.0F / std::sqrt(mean + norm.options.eps);
    for (std::int64_t i = 0; i < x.dim(1); ++i) numbers[i] *= factor * weight.data<float>()[i];
  }
}

}  // namespace

void sum_over_ranks(const Context& context, const tensor::Tensor& x, const SumOverRanks& sum) {
  // The group keeps its error.
  static_cast<void>(
      ranks_of(context)
          .all_reduce(numbers_of(x), sum.part,
                      {.stream = context.stream, .type = crossing(context, sum.exact)})
          .ok());
}

void max_over_ranks(const Context& context, const tensor::Tensor& x,
                    dist::Communicator::Part part) {
  static_cast<void>(ranks_of(context).all_max(numbers_of(x), part, context.stream).ok());
}

void input_maxima_over_ranks(const Context& context, const tensor::ConstTensor* x,
                             const CutRounding& cut, const tensor::Tensor& out) {
  MOTLEY_CHECK(out.dim(1) == cut.scales.count, "a maximum for each scale");
  if (x == nullptr) return max_over_ranks(context, out, dist::Communicator::Part::none);
  check_activation(*x, 2);
  MOTLEY_CHECK(x->dim(0) == out.dim(0), "as many rows as x");
  context.kernels->input_maxima({.rows = x->dim(0),
                                 .width = x->dim(1),
                                 .x = x->bytes(),
                                 .x_type = x->dtype(),
                                 .x_stride = x->stride(0),
                                 .rounding = cut.rounding,
                                 .scales = cut.scales.count,
                                 .first = cut.scales.first,
                                 .out = numbers_of(out).data()},
                                context.stream);
  max_over_ranks(context, out);
}

bool fits_sum_and_norm(const Context& context, const kernels::AddAndNorm& rows) {
  return ranks_of(context).fits_norm(rows, crossing(context));
}

void sum_and_norm_over_ranks(const Context& context, const kernels::AddAndNorm& rows,
                             dist::Communicator::Part part) {
  static_cast<void>(
      ranks_of(context)
          .sum_and_norm(rows, part, {.stream = context.stream, .type = crossing(context)})
          .ok());
}

void rms_norm_over_ranks(const Context& context, const tensor::ConstTensor& weight,
                         const CutNorm& norm, const tensor::Tensor& x) {
  check_float32(x, 2);
  check_float32(weight, 1);
  const std::int64_t rows = x.dim(0);
  const std::int64_t width = x.dim(1);
  MOTLEY_CHECK(weight.dim(0) == width, "a weight for each number");
  tensor::Arena& scratch = *context.scratch;
  const std::size_t mark = scratch.mark();
  const tensor::Tensor squares = scratch.allocate(DType::f32, {rows}).value();
  auto* const sums = squares.data<float>();
  const kernels::RowSquares own{
      .rows = rows, .width = width, .x = x.data<float>(), .x_stride = x.stride(0), .sums = sums};
  if (on_gpu(x)) {
    kernels::cuda::row_squares(own, context.stream);
  } else {
    sum_of_squares_on_cpu(x, sums);
  }
  sum_over_ranks(context, squares, {.part = norm.part, .exact = true});
  if (on_gpu(x)) {
    kernels::cuda::scale_by_norm({.squares = own,
                                  .whole_width = norm.whole_width,
                                  .eps = norm.options.eps,
                                  .weight = weight.data<float>(),
                                  .x = x.data<float>()},
                                 context.stream);
  } else {
    scale_on_cpu(weight, norm, sums, x);
  }
  scratch.rewind(mark);
}

void gather_over_ranks(const Context& context, const tensor::ConstTensor& x, dist::Range columns,
                       const tensor::Tensor& out) {
  check_float32(x, 2);
  check_float32(out, 2);
  MOTLEY_CHECK(x.dim(0) == out.dim(0) && x.dim(1) == columns.size(), "columns of the rows");
  dist::Communicator& ranks = ranks_of(context);
  static_cast<void>(ranks
                        .all_gather({.rows = x.dim(0),
                                     .own = x.data<float>(),
                                     .own_stride = x.stride(0),
                                     .width = out.dim(1),
                                     .columns = columns,
                                     .out = ranks.rank() == 0 ? out.data<float>() : nullptr,
                                     .out_stride = out.stride(0),
                                     .stream = context.stream})
                        .ok());
}

void gather_parts_over_ranks(const Context& context, std::byte* parts, std::int64_t bytes) {
  static_cast<void>(ranks_of(context)
                        .gather_parts({.data = parts, .bytes = bytes, .stream = context.stream})
                        .ok());
}

void shift_ids(const Context& context, const tensor::ConstTensor& ids, std::int32_t first,
               const tensor::Tensor& out) {
  MOTLEY_CHECK(ids.dtype() == DType::i32 && out.dtype() == DType::i32 &&
                   ids.shape() == out.shape() && ids.is_contiguous() && out.is_contiguous(),
               "contiguous ids in i32");
  const auto* const from = ids.data<std::int32_t>();
  auto* const to = out.data<std::int32_t>();
  if (on_gpu(out)) return kernels::cuda::shift_ids(from, first, out.elements(), to, context.stream);
  for (std::int64_t i = 0; i < out.elements(); ++i) to[i] = from[i] - first;
}

void embed_part(const Context& context, const tensor::ConstTensor& table, std::int64_t first,
                const std::int32_t* ids, const tensor::Tensor& out) {
  tensor::Arena& scratch = *context.scratch;
  const std::size_t mark = scratch.mark();
  const tensor::Tensor own = scratch.allocate(DType::i32, {out.dim(0)}).value();
  // Ids outside the table give zeros.
  shift_ids(context,
            {reinterpret_cast<const std::byte*>(ids), DType::i32, own.shape(), own.device()},
            static_cast<std::int32_t>(first), own);
  embed(context, table, own.data<std::int32_t>(), out);
  scratch.rewind(mark);
}

}  // namespace motley::ops
