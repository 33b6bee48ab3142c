// The m16n8k16 product of the dense kernels.
#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

// D (+)= A[16, 16] B[8, 16]^T. With g = lane / 4 and t = lane % 4: a0 and a1 hold rows g and g + 8
// at k = 2t and 2t + 1, a2 and a3 the same at k + 8; b0 and b1 hold column g at those k. d0 and d1
// are row g, columns 2t and 2t + 1; d2 and d3 row g + 8. Any permutation of k is correct if A and B
// share it: a lane with eight consecutive k of each row, 16 bytes, has the operands of two
// products.
__device__ inline void multiply_add(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                    uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Bytes between rows in shared memory: an odd multiple of 64, so that 64-byte pieces of two
// adjacent rows have no bank conflicts.
__host__ __device__ constexpr int bank_free_pitch(std::int64_t row_bytes) {
  return static_cast<int>((row_bytes + 127) / 128 * 128 + 64);
}

}  // namespace motley::kernels::cuda
