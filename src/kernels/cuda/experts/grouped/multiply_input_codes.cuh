// The K loop of a consumer warpgroup where token rows are codes, too. Both operands stay in shared
// memory, and either can be the 64 rows of a product: rows of weights, beside a tile's tokens; or,
// in wide tiles, tokens, beside rows of weights, whose scales then are few for each thread.
#pragma once

#include "kernels/cuda/experts/grouped/ring.cuh"
#include "kernels/cuda/primitives/code_mma.cuh"

namespace motley::kernels::cuda::grouped {

template <class S, int N>
inline constexpr bool tokens_are_rows = S::coded_inputs && (N == 128 || S::least_width == 64);

// Warpgroups share out the tokens of wide tiles; those of narrow ones are rows for each, beside its
// part of the weights.
template <class S, int N>
inline constexpr bool shares_tokens = tokens_are_rows<S, N> && N == 128;

// Where a stage has one side's 128 k of codes, and their scales.
struct CodeSide {
  std::uint32_t codes, scales;

  // From its 64 i th row on.
  __device__ CodeSide from(int i) const { return {codes + i * 64 * 128, scales + i * 64 * 4}; }
};

// The sides of a warpgroup's products, one for each of its blocks of 64 rows; or, where tokens are
// the rows, of N columns.
template <class S, int N>
struct CodeOperands {
  CodeSide rows, columns;

  __device__ explicit CodeOperands(int warpgroup) {
    const CodeSide weights{0, S::rows * 128};
    const CodeSide tokens{S::weight_bytes, S::token_scales};
    const CodeSide own_weights = weights.from(warpgroup * S::blocks);
    rows = shares_tokens<S, N>     ? tokens.from(warpgroup)
           : tokens_are_rows<S, N> ? tokens
                                   : own_weights;
    columns = shares_tokens<S, N> ? weights : tokens_are_rows<S, N> ? own_weights : tokens;
    const int t = thread_here() % 128;
    rows.scales += (16 * (t / 32) + t % 32 / 4) * sizeof(float);
    columns.scales += t % 4 * 2 * sizeof(float);
  }
  __device__ CodeSide rows_of(int block) const {
    return tokens_are_rows<S, N> ? rows : rows.from(block);
  }
  __device__ CodeSide columns_of(int block) const {
    return tokens_are_rows<S, N> ? columns.from(N / 64 * block) : columns;
  }
  // Of a thread's two rows.
  __device__ float low(std::uint32_t stage, int block) const {
    return load_shared_f32(stage + rows_of(block).scales);
  }
  __device__ float high(std::uint32_t stage, int block) const {
    return load_shared_f32(stage + rows_of(block).scales + 8 * sizeof(float));
  }
  // Of columns 8 i + 2 (t % 4) and the one behind.
  __device__ float2 of_pair(std::uint32_t stage, int block, int i) const {
    return load_shared_8(stage + columns_of(block).scales + 8 * i * sizeof(float));
  }
};

// The products of a block over 128 k, onto the sums if `onto`; they are on their way.
template <class S, int N, class Sum>
__device__ inline void begin_products(Sum (&sums)[N / 2], std::uint32_t stage,
                                      const CodeOperands<S, N>& operands, int block, bool onto) {
  const std::uint32_t a = descriptor_low(stage + operands.rows_of(block).codes);
  const std::uint32_t b = descriptor_low(stage + operands.columns_of(block).codes);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    CodeMma<S::code_type, N>::template ss<swizzle_128>(sums, a + 2 * k, b + 2 * k, onto || k > 0);
  mma_commit();
}

// Sums over all k times the scales of whole rows, which are in every stage; lets the last one go.
template <class S, int N, class Sum>
__device__ inline void scale_by_last(float (&acc)[S::blocks][N / 2],
                                     const Sum (&sums)[S::blocks][N / 2], Ring& ring,
                                     const CodeOperands<S, N>& operands) {
  const std::uint32_t stage = ring.stages + ring.before() * ring.stage_bytes;
#pragma unroll
  for (int block = 0; block < S::blocks; ++block) {
    const float low = operands.low(stage, block);
    const float high = operands.high(stage, block);
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      const float2 column = operands.of_pair(stage, block, i);
      float* const to = acc[block] + 4 * i;
      const Sum* const from = sums[block] + 4 * i;
      to[0] = static_cast<float>(from[0]) * (low * column.x);
      to[1] = static_cast<float>(from[1]) * (low * column.y);
      to[2] = static_cast<float>(from[2]) * (high * column.x);
      to[3] = static_cast<float>(from[3]) * (high * column.y);
    }
  }
  ring.release_read(ring.before());
}

// INT8: the tensor core's sums over all k are exact.
template <class S, int N>
__device__ inline void multiply_integers(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                         const CodeOperands<S, N>& operands) {
  int sums[S::blocks][N / 2] = {};
#pragma unroll 1
  for (int kb = 0; kb < steps; ++kb) {
    bar_wait(ring.full_bar(), ring.parity);
    mma_fence();
#pragma unroll
    for (int block = 0; block < S::blocks; ++block)
      begin_products<S, N>(sums[block], ring.data(), operands, block, kb > 0);
    mma_wait<S::blocks>();
    if (kb > 0) ring.release(ring.before());
    ring.next();
  }
  mma_wait<0>();
  scale_by_last<S, N>(acc, sums, ring, operands);
}

// FP8: goes through K, and behind each 128 of it calls add(block, sums, scales). scales(stage,
// block) is called beside the products. The caller lets the last stage go.
template <class S, int N, class Scales, class Add>
__device__ inline void sum_by_steps(Ring& ring, int steps, const CodeOperands<S, N>& operands,
                                    const Scales& scales, const Add& add) {
  float sums[N / 2];
#pragma unroll 1
  for (int kb = 0; kb < steps; ++kb) {
    bar_wait(ring.full_bar(), ring.parity);
    const std::uint32_t stage = ring.data();
#pragma unroll
    for (int block = 0; block < S::blocks; ++block) {
      mma_fence();
      begin_products<S, N>(sums, stage, operands, block, false);
      const auto its = scales(stage, block);
      mma_wait<0>();
      add(block, sums, its);
    }
    if (kb + 1 < steps) ring.release_read(ring.slot);
    ring.next();
  }
}

// FP8: sums of 128 k are added in float32, times the scales of weight row and token; scales of
// whole rows multiply at the end.
template <class S, int N>
__device__ inline void multiply_f8(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                   const CodeOperands<S, N>& operands, const LayerParams& p) {
  using Sums = float[N / 2];
  if (p.row_scaled_codes) {
    const auto none = [](std::uint32_t, int) { return 0; };
    const auto add = [&](int block, const Sums& sums, int) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) acc[block][i] += sums[i];
    };
    sum_by_steps<S, N>(ring, steps, operands, none, add);
    scale_by_last<S, N>(acc, acc, ring, operands);
    return;
  }
  // Of the thread's upper and lower row.
  struct Scales {
    float low[2], high[2];
  };
  if constexpr (tokens_are_rows<S, N>) {
    if (p.tile_scaled_codes) {
      // Times those of columns of gate, or of down, and of up.
      const auto both = [&](std::uint32_t stage, int block) {
        const float low = operands.low(stage, block);
        const float high = operands.high(stage, block);
        const float gate = operands.of_pair(stage, block, 0).x;
        const float up = operands.of_pair(stage, block, 1).x;
        return Scales{{low * gate, low * up}, {high * gate, high * up}};
      };
      const auto add = [&](int block, const Sums& sums, const Scales& scales) {
#pragma unroll
        for (int i = 0; i < N / 2; ++i)
          acc[block][i] += sums[i] * (i % 4 < 2 ? scales.low : scales.high)[i / 4 % 2];
      };
      sum_by_steps<S, N>(ring, steps, operands, both, add);
      ring.release_read(ring.before());
      return;
    }
  }
  struct StageScales {
    std::uint32_t stage;
    float low, high;
  };
  const auto of_rows = [&](std::uint32_t stage, int block) {
    return StageScales{stage, operands.low(stage, block), operands.high(stage, block)};
  };
  const auto add = [&](int block, const Sums& sums, const StageScales& scales) {
#pragma unroll
    for (int i = 0; i < N / 8; ++i) {
      const float2 column = operands.of_pair(scales.stage, block, i);
      float* const to = acc[block] + 4 * i;
      to[0] += sums[4 * i] * (scales.low * column.x);
      to[1] += sums[4 * i + 1] * (scales.low * column.y);
      to[2] += sums[4 * i + 2] * (scales.high * column.x);
      to[3] += sums[4 * i + 3] * (scales.high * column.y);
    }
  };
  sum_by_steps<S, N>(ring, steps, operands, of_rows, add);
  ring.release_read(ring.before());
}

template <class S, int N>
__device__ inline void multiply_input_codes(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                            int warpgroup, const LayerParams& p) {
  const CodeOperands<S, N> operands(warpgroup);
  if constexpr (S::code_type == DType::i8)
    multiply_integers<S, N>(acc, ring, steps, operands);
  else
    multiply_f8<S, N>(acc, ring, steps, operands, p);
}

}  // namespace motley::kernels::cuda::grouped
