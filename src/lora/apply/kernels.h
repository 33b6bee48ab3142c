#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/system/thread_pool.h"
#include "kernels/cpu/gemm.h"
#include "lora/pages/format.h"
#include "lora/pages/resident.h"
#include "ops/context.h"
#include "tensor/tensor.h"

// Shared by the application of deltas on the CPU: rows, threads, and the two products of a pair of
// factors.
namespace motley::lora {

// The rows of a two-dimensional tensor; rows are contiguous, perhaps with gaps between them.
template <class T, class Byte>
T* row_of(const tensor::BasicTensor<Byte>& tensor, std::int64_t row) {
  return tensor.template data<std::remove_const_t<T>>() + row * tensor.stride(0);
}

inline void check_rows(const tensor::ConstTensor& tensor, std::int64_t rows, std::int64_t columns) {
  MOTLEY_CHECK(tensor.shape().rank() == 2 && tensor.dim(0) == rows && tensor.dim(1) == columns &&
                   (columns == 1 || tensor.stride(1) == 1),
               "a tensor of the shape that the call has");
}

// Like ThreadPool::for_tasks; without a pool it runs on the calling thread.
inline void for_tasks(const ops::Context& context, std::int64_t tasks,
                      FunctionRef<void(std::int64_t task)> body) {
  if (auto* const pool = static_cast<ThreadPool*>(context.stream.native)) {
    pool->for_tasks(tasks, body);
    return;
  }
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
}

// Divides [0, count) into tasks of `size`, the last one shorter, and calls body(begin, end).
inline void for_task_ranges(const ops::Context& context, std::int64_t count, std::int64_t size,
                            FunctionRef<void(std::int64_t begin, std::int64_t end)> body) {
  for_tasks(context, (count + size - 1) / size,
            [&](std::int64_t task) { body(task * size, std::min((task + 1) * size, count)); });
}

inline int threads(const ops::Context& context) {
  const auto* const pool = static_cast<const ThreadPool*>(context.stream.native);
  return pool == nullptr ? 1 : pool->size();
}

// A matrix [out, in] in adapter memory; in FP8 with a scale for each row.
inline kernels::WeightView page_view(DType dtype, const void* data, std::int64_t out,
                                     std::int64_t in) {
  if (dtype == DType::f8_e4m3) {
    return {.kind = kernels::WeightKind::f8_e4m3,
            .data = data,
            .scales = row_scales(dtype, data, out, in),
            .out = out,
            .in = in,
            .block_columns = std::max<std::int64_t>(in, 1)};
  }
  MOTLEY_CHECK(dtype == DType::f32 || dtype == DType::bf16, "pages in f32, bf16 or f8_e4m3");
  return {.kind = dtype == DType::f32 ? kernels::WeightKind::f32 : kernels::WeightKind::bf16,
          .data = data,
          .out = out,
          .in = in};
}

// Rows of inputs, selected by `rows` if it is not null.
struct InputRows {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride = 0;
  const std::int32_t* rows = nullptr;
  std::int64_t count = 0;
};

// A factor's A [rank, in] in adapter memory, and its scale.
struct ScaledA {
  const kernels::FactorEntry& factor;
  DType type = DType::f32;
  float scale = 1;
  std::int64_t in = 0;
};

// t[m][r] = scale * A[r] . x[m] for ranks [begin, end), where t points at rank 0. Ranks beyond the
// true rank are 0, so that padding is never multiplied by infinity or NaN.
inline void shrink(const ScaledA& a, const InputRows& x, std::int64_t begin, std::int64_t end,
                   float* t, std::int64_t t_stride) {
  const std::int64_t last = std::min<std::int64_t>(end, a.factor.rank);
  if (begin < last) {
    kernels::cpu::gemm_tile({.x = x.data,
                             .x_type = x.dtype,
                             .x_stride = x.stride,
                             .x_rows = x.rows,
                             .rows = x.count,
                             .w = page_view(a.type, a.factor.a, a.factor.split, a.in),
                             .out_begin = begin,
                             .out_end = last,
                             .y = t + begin,
                             .y_stride = t_stride});
  }
  for (std::int64_t m = 0; m < x.count; ++m) {
    float* const row = t + m * t_stride;
    for (std::int64_t r = begin; r < end; ++r) row[r] = r < last ? a.scale * row[r] : 0.0F;
  }
}

}  // namespace motley::lora
