// wgmma on codes of 8 bits in shared memory.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace motley::kernels::cuda {

// D[64, N] (+)= A[64, 32] B[N, 32]^T: FP8 (e4m3) with sums in float32, or INT8 with exact sums.
// Accumulators lie as those of Mma. A and B are K-major with the 128-byte swizzle.
template <DType codes, int N>
struct CodeMma;

// clang-format off
#define D4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define D8(c, i) D4(c, i), D4(c, i + 4)
#define D16(c, i) D8(c, i), D8(c, i + 8)
#define D32(c, i) D16(c, i), D16(c, i + 16)
#define D64(c, i) D32(c, i), D32(c, i + 32)
#define N4 "%0,%1,%2,%3"
#define N8 N4 ",%4,%5,%6,%7"
#define N16 N8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define N32 N16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define N64 N32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
// O0 ...: operand numbers after the N / 2 accumulators.
#define DEFINE_CODE_MMA(TYPE, SUM, CONSTRAINT, TYPES, SCALES, N, NAMES, LIST, O0, O1, O2, O3)                          \
  template <> struct CodeMma<TYPE, N> {                                                                                \
    template <uint32_t high_word>                                                                                      \
    static __device__ inline void ss(SUM (&d)[N / 2], uint32_t a, uint32_t b, int accumulate) {                        \
      asm volatile("{.reg .pred p; .reg .b64 x, y; setp.ne.b32 p, %" #O2 ", 0; mov.b64 x, {%" #O0 ", %" #O3 "}; "      \
                   "mov.b64 y, {%" #O1 ", %" #O3 "}; wgmma.mma_async.sync.aligned.m64n" #N "k32." TYPES " {" NAMES     \
                   "}, x, y, p" SCALES ";}"                                                                            \
                   : LIST(CONSTRAINT, 0) : "r"(a), "r"(b), "r"(accumulate), "n"(high_word) : "memory");                \
    }                                                                                                                  \
  };
#define DEFINE_BOTH(N, NAMES, LIST, O0, O1, O2, O3)                                                                    \
  DEFINE_CODE_MMA(DType::f8_e4m3, float, "+f", "f32.e4m3.e4m3", ", 1, 1", N, NAMES, LIST, O0, O1, O2, O3)              \
  DEFINE_CODE_MMA(DType::i8, int, "+r", "s32.s8.s8", "", N, NAMES, LIST, O0, O1, O2, O3)
DEFINE_BOTH(8, N4, D4, 4, 5, 6, 7)
DEFINE_BOTH(16, N8, D8, 8, 9, 10, 11)
DEFINE_BOTH(32, N16, D16, 16, 17, 18, 19)
DEFINE_BOTH(64, N32, D32, 32, 33, 34, 35)
DEFINE_BOTH(128, N64, D64, 64, 65, 66, 67)
#undef DEFINE_BOTH
#undef DEFINE_CODE_MMA
#undef N64
#undef N32
#undef N16
#undef N8
#undef N4
#undef D64
#undef D32
#undef D16
#undef D8
#undef D4
// clang-format on

}  // namespace motley::kernels::cuda
