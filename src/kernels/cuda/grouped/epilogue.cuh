// What a consumer warpgroup does with a tile: its K loops, then the epilogue of gate_up (biases and
// activation in registers: the image's rows alternate by eights) or of down.
#pragma once

#include "kernels/cuda/grouped/adapters.cuh"
#include "kernels/cuda/grouped/combine.cuh"
#include "kernels/cuda/grouped/multiply.cuh"
#include "kernels/cuda/grouped/multiply_int4.cuh"

namespace motley::kernels::cuda::grouped {

__device__ inline std::uint32_t pack(float a, float b) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}

inline constexpr int store_bytes = 768;  // of shared memory, a warp

struct Activator {
  bool clamped;
  float limit, alpha;
  float gate_bias, up_bias;

  __device__ float operator()(float gate, float up) const {
    gate += gate_bias;
    up += up_bias;
    if (!clamped) return __fdividef(gate, 1.0F + __expf(-gate)) * up;
    // Written so that NaN stays NaN.
    if (gate > limit) gate = limit;
    if (up > limit) up = limit;
    if (up < -limit) up = -limit;
    return (up + 1.0F) * __fdividef(gate, 1.0F + __expf(-alpha * gate));
  }
};

// h[place][inner]: this warpgroup's 64 image rows are 32 columns from `col` on.
template <int N>
__device__ inline void store_gate_up(const float (&d)[N / 2], const LayerParams& p,
                                     const Item& item, int col, std::uint32_t buffers) {
  const int t = thread_here();
  const int lane = t % 32;
  col += t % 128 / 32 * 8;
  if (col >= p.inner) return;  // inner is a multiple of 8
  Activator activate{p.activation == ExpertActivation::clamped_swiglu, p.swiglu_limit,
                     p.swiglu_alpha, 0.0F, 0.0F};
  if (p.gate_bias != nullptr) {
    const std::size_t at = static_cast<std::size_t>(item.expert) * p.inner + col + lane / 4;
    activate.gate_bias = __ldg(p.gate_bias + at);
    activate.up_bias = __ldg(p.up_bias + at);
  }
  const std::uint32_t buffer = buffers + t / 32 * store_bytes;
  Bf16* const out = p.h + static_cast<std::size_t>(item.begin) * p.inner + col;
  if constexpr (N < 32) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const int row = 8 * (i / 2) + 2 * (lane % 4) + i % 2;
      const int at = 4 * (i / 2) + i % 2;
      if (row < item.count)
        out[static_cast<std::size_t>(row) * p.inner + lane / 4] =
            __float2bfloat16(activate(d[at], d[at + 2]));
    }
  } else {
#pragma unroll
    for (int c = 0; c < N / 32; ++c) {
      if (c * 32 >= item.count) break;
      std::uint32_t r[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float* const v = d + 16 * c + 4 * q;
        r[q] = pack(activate(v[0], v[2]), activate(v[1], v[3]));
      }
      __syncwarp();
      store_matrix_x4_trans(buffer + lane * 16, r);
      __syncwarp();
      const int row = 32 * c + lane;
      const uint4 v = load_shared_16(buffer + lane * 16);
      if (row < item.count)
        *reinterpret_cast<uint4*>(out + static_cast<std::size_t>(row) * p.inner) = v;
    }
  }
}

// partial[place][hidden]: 64 rows of the image from `col` on.
template <int N>
__device__ inline void store_down(const float (&d)[N / 2], const LayerParams& p, const Item& item,
                                  int col, std::uint32_t buffers) {
  const int t = thread_here();
  const int lane = t % 32;
  col += t % 128 / 32 * 16;
  if (col >= p.hidden) return;
  float bias[2] = {};
  if (p.down_bias != nullptr) {
    const float* const from =
        p.down_bias + static_cast<std::size_t>(item.expert) * p.hidden + col + lane / 4;
    bias[0] = __ldg(from);
    if (col + 8 < p.hidden) bias[1] = __ldg(from + 8);
  }
  const std::uint32_t buffer = buffers + t / 32 * store_bytes;
  Bf16* const out = p.partial + static_cast<std::size_t>(item.begin) * p.hidden + col;
  if constexpr (N < 16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 2 * (lane % 4) + i % 2;
      const int at = lane / 4 + 8 * (i / 2);
      if (row < item.count && col + 8 * (i / 2) < p.hidden)
        out[static_cast<std::size_t>(row) * p.hidden + at] = __float2bfloat16(d[i] + bias[i / 2]);
    }
  } else {
    const bool mine = col + lane % 2 * 8 < p.hidden;
#pragma unroll
    for (int c = 0; c < N / 16; ++c) {
      if (c * 16 >= item.count) break;
      const float* const v = d + 8 * c;
      const std::uint32_t r[4] = {
          pack(v[0] + bias[0], v[1] + bias[0]), pack(v[2] + bias[1], v[3] + bias[1]),
          pack(v[4] + bias[0], v[5] + bias[0]), pack(v[6] + bias[1], v[7] + bias[1])};
      __syncwarp();
      store_matrix_x4_trans(buffer + (lane / 16 * 8 + lane % 8) * 48 + lane / 8 % 2 * 16, r);
      __syncwarp();
      const int row = 16 * c + lane / 2;
      const uint4 u = load_shared_16(buffer + lane / 2 * 48 + lane % 2 * 16);
      if (row < item.count && mine)
        *reinterpret_cast<uint4*>(out + static_cast<std::size_t>(row) * p.hidden + lane % 2 * 8) =
            u;
    }
  }
}

struct ConsumerState {
  Ring ring;
  std::uint32_t buffers;  // store_bytes for each warp
  unsigned char* last;    // [warpgroups][width] flags: a row's token falls to us to sum
  int width;
  int warpgroup;
  bool copied;  // gate_up's token rows, and those of rank space, come by cp.async
  bool sum;
  SlotSignals widened;  // FP8: a shrink's stage is bf16
};

// Sums the tokens of which this tile was the last to be stored, for this warpgroup's 64 columns.
template <class S>
__device__ inline void sum_tokens(const LayerParams& p, const Tables& tables, const Item& item,
                                  const ConsumerState& s, int col) {
  const int t = thread_here() % 128;
  unsigned char* const last = s.last + s.warpgroup * s.width;
  consumer_barrier(s.warpgroup);
  const int blocks = (p.hidden + 63) / 64;
  for (int i = t; i < item.count; i += 128) {
    const int token = tables.tokens[item.begin + i];
    const int slots = tables.slots != nullptr ? tables.slots[token] : routed_slots(p, token);
    const int before = fetch_add_acq_rel(&p.counters.token_done[token * blocks + col / 64], 1);
    last[i] = before == slots - 1 ? 1 : 0;
  }
  consumer_barrier(s.warpgroup);
  for (int i = t; i < item.count * 8; i += 128) {
    const int column = col + i % 8 * 8;
    if (last[i / 8] != 0 && column < p.hidden)
      combine_chunk<S::sum_ahead>(p, tables.places, tables.routed,
                                  tables.tokens[item.begin + i / 8], column);
  }
}

template <class S, int N>
__device__ inline void run_tile(const LayerParams& p, const LaunchParams& l, const Tables& tables,
                                const Item& item, ConsumerState& s) {
  if constexpr (S::shrinks) {
    if (item.shrinks()) {
      shrink<S, N>(p, tables, item, s.ring, s.warpgroup, s.copied && item.seam() == 0, s.widened);
      return;
    }
  }
  // zeros only so that no width's accumulators live from one item to the next: the first product
  // ignores them
  float acc[S::blocks][N / 2] = {};
  const bool first = item.kind == ItemKind::gate_up;
  const int steps = ((first ? p.hidden : p.inner) + S::stage_k - 1) / S::stage_k;
  const bool fence = s.copied && first;
  if constexpr (S::bf16) {
    multiply_bf16<S, N>(acc, s.ring, steps, s.warpgroup, fence);
  } else if constexpr (S::by_warps) {
    multiply_int4_few<S, N>(acc, s.ring, steps, s.warpgroup);
  } else {
    multiply_int4<S, N>(acc, s.ring, steps, s.warpgroup, fence);
  }
  if constexpr (S::lora) {
    if (item.first_piece < item.last_piece) {
      if constexpr (S::by_warps) {
        expand_few<S, N>(acc, s.ring, s.warpgroup);
      } else {
        expand<S, N>(acc, s.ring, s.warpgroup);
      }
    }
  }
  if constexpr (!S::bf16) {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r)
#pragma unroll
      for (int i = 0; i < N / 2; ++i) acc[r][i] *= 1 / int4_unit;
  }
  const int t = thread_here() % 128;
  const int row = (item.row_tile * S::warpgroups + s.warpgroup) * S::blocks * 64;
  if (first) {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r)
      store_gate_up<N>(acc[r], p, item, (row + 64 * r) / 2, s.buffers);
    if (!S::lora && l.phase != Phase::both) return;
    consumer_barrier(s.warpgroup);
    // behind the barrier one thread's release orders what all have written
    if (t == 0) add_release(&p.counters.tile_done[item.tile], 1);
  } else {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r) store_down<N>(acc[r], p, item, row + 64 * r, s.buffers);
    if constexpr (S::small) {
      if (s.sum && row < p.hidden) sum_tokens<S>(p, tables, item, s, row);
    }
  }
}

}  // namespace motley::kernels::cuda::grouped
