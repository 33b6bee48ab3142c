// Sums of values: the other operand's rows are positions, its columns lie side by side (wgmma's
// transposed form), and softmax weights come from registers.
#pragma once

#include "kernels/cuda/ptx.cuh"

namespace motley::kernels::cuda::tiles {

// The low word of a transposed tile's descriptor: panels of 64 columns are `panel` bytes apart.
__device__ inline std::uint32_t transposed_descriptor_low(std::uint32_t addr, std::uint32_t panel) {
  return __shfl_sync(0xFFFFFFFF, (addr & 0x3FFFF) >> 4 | panel >> 4 << 16, 0);
}

// D[64, N] (+)= A[64, 16] B[16, N].
template <int N>
struct MmaTransposed;

// The same with A[64, 16] in shared memory: its rows lie side by side, one panel of 64.
template <int N>
struct MmaFirstTransposed;

// clang-format off
#define P32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define P64 P32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define P128 P64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R8(i) R4(i), R4(i + 4)
#define R16(i) R8(i), R8(i + 8)
#define R32(i) R16(i), R16(i + 16)
#define R64(i) R32(i), R32(i + 32)
#define R128(i) R64(i), R64(i + 64)
// O0 ...: operand numbers after the N / 2 accumulators.
#define DEFINE_MMA(N, P, R, O0, O1, O2, O3, O4, O5, O6)                                                                \
  template <> struct MmaTransposed<N> {                                                                                \
    template <std::uint32_t high_word>                                                                                 \
    static __device__ inline void rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint32_t b, int accumulate) { \
      asm volatile("{.reg .pred p; .reg .b64 y; setp.ne.b32 p, %" #O5 ", 0; mov.b64 y, {%" #O4 ", %" #O6 "}; "         \
                   "wgmma.mma_async.sync.aligned.m64n" #N                                                              \
                   "k16.f32.bf16.bf16 {" P "}, {%" #O0 ",%" #O1 ",%" #O2 ",%" #O3 "}, y, p, 1, 1, 1;}"                 \
                   : R(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate), "n"(high_word) : "memory"); \
    }                                                                                                                  \
  };
DEFINE_MMA(64, P32, R32, 32, 33, 34, 35, 36, 37, 38)
DEFINE_MMA(128, P64, R64, 64, 65, 66, 67, 68, 69, 70)
DEFINE_MMA(256, P128, R128, 128, 129, 130, 131, 132, 133, 134)
#undef DEFINE_MMA
#define P4 "%0,%1,%2,%3"
#define P8 P4 ",%4,%5,%6,%7"
#define P16 P8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define DEFINE_MMA(N, P, R, O0, O1, O2, O3)                                                                            \
  template <> struct MmaFirstTransposed<N> {                                                                           \
    template <std::uint32_t high_word>                                                                                 \
    static __device__ inline void ss(float (&d)[N / 2], std::uint32_t a, std::uint32_t b, int accumulate) {            \
      asm volatile("{.reg .pred p; .reg .b64 x, y; setp.ne.b32 p, %" #O2 ", 0; mov.b64 x, {%" #O0 ", %" #O3 "}; "      \
                   "mov.b64 y, {%" #O1 ", %" #O3 "}; wgmma.mma_async.sync.aligned.m64n" #N                             \
                   "k16.f32.bf16.bf16 {" P "}, x, y, p, 1, 1, 1, 0;}"                                                  \
                   : R(0) : "r"(a), "r"(b), "r"(accumulate), "n"(high_word) : "memory");                               \
    }                                                                                                                  \
  };
DEFINE_MMA(8, P4, R4, 4, 5, 6, 7)
DEFINE_MMA(16, P8, R8, 8, 9, 10, 11)
DEFINE_MMA(32, P16, R16, 16, 17, 18, 19)
#undef DEFINE_MMA
#undef P16
#undef P8
#undef P4
#undef R8
#undef R128
#undef R64
#undef R32
#undef R16
#undef R4
#undef P128
#undef P64
#undef P32
// clang-format on

// threadIdx.x where it is asked for: what comes of it is not made ahead of a loop and kept.
__device__ inline int thread_here() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}

// Whether a wait would be over.
__device__ inline bool bar_test(std::uint32_t bar, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ inline void store_shared_2(std::uint32_t addr, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(addr), "f"(x), "f"(y) : "memory");
}
__device__ inline float2 load_shared_2(std::uint32_t addr) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(addr) : "memory");
  return v;
}

// A sum of weights is never negative; but the assembler, which would put work without side effects
// behind the next wait, cannot know.
__device__ inline void done_before_here(float total) {
  asm volatile("{.reg .pred p; setp.lt.f32 p, %0, 0fBF800000; @p trap;}" ::"f"(total) : "memory");
}

// The compiler may not move reads above this place, nor writes below it.
template <int count>
__device__ inline void settled(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace motley::kernels::cuda::tiles
