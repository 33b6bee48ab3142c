// What a consumer warpgroup does with a tile: K loop over the ring's stages, then the epilogue of
// gate_up (SiLU(gate) x up, in registers: the weight image interleaves 8 gate rows with 8 up rows)
// or of down.
#pragma once

#include "combine.cuh"
#include "lora.cuh"
#include "work_list.cuh"

namespace expert_layer {

// Eight int4 of one k16 step to the A fragment, bf16(q x scale): (w >> 4j) & 0xF beside 0x4300 is
// 128 + n exactly, n - 8 exact.
__device__ inline void decode_step(uint32_t w, __nv_bfloat162 low, __nv_bfloat162 high,
                                   uint32_t (&a)[4]) {
  const uint32_t magic = 0x43004300, offset = 0x43084308;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint32_t x;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(x) : "r"(w >> 4 * j), "n"(0x000F000F), "r"(magic));
    __nv_bfloat162 q = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&x),
                               *reinterpret_cast<const __nv_bfloat162*>(&offset));
    q = __hmul2(q, j % 2 ? high : low);
    a[j] = *reinterpret_cast<uint32_t*>(&q);
  }
}

template <class S, int N>
__device__ inline void multiply_bf16(float (&acc)[S::kBlocks][N / 2], Ring& ring, int steps,
                                     int warpgroup, bool fence) {
  for (int kb = 0; kb < steps; kb++) {
    bar_wait(ring.full_bar(), ring.parity);
    if (!S::kInside && fence) fence_async_shared();
    uint32_t weights = ring.data() + warpgroup * S::kBlocks * 8192;
    uint32_t tokens = ring.data() + S::kWeightBytes + (S::kSplit ? warpgroup * N * 128 : 0);
    uint32_t a = descriptor_low(weights), b = descriptor_low(tokens);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int r = 0; r < S::kBlocks; r++)
        Mma<N>::template ss<kDesc128B>(acc[r], a + r * (8192 >> 4) + 2 * k, b + 2 * k, kb + k > 0);
    mma_commit();
    mma_wait<1>();
    if (kb > 0) ring.release(ring.before());
    ring.next();
  }
  mma_wait<0>();
  ring.release(ring.before());
}

template <class S, int N>
__device__ inline void multiply_int4(float (&acc)[S::kBlocks][N / 2], Ring& ring, int steps,
                                     int warpgroup, bool fence) {
  int t = threadIdx.x % 128, lane = t % 32, row = 16 * (t / 32) + lane / 4;
  // k16 steps a batch: while one batch multiplies, the next is decoded into the other fragments
  constexpr int kBatch = S::kBatch;
  uint32_t a[2][kBatch][4];
  for (int kb = 0; kb < steps; kb++) {
    bar_wait(ring.full_bar(), ring.parity);
    if (!S::kInside && fence) fence_async_shared();
    uint32_t tokens = ring.data() + S::kWeightBytes + (S::kSplit ? warpgroup * N * 256 : 0);
    uint32_t b = descriptor_low(tokens);
#pragma unroll
    for (int r = 0; r < S::kBlocks; r++) {
      uint32_t blob = ring.data() + (warpgroup * S::kBlocks + r) * kBlobBytes;
      uint32_t s0 = load_shared_u16(blob + 4096 + row * 2) * 0x10001u;
      uint32_t s1 = load_shared_u16(blob + 4096 + row * 2 + 16) * 0x10001u;
      __nv_bfloat162 low = *reinterpret_cast<__nv_bfloat162*>(&s0);
      __nv_bfloat162 high = *reinterpret_cast<__nv_bfloat162*>(&s1);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        uint4 v = load_shared_16(blob + h * 2048 + t * 16);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k += kBatch) {
          const int buffer = (4 / kBatch * h + k / kBatch) % 2;
#pragma unroll
          for (int i = 0; i < kBatch; i++) decode_step(words[k + i], low, high, a[buffer][i]);
          mma_fence();
#pragma unroll
          for (int i = 0; i < kBatch; i++)
            Mma<N>::template rs<kDesc128B>(
                acc[r], a[buffer][i], b + h * (N * 128 >> 4) + 2 * (k + i), kb + h + k + i > 0);
          mma_commit();
          mma_wait<1>();
          if (r == 0 && h == 0 && k == 0 && kb > 0) ring.release(ring.before());
        }
      }
    }
    ring.next();
  }
  mma_wait<0>();
  ring.release(ring.before());
}

__device__ inline uint32_t pack(float a, float b) {
  __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<uint32_t*>(&two);
}
__device__ inline float silu_mul(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

// act[position][kInner]: this warpgroup's 64 image rows are 32 activations from `col` on.
template <int N>
__device__ inline void store_gate_up(const float (&d)[N / 2], Bf16* act, int start, int count,
                                     int col, uint32_t buffer) {
  int lane = threadIdx.x % 32;
  col += threadIdx.x % 128 / 32 * 8;
  if constexpr (N < 32) {
    Bf16* out = act + static_cast<size_t>(start) * kInner + col + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
      int token = 8 * (i / 2) + 2 * (lane % 4) + i % 2, at = 4 * (i / 2) + i % 2;
      if (token < count) out[token * kInner] = __float2bfloat16(silu_mul(d[at], d[at + 2]));
    }
  } else {
#pragma unroll
    for (int c = 0; c < N / 32; c++) {
      if (c * 32 >= count) break;
      uint32_t r[4];
#pragma unroll
      for (int q = 0; q < 4; q++) {
        const float* v = d + 16 * c + 4 * q;
        r[q] = pack(silu_mul(v[0], v[2]), silu_mul(v[1], v[3]));
      }
      __syncwarp();
      store_matrix_x4_trans(buffer + lane * 16, r);
      __syncwarp();
      int token = 32 * c + lane;
      uint4 v = load_shared_16(buffer + lane * 16);
      if (token < count)
        *reinterpret_cast<uint4*>(act + static_cast<size_t>(start + token) * kInner + col) = v;
    }
  }
}

// partial[position][kHidden]: 64 rows from `col` on.
template <int N>
__device__ inline void store_down(const float (&d)[N / 2], Bf16* partial, int start, int count,
                                  int col, uint32_t buffer) {
  int lane = threadIdx.x % 32;
  col += threadIdx.x % 128 / 32 * 16;
  if constexpr (N < 16) {
    Bf16* out = partial + static_cast<size_t>(start) * kHidden + col + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int token = 2 * (lane % 4) + i % 2;
      if (token < count) out[token * kHidden + 8 * (i / 2)] = __float2bfloat16(d[i]);
    }
  } else {
#pragma unroll
    for (int c = 0; c < N / 16; c++) {
      if (c * 16 >= count) break;
      const float* v = d + 8 * c;
      const uint32_t r[4] = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]),
                             pack(v[6], v[7])};
      __syncwarp();
      store_matrix_x4_trans(buffer + (lane / 16 * 8 + lane % 8) * 48 + lane / 8 % 2 * 16, r);
      __syncwarp();
      int token = 16 * c + lane / 2;
      uint4 u = load_shared_16(buffer + lane / 2 * 48 + lane % 2 * 16);
      if (token < count)
        *reinterpret_cast<uint4*>(partial + static_cast<size_t>(start + token) * kHidden + col +
                                  lane % 2 * 8) = u;
    }
  }
}

// All 128 threads of one warpgroup; constant ids, or ptxas reserves all 16 barriers.
__device__ inline void consumer_barrier(int warpgroup) {
  if (warpgroup == 0)
    named_barrier(1, 128);
  else
    named_barrier(2, 128);
}

struct ConsumerState {
  Ring ring;
  uint32_t buffer;  // this warp's 768 bytes
  uint8_t* last;    // this warpgroup's flags, one a token: its sum over the experts falls to us
  float* halves;    // [N / 2][128]: what the second warpgroup of a split tile hands to the first
  int warpgroup;
  bool combine_inline;
  bool copied;  // gate_up's token rows come by cp.async: fence before the tensor cores read them
};

template <class S, int N>
__device__ inline void run_tile(const LayerParams& p, const Tables& tables, const Item& item,
                                ConsumerState& s) {
  if constexpr (S::kLora) {
    if (item.kind >= kShrinkGateUp)
      return run_shrink<S, N>(p, tables, item, s.ring, s.halves, s.warpgroup);
  }
  // zeros only so that no width's accumulators live from one item to the next: the first product
  // ignores them
  float acc[S::kBlocks][N / 2] = {};
  int steps = (item.kind == kGateUp ? kHidden : kInner) / S::kK;
  bool fence = !S::kInside && s.copied && item.kind == kGateUp;
  if constexpr (S::kFormat == Format::kBf16) {
    multiply_bf16<S, N>(acc, s.ring, steps, s.warpgroup, fence);
  } else {
    multiply_int4<S, N>(acc, s.ring, steps, s.warpgroup, fence);
  }
  if constexpr (S::kLora) {
    if (item.kind == kGateUp) {
      expand<S, N, 2>(acc, item.adapters, s.ring, s.warpgroup);
    } else {
      expand<S, N, 1>(acc, item.adapters, s.ring, s.warpgroup);
    }
  }
  if (threadIdx.x == 0) trace(p, kMultiplied);
  if constexpr (S::kSplit) {
    if (!add_halves<N>(acc, s.halves, s.warpgroup)) return;
  }
  int t = threadIdx.x % 128;
  int row = S::kSplit ? item.row_tile * 64 : (item.row_tile * 2 + s.warpgroup) * S::kBlocks * 64;
  if (item.kind == kGateUp) {
#pragma unroll
    for (int r = 0; r < S::kBlocks; r++)
      store_gate_up<N>(acc[r], p.act, item.start, item.count, (row + 64 * r) / 2, s.buffer);
    fence_async_all();  // the down tiles read act by TMA
    __threadfence();
    consumer_barrier(s.warpgroup);
    if (t == 0) add_release(&p.plan.segment_done[item.segment], 1);
    if (threadIdx.x == 0) trace(p, kGateUpStored);
  } else {
#pragma unroll
    for (int r = 0; r < S::kBlocks; r++)
      store_down<N>(acc[r], p.partial, item.start, item.count, row + 64 * r, s.buffer);
    if (!S::kInside && !s.combine_inline) return;
    __threadfence();
    consumer_barrier(s.warpgroup);
    if (threadIdx.x == 0) trace(p, kDownStored);
    for (int i = t; i < item.count; i += 128) {
      int token = tables.token_of[item.start + i];
      int* done = &p.plan.token_done[token * (kHidden / 64) + row / 64];
      s.last[i] = fetch_add_acq_rel(done, 1) == kTopK - 1;
    }
    consumer_barrier(s.warpgroup);
    for (int i = t; i < item.count * S::kBlocks * 8; i += 128) {
      int token = i / (S::kBlocks * 8), chunk = i % (S::kBlocks * 8);
      if (s.last[token])
        combine_chunk(p, tables.position_of, tables.token_of[item.start + token], row + chunk * 8);
    }
    if (threadIdx.x == 0) trace(p, kSummed);
  }
}

}  // namespace expert_layer
