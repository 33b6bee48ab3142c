// The PTX instructions that the kernels use, one small function each: mbarriers, bulk copies, wgmma
// on bf16, and fences between the generic and the asynchronous proxy. Encodings (descriptor,
// fragments, swizzle) are those of sm_90a.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>

namespace motley::kernels::cuda {

using Bf16 = __nv_bfloat16;

__device__ inline uint32_t smem_addr(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// threadIdx.x, but opaque to the compiler: values derived from it are not hoisted above loops and
// kept in registers.
__device__ inline int thread_here() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}

// ---- mbarriers ----
__device__ inline void bar_init(uint32_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ inline void bar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
__device__ inline void bar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ inline void bar_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: "
      "}" ::"r"(bar),
      "r"(parity)
      : "memory");
}
// Whether a wait would return at once.
__device__ inline bool bar_test(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
}
__device__ inline void fence_bar_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// A barrier of `threads` threads of the block; ids 1..15, 0 is __syncthreads.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives at such a barrier without waiting.
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- copies ----
__device__ inline void tma_2d(uint32_t dst, const CUtensorMap* map, int col, int row,
                              uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(dst),
      "l"(map), "r"(col), "r"(row), "r"(bar)
      : "memory");
}
__device__ inline void tma_4d(uint32_t dst, const CUtensorMap* map, const int (&at)[4],
                              uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4, %5}], [%6];" ::"r"(dst),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(bar)
      : "memory");
}
__device__ inline void bulk_copy(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(dst),
      "l"(src), "r"(bytes), "r"(bar)
      : "memory");
}
__device__ inline void bulk_store(void* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until this thread's bulk stores have been written.
__device__ inline void bulk_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Waits until shared memory that this thread's bulk stores read may be written.
__device__ inline void bulk_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ inline void copy_16(uint32_t dst, const void* src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
// One of the barrier's counted arrivals, made when this thread's earlier cp.async have landed.
// Waiting threads must fence before the tensor cores read.
__device__ inline void bar_arrive_after_copies(uint32_t bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
// Copies 16 bytes, or writes zeros if `keep` is false.
__device__ inline void copy_16_or_zero(uint32_t dst, const void* src, bool keep) {
  int bytes = keep ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes)
               : "memory");
}
__device__ inline void copy_8_or_zero(uint32_t dst, const void* src, bool keep) {
  int bytes = keep ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src), "r"(bytes)
               : "memory");
}
__device__ inline void copy_4_or_zero(uint32_t dst, const void* src, bool keep) {
  int bytes = keep ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(bytes)
               : "memory");
}
// Prefetches a line of 128 bytes to L2.
__device__ inline void prefetch_l2(const void* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line) : "memory");
}
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- ordering ----
__device__ inline void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void fence_async_all() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ inline int load_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void add_release(int* p, int v) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ inline int fetch_add_acq_rel(int* p, int v) {
  int old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(p), "r"(v)
               : "memory");
  return old;
}
template <int registers>
__device__ inline void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ inline void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// ---- wgmma ----
__device__ inline void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ inline void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Matrix descriptors of K-major tiles whose start is a multiple of 8 row pitches. The high word
// holds the stride between rows of cores and the swizzle; the low word the address, so a step along
// K or to another row block is a 32-bit addition.
constexpr uint32_t swizzle_128 = 1024 >> 4 | 1u << 30;  // rows of 128 bytes, 64 k
constexpr uint32_t swizzle_32 = 256 >> 4 | 3u << 30;    // rows of 32 bytes, 16 k
// The same in every lane, and known to the compiler as such: additions stay in uniform registers.
__device__ inline uint32_t descriptor_low(uint32_t addr) {
  return __shfl_sync(0xFFFFFFFF, (addr & 0x3FFFF) >> 4 | 1u << 16, 0);
}

// The low word of a transposed tile's descriptor: panels of 64 columns are `panel` bytes apart.
__device__ inline uint32_t transposed_descriptor_low(uint32_t addr, uint32_t panel) {
  return __shfl_sync(0xFFFFFFFF, (addr & 0x3FFFF) >> 4 | panel >> 4 << 16, 0);
}

// D[64, N] (+)= A[64, 16] B[N, 16]^T. Accumulator i of thread t of the warpgroup: row 16 (t / 32) +
// t % 32 / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (t % 4) + i % 2. A in registers: j of 4 holds k
// = 2 (t % 4) + 8 (j / 2) and k + 1 of row 16 (t / 32) + t % 32 / 4 + 8 (j % 2). A transposed
// operand in shared memory has k by rows: its rows, or columns of D, lie side by side.
template <int N>
struct Mma;

// clang-format off
#define P4 "%0,%1,%2,%3"
#define P8 P4 ",%4,%5,%6,%7"
#define P16 P8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define P32 P16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define P64 P32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define P80 P64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define P96 P80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define P128 P96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R8(i) R4(i), R4(i + 4)
#define R16(i) R8(i), R8(i + 8)
#define R32(i) R16(i), R16(i + 16)
#define R64(i) R32(i), R32(i + 32)
#define R80(i) R64(i), R16(i + 64)
#define R96(i) R64(i), R32(i + 64)
#define R128(i) R64(i), R64(i + 64)
// O0 ...: operand numbers after the N / 2 accumulators.
#define DEFINE_MMA(N, P, R, O0, O1, O2, O3, O4, O5, O6, O7)                                                                          \
  template <> struct Mma<N> {                                                                                          \
    template <uint32_t high_word, int a_transposed = 0, int b_transposed = 0>                                                                                          \
    static __device__ inline void ss(float (&d)[N / 2], uint32_t a, uint32_t b, int accumulate) {                      \
      asm volatile("{.reg .pred p; .reg .b64 x, y; setp.ne.b32 p, %" #O2 ", 0; mov.b64 x, {%" #O0 ", %" #O3 "}; "         \
                   "mov.b64 y, {%" #O1 ", %" #O3 "}; wgmma.mma_async.sync.aligned.m64n" #N                               \
                   "k16.f32.bf16.bf16 {" P "}, x, y, p, 1, 1, %" #O4 ", %" #O5 ";}"                                    \
                   : R(0) : "r"(a), "r"(b), "r"(accumulate), "n"(high_word), "n"(a_transposed), "n"(b_transposed) : "memory");                                   \
    }                                                                                                                  \
    template <uint32_t high_word, int b_transposed = 0>                                                                                          \
    static __device__ inline void rs(float (&d)[N / 2], const uint32_t (&a)[4], uint32_t b, int accumulate) {          \
      asm volatile("{.reg .pred p; .reg .b64 y; setp.ne.b32 p, %" #O5 ", 0; mov.b64 y, {%" #O4 ", %" #O6 "}; "            \
                   "wgmma.mma_async.sync.aligned.m64n" #N                                                              \
                   "k16.f32.bf16.bf16 {" P "}, {%" #O0 ",%" #O1 ",%" #O2 ",%" #O3 "}, y, p, 1, 1, %" #O7 ";}"         \
                   : R(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate), "n"(high_word), "n"(b_transposed) : "memory"); \
    }                                                                                                                  \
  };
DEFINE_MMA(8, P4, R4, 4, 5, 6, 7, 8, 9, 10, 11)
DEFINE_MMA(16, P8, R8, 8, 9, 10, 11, 12, 13, 14, 15)
DEFINE_MMA(32, P16, R16, 16, 17, 18, 19, 20, 21, 22, 23)
DEFINE_MMA(64, P32, R32, 32, 33, 34, 35, 36, 37, 38, 39)
DEFINE_MMA(128, P64, R64, 64, 65, 66, 67, 68, 69, 70, 71)
DEFINE_MMA(160, P80, R80, 80, 81, 82, 83, 84, 85, 86, 87)
DEFINE_MMA(192, P96, R96, 96, 97, 98, 99, 100, 101, 102, 103)
DEFINE_MMA(256, P128, R128, 128, 129, 130, 131, 132, 133, 134, 135)
#undef DEFINE_MMA
#undef R128
#undef R96
#undef R80
#undef R64
#undef R32
#undef R16
#undef R8
#undef R4
#undef P128
#undef P96
#undef P80
#undef P64
#undef P32
#undef P16
#undef P8
#undef P4
// clang-format on

// Four 8x8 blocks of bf16: lane l names the address of row l % 8 of block l / 8, and gets of each
// block row l / 4, columns 2 (l % 4) and the next; transposed, rows and columns change places.
__device__ inline void load_matrix_x4(uint32_t (&r)[4], uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(addr)
               : "memory");
}
__device__ inline void load_matrix_x4_trans(uint32_t (&r)[2][2], uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0][0]), "=r"(r[0][1]), "=r"(r[1][0]), "=r"(r[1][1])
               : "r"(addr)
               : "memory");
}
// Four (or fewer) 8x8 blocks of bf16, transposed on the way: lane l names the address of row l % 8
// of block l / 8.
__device__ inline void store_matrix_x4(uint32_t addr, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ inline void store_matrix_x4_trans(uint32_t addr, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ inline uint4 load_shared_16(uint32_t addr) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(addr)
               : "memory");
  return v;
}
__device__ inline void store_shared_16(uint32_t addr, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
__device__ inline void store_shared_8(uint32_t addr, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(addr), "f"(x), "f"(y) : "memory");
}
__device__ inline void store_shared_2(uint32_t addr, uint32_t low) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(addr), "h"(static_cast<unsigned short>(low))
               : "memory");
}
__device__ inline float2 load_shared_8(uint32_t addr) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(addr) : "memory");
  return v;
}
__device__ inline float load_shared_f32(uint32_t addr) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(addr) : "memory");
  return v;
}
// `count` words beside each other, aligned to their bytes, at most 16.
template <int count>
__device__ inline void load_shared_words(uint32_t (&to)[count], uint32_t addr) {
  if constexpr (count == 1) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(to[0]) : "r"(addr) : "memory");
  } else if constexpr (count == 2) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(addr)
                 : "memory");
  } else {
    static_assert(count % 4 == 0);
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const uint4 v = load_shared_16(addr + i * 4);
      to[i] = v.x;
      to[i + 1] = v.y;
      to[i + 2] = v.z;
      to[i + 3] = v.w;
    }
  }
}
__device__ inline uint32_t load_shared_u8(uint32_t addr) {
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
  return v;
}
__device__ inline uint32_t load_shared_u16(uint32_t addr) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(addr) : "memory");
  return v;
}

// Byte offset of 16-byte chunk c of row r in a K-major tile with rows of `pitch` (32, 64, 128)
// bytes.
__host__ __device__ inline uint32_t swizzled(uint32_t r, uint32_t c, uint32_t pitch) {
  return r * pitch + ((c ^ (r * pitch / 128 & (pitch / 16 - 1))) << 4);
}

}  // namespace motley::kernels::cuda
