// What follows the K loop where tokens are the rows of products (multiply_input_codes.cuh): the
// adapters' steps, and the stores of gate_up and of down.
#pragma once

#include "kernels/cuda/elementary/input_codes.cuh"
#include "kernels/cuda/experts/grouped/activator.cuh"
#include "kernels/cuda/experts/grouped/adapters.cuh"
#include "kernels/cuda/experts/grouped/multiply_input_codes.cuh"
#include "kernels/cuda/experts/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

// A warp stages 16 tokens of 64 columns, or of 128 codes, so that its stores are whole cache lines.
inline constexpr int token_row_pitch = 128 + 16;
inline constexpr int token_rows_bytes = 4 * 16 * token_row_pitch;  // of a warpgroup

// Whether gate_up's tiles have all of h that shares a scale with a number, and no other reader
// (adapters) needs h itself. Stores end with the launch, so down is another one.
template <class S>
inline constexpr bool rounds_h = S::least_width == 64 && S::code_type == DType::f8_e4m3 && !S::lora;

// The k16 steps of a tile's adapters. The A operand is the rows in rank space, with zeros for rows
// of other labels, the B operand packed B.
template <class S, int N>
__device__ inline void expand_tokens(float (&acc)[S::blocks][N / 2], Ring& ring, int warpgroup,
                                     bool f8_factors) {
  static_assert(N == 128);
  for (bool last = false; !last;) {
    bar_wait(ring.full_bar(), ring.parity);
    last = ring.steps[ring.slot] >= last_steps;
    const int steps = ring.steps[ring.slot] % last_steps;
    fence_async_shared();  // rank rows arrive by cp.async
    if (f8_factors) {
      // each warpgroup its half, for both
      widen_stage_of_b<S>(ring.data() + warpgroup * S::blocks * S::delta_steps * 2048, steps,
                          warpgroup);
      both_consumers_barrier();
    }
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

// What a warp stores of a tile: 16 tokens, of the columns of its warpgroup.
template <class S, int N>
struct TokenRowsPart {
  static constexpr int weight_rows = shares_tokens<S, N> ? S::rows : 64 * S::blocks;
  static constexpr int groups = weight_rows / 8;

  std::uint32_t buffer;  // of the warp
  int column;            // the first packed row of weights
  int first;             // token of the tile
  int count;             // tokens from there on

  __device__ TokenRowsPart(const Item& item, const ConsumerState& s) {
    const int warp = thread_here() % 128 / 32;
    buffer = s.buffer + warp * (16 * token_row_pitch);
    column = item.row_tile * S::rows + (shares_tokens<S, N> ? 0 : s.warpgroup * weight_rows);
    first = (shares_tokens<S, N> ? 64 * s.warpgroup : 0) + 16 * warp;
    count = item.count - first;
    // Other widths share the buffer out to warps in another way.
    if constexpr (S::least_width < 64) consumer_barrier(s.warpgroup);
  }
  // Sums of packed rows 8 group + 2 (lane % 4) and the one behind, of token lane / 4 + 8 below.
  __device__ static float* sums(float (&acc)[S::blocks][N / 2], int group, int below) {
    return acc[group / (N / 8)] + 4 * (group % (N / 8)) + 2 * below;
  }
  // The same of h, where activate_tokens() has put it.
  __device__ static std::uint32_t two_of_h(float (&acc)[S::blocks][N / 2], int group, int below) {
    const float* const h = sums(acc, 2 * group, below);
    return pack(h[0], h[1]);
  }

  // Stores 64 columns of rows of so many. two(i, below): columns 8 i + 2 (lane % 4) and the one
  // behind, of token lane / 4 + 8 below.
  template <class Two>
  __device__ void store(Bf16* rows, int width, int at, const Two& two) const {
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
    at += lane % 8 * 8;
    if (at >= width) return;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const int row = i + lane / 8;
      const uint4 v = load_shared_16(buffer + row * token_row_pitch + lane % 8 * 16);
      if (row < count)
        *reinterpret_cast<uint4*>(rows + static_cast<std::size_t>(row) * width + at) = v;
    }
  }
};

// Two numbers of a bias beside each other, or zeros.
__device__ inline float2 two_of(const float* bias, std::size_t at, bool there) {
  if (bias == nullptr || !there) return {0, 0};
  return {__ldg(bias + at), __ldg(bias + at + 1)};
}

// Adds a bias to the sums of gate, or of up, which is behind it.
template <class S, int N>
__device__ inline void add_bias(float (&acc)[S::blocks][N / 2], const float* bias, int up,
                                const LayerParams& p, const Item& item,
                                const TokenRowsPart<S, N>& part) {
  if (bias == nullptr) return;
  const int own = part.column / 2 + thread_here() % 4 * 2;
#pragma unroll
  for (int group = 0; group < part.groups / 2; ++group) {
    if (own + 8 * group >= p.inner) continue;
    const float* const from =
        bias + static_cast<std::size_t>(item.expert) * p.inner + own + 8 * group;
#pragma unroll
    for (int i = 0; i < 4; ++i) part.sums(acc, 2 * group + up, i / 2)[i % 2] += __ldg(from + i % 2);
  }
}

// Replaces the sums of gate by h.
template <class S, int N>
__device__ inline void activate_tokens(float (&acc)[S::blocks][N / 2], const LayerParams& p,
                                       const Item& item, const TokenRowsPart<S, N>& part) {
  add_bias(acc, p.gate_bias, 0, p, item, part);
  add_bias(acc, p.up_bias, 1, p, item, part);
  const auto each = [&](const auto& h) {
#pragma unroll
    for (int group = 0; group < part.groups / 2; ++group)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& gate = part.sums(acc, 2 * group, i / 2)[i % 2];
        gate = h(gate, part.sums(acc, 2 * group + 1, i / 2)[i % 2]);
      }
  };
  if (p.activation == ExpertActivation::clamped_swiglu) {
    const Activator activate{true, p.swiglu_limit, p.swiglu_alpha, 0, 0};
    each([&](float gate, float up) { return activate.clamped_swiglu(gate, up); });
  } else {
    each(Activator::silu_mul);
  }
}

// The larger of both warpgroups' numbers of a token; `tokens`: of this thread.
__device__ inline void exchange_largest(float (&largest)[2], const int (&tokens)[2],
                                        ConsumerState& s) {
  __shared__ float exchanged[2][2][64];  // of two tiles: one is read while the next is written
  auto& both = exchanged[s.exchanges++ % 2];
#pragma unroll
  for (int below = 0; below < 2; ++below)
    if (thread_here() % 4 == 0) both[s.warpgroup][tokens[below]] = largest[below];
  both_consumers_barrier();
#pragma unroll
  for (int below = 0; below < 2; ++below)
    largest[below] = fmaxf(largest[below], both[1 - s.warpgroup][tokens[below]]);
}

// Codes of h and their scales, of the 128 columns of a tile, with the bits of code_expert_inputs().
// Scales of blocks are never zero.
template <class S, int N>
__device__ inline void store_codes_of_h(float (&acc)[S::blocks][N / 2], const LayerParams& p,
                                        const Item& item, const TokenRowsPart<S, N>& part,
                                        ConsumerState& s) {
  static_assert(S::rows == 2 * 128);
  constexpr int groups = part.groups / 2;
  const int lane = thread_here() % 32;
  // Behind the last column there may be no weights.
  const int own_columns = p.inner - part.column / 2 - lane % 4 * 2;
  std::uint32_t two[groups][2];
  float largest[2] = {0, 0};
#pragma unroll
  for (int group = 0; group < groups; ++group)
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const std::uint32_t bits = 8 * group < own_columns ? part.two_of_h(acc, group, below) : 0;
      two[group][below] = bits;
      largest[below] = fmaxf(largest[below], fabsf(__uint_as_float(bits << 16)));
      largest[below] = fmaxf(largest[below], fabsf(__uint_as_float(bits & 0xFFFF0000U)));
    }
#pragma unroll
  for (float& most : largest) {
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
  }
  if constexpr (!shares_tokens<S, N>)
    exchange_largest(largest, {part.first + lane / 4, part.first + lane / 4 + 8}, s);
  bulk_store_wait_read();
  __syncwarp();
  const std::size_t begin = item.begin + part.first;
  float* const scales = p.h_codes.scales + item.row_tile * p.h_codes.pitch + begin;
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int row = lane / 4 + 8 * below;
    const float scale = input_scale(p.h_rounding, largest[below]);
    const bool mine = shares_tokens<S, N> || s.warpgroup == 0;
    if (mine && lane % 4 == 0 && row < part.count) scales[row] = scale;
    const input_codes::Divisor divide(scale);
    const std::uint32_t to = part.buffer + row * token_row_pitch + lane % 4 * 2;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      const std::uint32_t bits = two[group][below];
      store_shared_2(to + 8 * group, input_codes::codes_of<S::code_type>(
                                         divide(__uint_as_float(bits << 16)),
                                         divide(__uint_as_float(bits & 0xFFFF0000U))));
    }
  }
  fence_async_shared();
  __syncwarp();
  const int bytes = min(TokenRowsPart<S, N>::weight_rows / 2, p.inner - part.column / 2);
  if (lane < part.count && lane < 16 && bytes > 0)
    bulk_store(p.h_codes.codes + (begin + lane) * p.inner + part.column / 2,
               part.buffer + lane * token_row_pitch, static_cast<unsigned>(bytes));
}

template <class S, int N>
__device__ inline void store_gate_up_tokens(float (&acc)[S::blocks][N / 2], const LayerParams& p,
                                            const Item& item, ConsumerState& s) {
  const TokenRowsPart<S, N> part(item, s);
  activate_tokens(acc, p, item, part);
  if constexpr (rounds_h<S>) {
    if (p.h_codes.codes != nullptr) {
      store_codes_of_h(acc, p, item, part, s);
      return;
    }
  }
  if (part.count <= 0) return;
  Bf16* const rows = p.h + static_cast<std::size_t>(item.begin + part.first) * p.inner;
#pragma unroll
  for (int group = 0; group < part.groups / 2; group += 8)
    part.store(rows, p.inner, part.column / 2 + 8 * group,
               [&](int i, int below) { return part.two_of_h(acc, group + i, below); });
}

template <class S, int N>
__device__ inline void store_down_tokens(float (&acc)[S::blocks][N / 2], const LayerParams& p,
                                         const Item& item, const ConsumerState& s) {
  using Part = TokenRowsPart<S, N>;
  const Part part(item, s);
  if (part.count <= 0) return;
  Bf16* const rows = p.partial + static_cast<std::size_t>(item.begin + part.first) * p.hidden;
  const int own = part.column + thread_here() % 4 * 2;
  const std::size_t biases = static_cast<std::size_t>(item.expert) * p.hidden + own;
#pragma unroll
  for (int group = 0; group < Part::groups; group += 8) {
    part.store(rows, p.hidden, part.column + 8 * group, [&](int i, int below) {
      const int at = 8 * (group + i);
      const float2 bias = two_of(p.down_bias, biases + at, own + at < p.hidden);
      const float* const v = Part::sums(acc, group + i, below);
      return pack(v[0] + bias.x, v[1] + bias.y);
    });
  }
}

}  // namespace motley::kernels::cuda::grouped
