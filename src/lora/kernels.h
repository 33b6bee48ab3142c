#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/number_types.h"
#include "base/thread_pool.h"
#include "lora/resident.h"
#include "ops/context.h"
#include "tensor/tensor.h"

// The loops that deltas are made of. The order of every sum is fixed by the length of what is
// summed, so a row's numbers never depend on what stands beside it or on how work is cut.
namespace motley::lora {

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return x.to_float(); }

template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return T::from(x);
  }
}

// Lane j sums the products j, j + 16, j + 32, ...; then the lanes are summed in pairs.
template <class X, class P>
float dot(const X* x, const P* y, std::int64_t count) {
  std::array<float, 16> lanes{};
  std::int64_t k = 0;
  for (; k + 16 <= count; k += 16) {
    for (std::size_t j = 0; j < 16; ++j)
      lanes[j] += to_float(x[k + static_cast<std::int64_t>(j)]) *
                  to_float(y[k + static_cast<std::int64_t>(j)]);
  }
  for (std::size_t j = 0; k < count; ++k, ++j) lanes[j] += to_float(x[k]) * to_float(y[k]);
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

// t[r] = scale * A[r] . x for ranks [begin, end); beyond the true rank: 0, so that padding is never
// multiplied by a number that is not finite.
template <class X, class P>
void shrink(const FactorView& factor, float scale, const X* x, std::int64_t in, std::int32_t begin,
            std::int32_t end, float* t) {
  const auto* const a = static_cast<const P*>(factor.a);
  for (std::int32_t r = begin; r < end; ++r)
    t[r - begin] = r < factor.rank ? scale * dot(x, a + r * in, in) : 0.0F;
}

// y[o - begin] += B[o] . t for outputs [begin, end); t has `padded` numbers. Lane j sums ranks j, j
// + 8, ...; then the lanes are summed in pairs.
template <class P>
void expand(const FactorView& factor, const float* t, std::int64_t begin, std::int64_t end,
            float* y) {
  const std::int64_t padded = factor.padded;
  const P* row = static_cast<const P*>(factor.b) + begin * padded;
  for (std::int64_t o = begin; o < end; ++o, row += padded) {
    std::array<float, 8> lanes{};
    for (std::int64_t r = 0; r < padded; r += 8) {
      for (std::size_t j = 0; j < 8; ++j)
        lanes[j] +=
            to_float(row[r + static_cast<std::int64_t>(j)]) * t[r + static_cast<std::int64_t>(j)];
    }
    for (std::size_t width = 4; width > 0; width /= 2) {
      for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
    }
    y[o - begin] += lanes[0];
  }
}

// Rows of a tensor of two dimensions whose rows are contiguous, maybe with something between them.
template <class T, class Byte>
T* row_of(const tensor::BasicTensor<Byte>& tensor, std::int64_t row) {
  return tensor.template data<std::remove_const_t<T>>() + row * tensor.stride(0);
}

inline void check_rows(const tensor::ConstTensor& tensor, std::int64_t rows, std::int64_t columns) {
  MOTLEY_CHECK(tensor.shape().rank() == 2 && tensor.dim(0) == rows && tensor.dim(1) == columns &&
                   (columns == 1 || tensor.stride(1) == 1),
               "a tensor of the shape that the call has");
}

inline ThreadPool& threads(const ops::Context& context) {
  return *static_cast<ThreadPool*>(context.stream.native);
}

// Calls body with a float or a bf16 for the dtype.
template <class Body>
void with_type(DType dtype, Body body) {
  if (dtype == DType::f32) {
    body(float{});
  } else {
    MOTLEY_CHECK(dtype == DType::bf16, "numbers in f32 or bf16");
    body(bf16{});
  }
}

// Cuts [0, rows * width) into ranges and calls body(row, begin, end) for each row's part of one.
template <class Body>
void for_row_ranges(ThreadPool& pool, std::int64_t rows, std::int64_t width, std::int64_t grain,
                    Body body) {
  if (rows == 0 || width == 0) return;
  pool.for_ranges(rows * width, grain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t row = begin / width;
      const std::int64_t stop = std::min(end, (row + 1) * width);
      body(row, begin - row * width, stop - row * width);
      begin = stop;
    }
  });
}

}  // namespace motley::lora
