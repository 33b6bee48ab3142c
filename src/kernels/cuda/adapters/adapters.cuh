// What adapter kernels share: finding the terms of a row, and reading factors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/adapters.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/warp.cuh"

namespace motley::kernels::cuda {

// The data types of factors in adapter memory. `scaled`: each row has a float32 scale.
struct FactorF32 {
  using Number = float;
  static constexpr bool scaled = false;
  __device__ static float widen(Number number) { return number; }
};
struct FactorBf16 {
  using Number = __nv_bfloat16;
  static constexpr bool scaled = false;
  __device__ static float widen(Number number) { return __bfloat162float(number); }
};
struct FactorF8 {
  using Number = __nv_fp8_e4m3;
  static constexpr bool scaled = true;
  __device__ static float widen(Number number) { return static_cast<float>(number); }
};

// Eight consecutive numbers, aligned to their total size.
template <class Number>
struct alignas(8 * sizeof(Number)) Vec8 {
  Number numbers[8];
};

template <class FactorType>
__device__ void load_vec8(const void* from, std::int64_t index, float (&to)[8]) {
  using Number = typename FactorType::Number;
  const auto vec8 =
      *reinterpret_cast<const Vec8<Number>*>(static_cast<const Number*>(from) + index);
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = FactorType::widen(vec8.numbers[i]);
}

template <class FactorType>
__device__ float number_at(const void* from, std::int64_t index) {
  return FactorType::widen(static_cast<const typename FactorType::Number*>(from)[index]);
}

// The row scales of a factor [rows, columns] of a scaled type. They lie behind its numbers.
template <class FactorType>
__device__ const float* row_scales(const void* factor, std::int64_t rows, std::int64_t columns) {
  static_assert(FactorType::scaled);
  const std::int64_t numbers = (rows * columns + 15) / 16 * 16;
  return reinterpret_cast<const float*>(static_cast<const char*>(factor) + numbers);
}
// The scale of one row; 1 for types without scales.
template <class FactorType>
__device__ float row_scale(const void* factor, std::int64_t rows, std::int64_t columns,
                           std::int64_t row) {
  if constexpr (FactorType::scaled) return row_scales<FactorType>(factor, rows, columns)[row];
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

// Whether the term's adapter has the layer of `site`, that is, whether term.sites[site] exists.
// There is deliberately no function that returns null otherwise: ptxas of CUDA 13.0 tests such a
// pointer before it is computed, and the code after it then reads through null.
__device__ inline bool has_site(const AdapterRows& adapters, const AdapterTerm& term,
                                std::int32_t site) {
  return site < term.site_layers * adapters.sites_a_layer;
}

__device__ inline int round_up_8(int ranks) { return (ranks + 7) / 8 * 8; }

// Calls body(FactorType()) for the type of the factors.
template <class Body>
void with_factor_type(DType type, Body body) {
  switch (type) {
    case DType::bf16:
      return body(FactorBf16());
    case DType::f8_e4m3:
      return body(FactorF8());
    default:
      return body(FactorF32());
  }
}
// The same for kernels that do not take float32.
template <class Body>
void with_bf16_or_f8(DType type, Body body) {
  type == DType::bf16 ? body(FactorBf16()) : body(FactorF8());
}

// What follows the last term of a row.
struct Finish {
  const float* gain = nullptr;
  const float* bias = nullptr;

  __device__ void take(const SiteEntry& entry) {
    if (entry.gain != nullptr) gain = entry.gain;
    if (entry.replaced_bias != nullptr) bias = entry.replaced_bias;
  }
};

}  // namespace motley::kernels::cuda
