// What a consumer warpgroup does with a tile: its K loops, then the epilogue of gate_up or of down.
// Packed rows of gate and up alternate in groups of 8, so biases and activation stay in registers.
#pragma once

#include "kernels/cuda/experts/grouped/activator.cuh"
#include "kernels/cuda/experts/grouped/adapters.cuh"
#include "kernels/cuda/experts/grouped/combine.cuh"
#include "kernels/cuda/experts/grouped/multiply.cuh"
#include "kernels/cuda/experts/grouped/multiply_codes.cuh"
#include "kernels/cuda/experts/grouped/multiply_input_codes.cuh"
#include "kernels/cuda/experts/grouped/token_rows.cuh"

namespace motley::kernels::cuda::grouped {

// Shared memory in which a warpgroup stages its stores: 16 tokens of 16 rows (of 64, where tokens
// are the rows of products) for each of four warps, or, with two blocks of rows, 32 tokens of 64
// columns of h (16 tokens of 128 rows need less).
template <class S>
inline constexpr int store_bytes = S::coded_inputs && !S::small ? token_rows_bytes
                                   : S::blocks == 1             ? 4 * 768
                                                                : 32 * (128 + 16);

// Stores to h[place][inner]: this warpgroup's blocks of 64 packed rows are 32 columns each, from
// `col` on. Wide tiles are staged in the warpgroup's shared-memory buffer and stored token by token
// over all its columns, so that stores are whole cache lines: a partial line costs L2 as much.
template <class S, int N>
__device__ inline void store_gate_up(const float (&d)[S::blocks][N / 2], const LayerParams& p,
                                     const Item& item, int col, const ConsumerState& s) {
  const int t = thread_here() % 128;
  const int lane = t % 32;
  const int own = col + t / 32 * 8;  // of the first block; inner is a multiple of 8
  Activator activate[S::blocks];
#pragma unroll
  for (int b = 0; b < S::blocks; ++b) {
    activate[b] = {p.activation == ExpertActivation::clamped_swiglu, p.swiglu_limit, p.swiglu_alpha,
                   0.0F, 0.0F};
    if (p.gate_bias == nullptr || own + 32 * b >= p.inner) continue;
    const std::size_t at =
        static_cast<std::size_t>(item.expert) * p.inner + own + 32 * b + lane / 4;
    activate[b].gate_bias = __ldg(p.gate_bias + at);
    activate[b].up_bias = __ldg(p.up_bias + at);
  }
  Bf16* const out = p.h + static_cast<std::size_t>(item.begin) * p.inner;
  if constexpr (N < 32) {
#pragma unroll
    for (int b = 0; b < S::blocks; ++b) {
      if (own + 32 * b >= p.inner) break;
#pragma unroll
      for (int i = 0; i < N / 4; ++i) {
        const int row = 8 * (i / 2) + 2 * (lane % 4) + i % 2;
        const int at = 4 * (i / 2) + i % 2;
        if (row < item.count)
          out[static_cast<std::size_t>(row) * p.inner + own + 32 * b + lane / 4] =
              __float2bfloat16(activate[b](d[b][at], d[b][at + 2]));
      }
    }
  } else {
    constexpr int chunks = S::blocks * 4;  // of 8 columns, per token
    constexpr int pitch = chunks * 16 + 16;
    const std::uint32_t to = s.buffer + lane * pitch + t / 32 * 16;
    const std::uint32_t from = s.buffer + t / chunks * pitch + t % chunks * 16;
    const bool mine = col + t % chunks * 8 < p.inner;
#pragma unroll
    for (int c = 0; c < N / 32; ++c) {
      if (c * 32 >= item.count) break;
      std::uint32_t r[S::blocks][4];
#pragma unroll
      for (int b = 0; b < S::blocks; ++b)
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const float* const v = d[b] + 16 * c + 4 * q;
          r[b][q] = pack(activate[b](v[0], v[2]), activate[b](v[1], v[3]));
        }
      consumer_barrier(s.warpgroup);
#pragma unroll
      for (int b = 0; b < S::blocks; ++b) store_matrix_x4_trans(to + b * 64, r[b]);
      consumer_barrier(s.warpgroup);
#pragma unroll
      for (int i = 0; i < 32 * chunks / 128; ++i) {
        const int row = 32 * c + t / chunks + i * (128 / chunks);
        const uint4 v = load_shared_16(from + i * (128 / chunks) * pitch);
        if (row < item.count && mine)
          *reinterpret_cast<uint4*>(out + static_cast<std::size_t>(row) * p.inner + col +
                                    t % chunks * 8) = v;
      }
    }
  }
}

// Stores to partial[place][hidden]: blocks of 64 packed rows from `col` on. Where a warpgroup has
// one block, each warp stores its own part.
template <class S, int N>
__device__ inline void store_down(const float (&d)[S::blocks][N / 2], const LayerParams& p,
                                  const Item& item, int col, const ConsumerState& s) {
  const int t = thread_here() % 128;
  const int lane = t % 32;
  const int own = col + t / 32 * 16;  // of the first block
  float bias[S::blocks][2] = {};
  if (p.down_bias != nullptr) {
    const float* const from =
        p.down_bias + static_cast<std::size_t>(item.expert) * p.hidden + lane / 4;
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = own + 64 * b + 8 * half;
        if (at < p.hidden) bias[b][half] = __ldg(from + at);
      }
  }
  Bf16* const out = p.partial + static_cast<std::size_t>(item.begin) * p.hidden;
  if constexpr (N < 16) {
#pragma unroll
    for (int b = 0; b < S::blocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * (lane % 4) + i % 2;
        const int at = own + 64 * b + 8 * (i / 2);
        if (row < item.count && at < p.hidden)
          out[static_cast<std::size_t>(row) * p.hidden + at + lane / 4] =
              __float2bfloat16(d[b][i] + bias[b][i / 2]);
      }
  } else {
    constexpr int warps = S::blocks == 1 ? 1 : 4;  // warps that store together
    constexpr int threads = 32 * warps;
    constexpr int chunks = S::blocks * warps * 2;  // of 8 rows, per token
    constexpr int pitch = chunks * 16 + 16;
    static_assert(16 * pitch <= store_bytes<S> / (4 / warps));
    const int of = t % threads;
    const int begin = S::blocks == 1 ? own : col;
    const std::uint32_t buffer = s.buffer + (S::blocks == 1 ? t / 32 * (store_bytes<S> / 4) : 0);
    const std::uint32_t to = buffer + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16 +
                             (S::blocks == 1 ? 0 : t / 32 * 32);
    const std::uint32_t from = buffer + of / chunks * pitch + of % chunks * 16;
    const bool mine = begin + of % chunks * 8 < p.hidden;
    const auto meet = [&] {
      if constexpr (S::blocks == 1)
        __syncwarp();
      else
        consumer_barrier(s.warpgroup);
    };
#pragma unroll
    for (int c = 0; c < N / 16; ++c) {
      if (c * 16 >= item.count) break;
      std::uint32_t r[S::blocks][4];
#pragma unroll
      for (int b = 0; b < S::blocks; ++b)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const v = d[b] + 8 * c + 2 * i;
          r[b][i] = pack(v[0] + bias[b][i % 2], v[1] + bias[b][i % 2]);
        }
      meet();
#pragma unroll
      for (int b = 0; b < S::blocks; ++b) store_matrix_x4_trans(to + b * 128, r[b]);
      meet();
#pragma unroll
      for (int i = 0; i < 16 * chunks / threads; ++i) {
        const int row = 16 * c + of / chunks + i * (threads / chunks);
        const uint4 v = load_shared_16(from + i * (threads / chunks) * pitch);
        if (row < item.count && mine)
          *reinterpret_cast<uint4*>(out + static_cast<std::size_t>(row) * p.hidden + begin +
                                    of % chunks * 8) = v;
      }
    }
  }
}

// Sums the tokens whose last tile this was, for this warpgroup's 64 columns.
template <class S>
__device__ inline void sum_tokens(const LayerParams& p, const Tables& tables, const Item& item,
                                  const ConsumerState& s, int col) {
  const int t = thread_here() % 128;
  consumer_barrier(s.warpgroup);
  const int blocks = (p.hidden + 63) / 64;
  for (int i = t; i < item.count; i += 128) {
    const int token = tables.tokens[item.begin + i];
    const int slots = tables.slots != nullptr ? tables.slots[token] : routed_slots(p, token);
    const int before = fetch_add_acq_rel(&p.counters.token_done[token * blocks + col / 64], 1);
    s.last[i] = before == slots - 1 ? 1 : 0;
  }
  consumer_barrier(s.warpgroup);
  for (int i = t; i < item.count * 8; i += 128) {
    const int column = col + i % 8 * 8;
    if (s.last[i / 8] != 0 && column < p.hidden)
      combine_chunk<S::sum_ahead>(p, tables.places, tables.routed,
                                  tables.tokens[item.begin + i / 8], column);
  }
}

// Multiplies sums by the scales of their rows: packed rows from `row` on.
template <class S, int N>
__device__ inline void scale_rows(float (&acc)[S::blocks][N / 2], const LayerParams& p,
                                  const Item& item, int row) {
  const int t = thread_here() % 128;
  const bool first = item.kind == ItemKind::gate_up;
  const int rows = first ? 2 * p.inner : p.hidden;
  const float* const scales =
      p.row_scales[first ? 0 : 1] + static_cast<std::size_t>(item.expert) * rows;
#pragma unroll
  for (int b = 0; b < S::blocks; ++b) {
    const int low = row + 64 * b + 16 * (t / 32) + t % 32 / 4;
    const float low_scale = low < rows ? __ldg(scales + low) : 0;
    const float high_scale = low + 8 < rows ? __ldg(scales + low + 8) : 0;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[b][i] *= i % 4 < 2 ? low_scale : high_scale;
  }
}

template <class S, int N>
__device__ inline void run_tile(const LayerParams& p, const LaunchParams& l, const Tables& tables,
                                const Item& item, ConsumerState& s) {
  if constexpr (S::shrinks) {
    if (item.shrinks()) {
      shrink<S, N>(p, tables, item, s);
      return;
    }
  }
  // zeroed only to keep the accumulators of one width from staying live across items; the first
  // product overwrites them
  float acc[S::blocks][N / 2] = {};
  const bool first = item.kind == ItemKind::gate_up;
  const int steps = ((first ? p.hidden : p.down_columns) + S::stage_k - 1) / S::stage_k;
  const bool fence = s.copied && first;
  const auto signal = [&] {
    if constexpr (S::signals_late) s.signal(p);
  };
  if (!first) signal();  // a down tile may depend on the tile before it
  if constexpr (S::bf16) {
    multiply_bf16<S, N>(acc, s.ring, steps, s.warpgroup, fence, signal);
  } else if constexpr (S::coded_inputs) {
    multiply_input_codes<S, N>(acc, s.ring, steps, s.warpgroup, p);
  } else if constexpr (S::by_warps) {
    multiply_codes_few<S, N>(acc, s.ring, steps, s.warpgroup, p.half_scales);
  } else {
    multiply_codes<S, N>(acc, s.ring, steps, s.warpgroup, fence, p.half_scales);
  }
  const int row = (item.row_tile * S::warpgroups + s.warpgroup) * S::blocks * 64;
  // Before the adapters' steps, which have scales of their own.
  if constexpr (S::layout.row_scales) scale_rows<S, N>(acc, p, item, row);
  if constexpr (S::lora) {
    if (item.first_piece < item.last_piece) {
      if constexpr (tokens_are_rows<S, N>) {
        expand_tokens<S, N>(acc, s.ring, s.warpgroup, p.f8_factors);
      } else if constexpr (S::by_warps) {
        expand_few<S, N>(acc, s.ring, s.warpgroup, p.f8_factors);
      } else {
        expand<S, N>(acc, s.ring, s.warpgroup, p.f8_factors);
      }
    }
  }
  if constexpr (S::unit != 1) {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r)
#pragma unroll
      for (int i = 0; i < N / 2; ++i) acc[r][i] *= 1 / S::unit;
  }
  if (first) {
    if constexpr (tokens_are_rows<S, N>)
      store_gate_up_tokens<S, N>(acc, p, item, s);
    else
      store_gate_up<S, N>(acc, p, item, row / 2, s);
    if (!S::lora && l.phase != Phase::both) return;
    signal();  // not signalled yet if there was no second step
    consumer_barrier(s.warpgroup);
    s.stored = item.tile;
    if constexpr (!S::signals_late) s.signal(p);
  } else {
    if constexpr (tokens_are_rows<S, N>)
      store_down_tokens<S, N>(acc, p, item, s);
    else
      store_down<S, N>(acc, p, item, row, s);
    if constexpr (S::small) {
      if (s.sum && row < p.hidden) sum_tokens<S>(p, tables, item, s, row);
    }
  }
}

}  // namespace motley::kernels::cuda::grouped
