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

// The products of 128 k are summed by the tensor core, and added in float32 times the scales of the
// weights' rows and of the tokens.
template <class S, int N>
__device__ inline void multiply_input_codes(float (&acc)[1][N / 2], Ring& ring, int steps,
                                            int warpgroup) {
  using Mma = CodeMma<S::code_type, N>;
  using Sum = std::conditional_t<S::code_type == DType::i8, int, float>;
  static_assert(S::blocks == 1);
  const int t = thread_here() % 128;
  const std::uint32_t codes_at = warpgroup * S::block_bytes + t * 16;
  const std::uint32_t scales_at = warpgroup * S::block_bytes + S::layout.code_bytes() +
                                  (16 * (t / 32) + t % 32 / 4) * sizeof(float);
  const std::uint32_t tokens_at = S::token_scales + t % 4 * 2 * sizeof(float);
  Sum sums[N / 2];
  CodeOperands now;
  CodeOperands next;
  bar_wait(ring.full_bar(), ring.parity);
  next.load(ring.data() + codes_at);
  for (int kb = 0; kb < steps; ++kb) {
    now = next;
    const std::uint32_t stage = ring.data();
    const int slot = ring.slot;
    const std::uint32_t b = descriptor_low(stage + S::weight_bytes);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) Mma::template rs<swizzle_128>(sums, now.a[k], b + 2 * k, k > 0);
    mma_commit();
    const float low = load_shared_f32(stage + scales_at);
    const float high = load_shared_f32(stage + scales_at + 8 * sizeof(float));
    ring.next();
    if (kb + 1 < steps) {
      bar_wait(ring.full_bar(), ring.parity);
      next.load(ring.data() + codes_at);
    }
    mma_wait<0>();
    now.keep();
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      const float2 token = load_shared_8(stage + tokens_at + 8 * i * sizeof(float));
      acc[0][4 * i] += static_cast<float>(sums[4 * i]) * (low * token.x);
      acc[0][4 * i + 1] += static_cast<float>(sums[4 * i + 1]) * (low * token.y);
      acc[0][4 * i + 2] += static_cast<float>(sums[4 * i + 2]) * (high * token.x);
      acc[0][4 * i + 3] += static_cast<float>(sums[4 * i + 3]) * (high * token.y);
    }
    ring.release(slot);
  }
}

}  // namespace motley::kernels::cuda::grouped
