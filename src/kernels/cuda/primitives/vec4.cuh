// Elementwise work on rows of numbers, one vec4 per thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>

#include "base/dtype.h"
#include "base/number_types.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(bf16 value) { return value.to_float(); }
__device__ inline float widen(f16 value) { return value.to_float(); }
// Like T::from, except that NaN becomes the tensor cores' NaN; for bf16 it is one instruction.
template <class T>
__device__ T narrow(float value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  } else {
    return T::from(value);
  }
}

struct Vec4 {
  float at[4];
};

template <class T>
struct alignas(4 * sizeof(T)) PackedVec4 {
  T at[4];
};

// Numbers [at, at + 4) of a row of `size`; zeros past its end. `whole`: the row is aligned for
// PackedVec4, and its size is a multiple of 4.
template <bool whole, class T>
__device__ Vec4 load_vec4(const T* row, std::int64_t at, std::int64_t size) {
  Vec4 vec4{};
  if constexpr (whole) {
    const auto stored = *reinterpret_cast<const PackedVec4<T>*>(row + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) vec4.at[i] = widen(stored.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (at + i < size) vec4.at[i] = widen(row[at + i]);
  }
  return vec4;
}

template <bool whole, class T>
__device__ void store_vec4(T* row, std::int64_t at, std::int64_t size, const Vec4& vec4) {
  if constexpr (whole) {
    PackedVec4<T> stored;
#pragma unroll
    for (int i = 0; i < 4; ++i) stored.at[i] = narrow<T>(vec4.at[i]);
    *reinterpret_cast<PackedVec4<T>*>(row + at) = stored;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (at + i < size) row[at + i] = narrow<T>(vec4.at[i]);
  }
}

inline std::int64_t bytes_of(DType type) { return type == DType::f32 ? 4 : 2; }

// Whether rows at this address and stride may be read in whole vec4s.
inline bool vec4_aligned(const void* data, DType type, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(4 * bytes_of(type)) ==
             0 &&
         stride % 4 == 0;
}

// Calls body with a number of the type, or with a compile-time flag.
template <class Body>
void with_type(DType type, const Body& body) {
  if (type == DType::f32) {
    body(float{});
  } else {
    body(bf16{});
  }
}
template <bool flag>
struct Flag {
  static constexpr bool value = flag;
};
template <class Body>
void with_flag(bool flag, const Body& body) {
  if (flag) {
    body(Flag<true>{});
  } else {
    body(Flag<false>{});
  }
}

inline constexpr unsigned vec4_threads = 256;

// Several blocks per row for long rows, several rows per block for short ones.
struct Vec4Grid {
  unsigned blocks_per_row = 1;
  unsigned rows_per_block = 1;
  unsigned threads_per_row = vec4_threads;
};

template <class Body>
__global__ void __launch_bounds__(vec4_threads)
    each_vec4(Body body, std::int64_t rows, std::int64_t width, Vec4Grid grid) {
  launch_dependents();
  wait_for_previous_grid();
  const unsigned row_of_block = threadIdx.x / grid.threads_per_row;
  const unsigned thread = threadIdx.x % grid.threads_per_row;
  const std::int64_t row =
      std::int64_t{blockIdx.x / grid.blocks_per_row} * grid.rows_per_block + row_of_block;
  const std::int64_t at =
      4 * (std::int64_t{blockIdx.x % grid.blocks_per_row} * grid.threads_per_row + thread);
  if (row_of_block < grid.rows_per_block && row < rows && at < width) body(row, at);
}

// Calls body(row, at) for every vec4 of every row.
template <class Body>
void for_each_vec4(std::string_view name, std::int64_t rows, std::int64_t width,
                   StreamHandle stream, const Body& body) {
  if (rows <= 0 || width <= 0) return;
  const std::int64_t vec4s = (width + 3) / 4;
  Vec4Grid grid;
  if (vec4s < vec4_threads) {
    grid.threads_per_row = static_cast<unsigned>(vec4s);
    grid.rows_per_block = vec4_threads / grid.threads_per_row;
  } else {
    grid.blocks_per_row = static_cast<unsigned>((vec4s + vec4_threads - 1) / vec4_threads);
  }
  const std::int64_t groups = (rows + grid.rows_per_block - 1) / grid.rows_per_block;
  launch(name, each_vec4<Body>,
         {.grid = static_cast<unsigned>(groups) * grid.blocks_per_row, .threads = vec4_threads},
         stream, body, rows, width, grid);
}

}  // namespace motley::kernels::cuda
