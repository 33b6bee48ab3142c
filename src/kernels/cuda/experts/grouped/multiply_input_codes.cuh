// The K loop of a consumer warpgroup where token rows are codes, too.
#pragma once

#include "kernels/cuda/experts/grouped/ring.cuh"
#include "kernels/cuda/primitives/code_mma.cuh"

namespace motley::kernels::cuda::grouped {

// A warpgroup's A operands of a stage: 128 k of its 64 rows.
struct CodeOperands {
  std::uint32_t a[4][4];

  // Within 16 inputs a thread's bytes have the order of code_inputs.h.
  __device__ void load(std::uint32_t codes) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 words = load_shared_16(codes + k * 2048);
      a[k][0] = __byte_perm(words.x, words.y, 0x6420);
      a[k][1] = __byte_perm(words.x, words.y, 0x7531);
      a[k][2] = __byte_perm(words.z, words.w, 0x6420);
      a[k][3] = __byte_perm(words.z, words.w, 0x7531);
    }
  }
  // The compiler takes a product's operands for read when it begins, and would give their registers
  // to the next ones. Called behind the wait for the products, this keeps them.
  __device__ void keep() const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int j = 0; j < 4; ++j) asm volatile("" ::"r"(a[k][j]));
  }
};

// Where a stage has the scales of a thread's two rows and of its tokens.
template <class S>
struct CodeScales {
  std::uint32_t rows, tokens;

  __device__ explicit CodeScales(int warpgroup) {
    const int t = thread_here() % 128;
    rows = warpgroup * S::block_bytes + S::layout.code_bytes() +
           (16 * (t / 32) + t % 32 / 4) * sizeof(float);
    tokens = S::token_scales + t % 4 * 2 * sizeof(float);
  }
  __device__ float low(std::uint32_t stage) const { return load_shared_f32(stage + rows); }
  __device__ float high(std::uint32_t stage) const {
    return load_shared_f32(stage + rows + 8 * sizeof(float));
  }
  // Of columns 8 i + 2 (t % 4) and the one behind.
  __device__ float2 of_pair(std::uint32_t stage, int i) const {
    return load_shared_8(stage + tokens + 8 * i * sizeof(float));
  }
};

// Goes through K, 128 at a time: the tensor core sums them, onto the sums before if `keeps_sums`.
// begin(stage) is called beside its products, end(stage) behind them.
template <class S, int N, bool keeps_sums, class Sum, class Begin, class End>
__device__ inline void sum_codes(Sum (&sums)[N / 2], Ring& ring, int steps, int warpgroup,
                                 const Begin& begin, const End& end) {
  using Mma = CodeMma<S::code_type, N>;
  const std::uint32_t codes_at = warpgroup * S::block_bytes + thread_here() % 128 * 16;
  CodeOperands now;
  CodeOperands next;
  bar_wait(ring.full_bar(), ring.parity);
  next.load(ring.data() + codes_at);
#pragma unroll 1
  for (int kb = 0; kb < steps; ++kb) {
    now = next;
    const std::uint32_t stage = ring.data();
    const int slot = ring.slot;
    const std::uint32_t b = descriptor_low(stage + S::weight_bytes);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Mma::template rs<swizzle_128>(sums, now.a[k], b + 2 * k, keeps_sums || k > 0);
    mma_commit();
    begin(stage);
    ring.next();
    if (kb + 1 < steps) {
      bar_wait(ring.full_bar(), ring.parity);
      next.load(ring.data() + codes_at);
    }
    mma_wait<0>();
    now.keep();
    end(stage);
    if (kb + 1 < steps) ring.release(slot);
  }
}

// Sums over all k times the scales of whole rows, which are in every stage; lets the last one go.
template <class S, int N, class Sum>
__device__ inline void scale_by_last(float (&acc)[N / 2], const Sum (&sums)[N / 2], Ring& ring,
                                     const CodeScales<S>& scales) {
  const std::uint32_t stage = ring.stages + ring.before() * ring.stage_bytes;
  const float low = scales.low(stage);
  const float high = scales.high(stage);
#pragma unroll
  for (int i = 0; i < N / 8; ++i) {
    const float2 token = scales.of_pair(stage, i);
    acc[4 * i] = static_cast<float>(sums[4 * i]) * (low * token.x);
    acc[4 * i + 1] = static_cast<float>(sums[4 * i + 1]) * (low * token.y);
    acc[4 * i + 2] = static_cast<float>(sums[4 * i + 2]) * (high * token.x);
    acc[4 * i + 3] = static_cast<float>(sums[4 * i + 3]) * (high * token.y);
  }
  ring.release(ring.before());
}

// INT8: sums over all k are exact.
template <class S, int N>
__device__ inline void multiply_integers(float (&acc)[N / 2], Ring& ring, int steps,
                                         int warpgroup) {
  int sums[N / 2] = {};
  const auto nothing = [](std::uint32_t) {};
  sum_codes<S, N, true>(sums, ring, steps, warpgroup, nothing, nothing);
  scale_by_last<S, N>(acc, sums, ring, CodeScales<S>(warpgroup));
}

// FP8: sums of 128 k are added in float32, times the scales of weight row and token; scales of
// whole rows multiply at the end.
template <class S, int N>
__device__ inline void multiply_f8(float (&acc)[N / 2], Ring& ring, int steps, int warpgroup,
                                   bool row_scales) {
  float sums[N / 2];
  if (row_scales) {
    const auto add = [&](std::uint32_t) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) acc[i] += sums[i];
    };
    sum_codes<S, N, false>(sums, ring, steps, warpgroup, [](std::uint32_t) {}, add);
    scale_by_last<S, N>(acc, acc, ring, CodeScales<S>(warpgroup));
    return;
  }
  const CodeScales<S> scales(warpgroup);
  float low = 0;
  float high = 0;
  const auto load = [&](std::uint32_t stage) {
    low = scales.low(stage);
    high = scales.high(stage);
  };
  const auto add = [&](std::uint32_t stage) {
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      const float2 token = scales.of_pair(stage, i);
      acc[4 * i] += sums[4 * i] * (low * token.x);
      acc[4 * i + 1] += sums[4 * i + 1] * (low * token.y);
      acc[4 * i + 2] += sums[4 * i + 2] * (high * token.x);
      acc[4 * i + 3] += sums[4 * i + 3] * (high * token.y);
    }
  };
  sum_codes<S, N, false>(sums, ring, steps, warpgroup, load, add);
  ring.release(ring.before());
}

template <class S, int N>
__device__ inline void multiply_input_codes(float (&acc)[1][N / 2], Ring& ring, int steps,
                                            int warpgroup, bool row_scales) {
  static_assert(S::blocks == 1);
  if constexpr (S::code_type == DType::i8)
    multiply_integers<S, N>(acc[0], ring, steps, warpgroup);
  else
    multiply_f8<S, N>(acc[0], ring, steps, warpgroup, row_scales);
}

}  // namespace motley::kernels::cuda::grouped
