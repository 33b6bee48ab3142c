// What kernels of adapters share: finding a row's terms, and reading pages.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/adapters.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/warp.cuh"

namespace motley::kernels::cuda {

// A type of pages: how many numbers a load takes, and what a number is.
struct PagesF32 {
  using Number = float;
  static constexpr bool scaled = false;
  __device__ static float widen(Number number) { return number; }
};
struct PagesBf16 {
  using Number = __nv_bfloat16;
  static constexpr bool scaled = false;
  __device__ static float widen(Number number) { return __bfloat162float(number); }
};
struct PagesF8 {
  using Number = __nv_fp8_e4m3;
  static constexpr bool scaled = true;
  __device__ static float widen(Number number) { return static_cast<float>(number); }
};

// Eight numbers side by side, at a multiple of their own size.
template <class Number>
struct alignas(8 * sizeof(Number)) Vec8 {
  Number numbers[8];
};

template <class Pages>
__device__ void load_vec8(const void* from, std::int64_t index, float (&to)[8]) {
  using Number = typename Pages::Number;
  const auto vec8 =
      *reinterpret_cast<const Vec8<Number>*>(static_cast<const Number*>(from) + index);
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = Pages::widen(vec8.numbers[i]);
}

template <class Pages>
__device__ float number_at(const void* from, std::int64_t index) {
  return Pages::widen(static_cast<const typename Pages::Number*>(from)[index]);
}

// The scales of the rows of a factor [rows, columns], where its pages have some.
template <class Pages>
__device__ const float* row_scales(const void* factor, std::int64_t rows, std::int64_t columns) {
  static_assert(Pages::scaled);
  const std::int64_t numbers = (rows * columns + 15) / 16 * 16;
  return reinterpret_cast<const float*>(static_cast<const char*>(factor) + numbers);
}
// A row's; 1 where there are none.
template <class Pages>
__device__ float row_scale(const void* factor, std::int64_t rows, std::int64_t columns,
                           std::int64_t row) {
  if constexpr (Pages::scaled) return row_scales<Pages>(factor, rows, columns)[row];
  return 1;
}

__device__ inline float activation_at(const void* from, DType type, std::int64_t index) {
  if (type == DType::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[index]);
  return static_cast<const float*>(from)[index];
}

__device__ inline void store_activation(void* to, DType type, std::int64_t index, float value) {
  if (type == DType::bf16) {
    static_cast<__nv_bfloat16*>(to)[index] = __float2bfloat16_rn(value);
  } else {
    static_cast<float*>(to)[index] = value;
  }
}

struct TermRange {
  int begin = 0;
  int end = 0;
};
__device__ inline TermRange terms_of(const AdapterRows& adapters, int label) {
  if (label < 0) return {};
  return {adapters.term_begin[label], adapters.term_begin[label + 1]};
}

// Whether a term's adapter has that site's layer, so that there is a term.sites[site]. A function
// that chooses null where there is none is not written on purpose: ptxas of CUDA 13.0 tests such a
// choice before it is there, and what follows reads from null.
__device__ inline bool has_site(const AdapterRows& adapters, const AdapterTerm& term,
                                std::int32_t site) {
  return site < term.site_layers * adapters.sites_a_layer;
}

__device__ inline int round_up_8(int ranks) { return (ranks + 7) / 8 * 8; }

// Calls body(Pages()) for the pages' type.
template <class Body>
void with_pages(DType pages, Body body) {
  switch (pages) {
    case DType::bf16:
      return body(PagesBf16());
    case DType::f8_e4m3:
      return body(PagesF8());
    default:
      return body(PagesF32());
  }
}
// The same of kernels that take no float32.
template <class Body>
void with_bf16_or_f8(DType pages, Body body) {
  pages == DType::bf16 ? body(PagesBf16()) : body(PagesF8());
}

}  // namespace motley::kernels::cuda
