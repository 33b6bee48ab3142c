// What follows the K loop where tokens are the rows of products (multiply_input_codes.cuh): the
// adapters' steps, and the stores of gate_up and of down.
#pragma once

#include "kernels/cuda/experts/grouped/activator.cuh"
#include "kernels/cuda/experts/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

// A warp stages 16 tokens of 64 columns, so that its stores are whole cache lines. Narrow tiles
// share the buffer out to warps in another way, so warps meet before they use it.
inline constexpr int token_row_pitch = 128 + 16;
inline constexpr int token_rows_bytes = 4 * 16 * token_row_pitch;  // of a warpgroup

// The k16 steps of a tile's adapters. The A operand is the rows in rank space, with zeros for rows
// of other labels, the B operand packed B.
template <class S, int N>
__device__ inline void expand_tokens(float (&acc)[S::blocks][N / 2], Ring& ring, int warpgroup) {
  static_assert(N == 128);
  for (bool last = false; !last;) {
    bar_wait(ring.full_bar(), ring.parity);
    last = ring.steps[ring.slot] >= last_steps;
    const int steps = ring.steps[ring.slot] % last_steps;
    fence_async_shared();  // rank rows arrive by cp.async
    const std::uint32_t a = descriptor_low(ring.data() + S::weight_bytes + warpgroup * 64 * 32);
    const std::uint32_t b = descriptor_low(ring.data());
    for (int step = 0; step < steps; ++step) {
      mma_fence();
#pragma unroll
      for (int r = 0; r < 2 * S::blocks; ++r)
        Mma<64>::template ss<swizzle_32>(*reinterpret_cast<float(*)[32]>(&acc[r / 2][r % 2 * 32]),
                                         a + step * (N * 32 >> 4),
                                         b + (r * S::delta_steps + step) * (2048 >> 4), 1);
      mma_commit();
      mma_wait<0>();
    }
    ring.release_read(ring.slot);
    ring.next();
  }
}

// The part of a tile that a warp stores: 16 tokens, 64 columns at a time.
struct TokenRowsPart {
  std::uint32_t buffer;  // of the warp
  int first;             // token of the tile
  int count;             // tokens from there on
  Bf16* out;             // the first one's row
  int width;             // of a row

  __device__ TokenRowsPart(const Item& item, std::uint32_t warpgroup_buffer, int warpgroup,
                           Bf16* to, int columns)
      : buffer(warpgroup_buffer + thread_here() % 128 / 32 * (16 * token_row_pitch)),
        first(64 * warpgroup + thread_here() % 128 / 32 * 16),
        count(item.count - first),
        out(to + static_cast<std::size_t>(item.begin + first) * columns),
        width(columns) {}

  // two(i, below): columns 8 i + 2 (lane % 4) and the one behind, of row lane / 4 + 8 below.
  template <class Two>
  __device__ void store(int column, const Two& two) const {
    const int lane = thread_here() % 32;
    const std::uint32_t to =
        buffer + (lane % 8 + lane / 8 % 2 * 8) * token_row_pitch + lane / 16 * 16;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const std::uint32_t r[4] = {two(i, 0), two(i, 1), two(i + 1, 0), two(i + 1, 1)};
      store_matrix_x4(to + i * 16, r);
    }
    __syncwarp();
    const int at = column + lane % 8 * 8;
    if (at >= width) return;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const int row = i + lane / 8;
      const uint4 v = load_shared_16(buffer + row * token_row_pitch + lane % 8 * 16);
      if (row < count)
        *reinterpret_cast<uint4*>(out + static_cast<std::size_t>(row) * width + at) = v;
    }
  }
};

// Two numbers of a bias beside each other, or zeros.
__device__ inline float2 two_of(const float* bias, std::size_t at, bool there) {
  if (bias == nullptr || !there) return {0, 0};
  return {__ldg(bias + at), __ldg(bias + at + 1)};
}

template <class S, int N>
__device__ inline void store_gate_up_tokens(const float (&acc)[S::blocks][N / 2],
                                            const LayerParams& p, const Item& item,
                                            std::uint32_t buffer, int warpgroup) {
  consumer_barrier(warpgroup);
  const TokenRowsPart part(item, buffer, warpgroup, p.h, p.inner);
  if (part.count <= 0) return;
  Activator activate{p.activation == ExpertActivation::clamped_swiglu, p.swiglu_limit,
                     p.swiglu_alpha, 0, 0};
  const int column = item.row_tile * (S::rows / 2);
  const int own = column + thread_here() % 4 * 2;
  const std::size_t biases = static_cast<std::size_t>(item.expert) * p.inner + own;
#pragma unroll
  for (int block = 0; block < S::blocks; ++block) {
    part.store(column + 64 * block, [&](int i, int below) {
      const int at = 64 * block + 8 * i;
      const bool there = own + at < p.inner;
      const float2 gate_bias = two_of(p.gate_bias, biases + at, there);
      const float2 up_bias = two_of(p.up_bias, biases + at, there);
      const float* const gate = acc[block] + 8 * i + 2 * below;
      const float* const up = gate + 4;
      activate.gate_bias = gate_bias.x;
      activate.up_bias = up_bias.x;
      const float first = activate(gate[0], up[0]);
      activate.gate_bias = gate_bias.y;
      activate.up_bias = up_bias.y;
      return pack(first, activate(gate[1], up[1]));
    });
  }
}

template <class S, int N>
__device__ inline void store_down_tokens(const float (&acc)[S::blocks][N / 2], const LayerParams& p,
                                         const Item& item, std::uint32_t buffer, int warpgroup) {
  consumer_barrier(warpgroup);
  const TokenRowsPart part(item, buffer, warpgroup, p.partial, p.hidden);
  if (part.count <= 0) return;
  const int column = item.row_tile * S::rows;
  const int own = column + thread_here() % 4 * 2;
  const std::size_t biases = static_cast<std::size_t>(item.expert) * p.hidden + own;
#pragma unroll
  for (int half = 0; half < S::rows / 64; ++half) {
    part.store(column + 64 * half, [&](int i, int below) {
      const int at = 64 * half + 8 * i;
      const float2 bias = two_of(p.down_bias, biases + at, own + at < p.hidden);
      const float* const v = acc[half / 2] + 4 * (half % 2 * 8 + i) + 2 * below;
      return pack(v[0] + bias.x, v[1] + bias.y);
    });
  }
}

}  // namespace motley::kernels::cuda::grouped
