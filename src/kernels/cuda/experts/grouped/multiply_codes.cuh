// The K loops of a consumer warpgroup over codes, which a decoder converts to bf16 in registers.
#pragma once

#include <type_traits>

#include "kernels/cuda/experts/grouped/ring.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"

namespace motley::kernels::cuda::grouped {

// Returns the same number, but hides its origin: ptxas would recompute values derived from
// threadIdx in loops.
__device__ inline std::uint32_t made_here(std::uint32_t value) {
  return __shfl_sync(0xFFFFFFFF, value, thread_here() % 32);
}

// How a thread's codes lie in a blob: 16 bytes hold some k16 steps.
template <class S>
struct CodeSteps {
  static constexpr int words = S::layout.bits / 4;  // of a step
  static constexpr int per_load = 4 / words;        // steps
  static constexpr int loads = 8 / per_load;
  static constexpr int per_group = 8 / S::layout.scales;

  // Whether a group begins with a step.
  static constexpr MOTLEY_HOST_DEVICE bool begins_group(int step) { return step % per_group == 0; }
};

// A thread's codes and scales of its rows in each block of 64, and where it finds them.
template <class S, class Decoder>
struct CodeRows {
  using Steps = CodeSteps<S>;

  std::uint32_t words_at, scales_at;  // in the first stage
  int pair;
  uint4 words[S::blocks];  // of one load
  typename Decoder::Stored scales[S::blocks];

  __device__ CodeRows(std::uint32_t blob, int t)
      : words_at(made_here(blob + t * 16)),
        scales_at(made_here(blob + S::layout.code_bytes())),
        pair(static_cast<int>(made_here(t / 4))) {}

  // `stage`: its offset from the first.
  __device__ void load(std::uint32_t stage, int load) {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r)
      words[r] = load_shared_16(words_at + stage + r * S::block_bytes + load * 2048);
  }
  __device__ void load_scales(std::uint32_t stage) {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r)
      scales[r] = Decoder::Stored::load(scales_at + stage + r * S::block_bytes, pair);
  }
  // The words of one step of a load.
  __device__ void take(int r, int step, std::uint32_t (&step_words)[Steps::words]) const {
    const std::uint32_t all[4] = {words[r].x, words[r].y, words[r].z, words[r].w};
#pragma unroll
    for (int i = 0; i < Steps::words; ++i) step_words[i] = all[step * Steps::words + i];
  }
};

// Tiles of up to 16 tokens: each warp multiplies 16 rows of each block by itself, so that no warp
// waits for another and the compiler may overlap decoding with products. The sums have the bits of
// wgmma.
template <class S, int N, class Decoder>
__device__ inline void multiply_codes_few_by(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                             int warpgroup, HalfType half) {
  using Steps = CodeSteps<S>;
  const int t = thread_here() % 128;
  const int lane = t % 32;
  CodeRows<S, Decoder> rows(ring.stages + warpgroup * S::blocks * S::block_bytes, t);
  // Token rows of a stage are loaded as four 8 x 8 blocks at a time: two k16 steps for N = 8, one
  // for N = 16.
  constexpr int loads = N == 8 ? 2 : 4;  // of 64 k
  const std::uint32_t tokens_at =
      made_here(ring.stages + S::weight_bytes +
                (N == 8 ? swizzled(lane % 8, lane / 8, 128)
                        : swizzled(lane % 8 + lane / 16 * 8, lane / 8 % 2, 128)));
  bar_wait(ring.full_bar(), ring.parity);
  std::uint32_t stage = ring.slot * ring.stage_bytes;
  rows.load(stage, 0);
  rows.load_scales(stage);
  for (int kb = 0; kb < steps; ++kb) {
    typename Decoder::Scale low[S::blocks];
    typename Decoder::Scale high[S::blocks];
    std::uint32_t b[loads][4];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      std::uint32_t words[S::blocks][Steps::words];
#pragma unroll
      for (int r = 0; r < S::blocks; ++r) rows.take(r, k % Steps::per_load, words[r]);
      if (k % Steps::per_load == Steps::per_load - 1 && k < 7)
        rows.load(stage, k / Steps::per_load + 1);
      if (k % 4 == 0) {
#pragma unroll
        for (int i = 0; i < loads; ++i)
          load_matrix_x4(b[i], ((tokens_at + stage) ^ (i * (128 / loads))) + k / 4 * (N * 128));
      }
      if (Steps::begins_group(k)) {
#pragma unroll
        for (int r = 0; r < S::blocks; ++r) {
          low[r] = Decoder::template scale<true>(rows.scales[r], k / Steps::per_group, half);
          high[r] = Decoder::template scale<false>(rows.scales[r], k / Steps::per_group, half);
        }
      }
#pragma unroll
      for (int r = 0; r < S::blocks; ++r) {
        std::uint32_t a[4];
        Decoder::template decode<true>(words[r], low[r], a);
        Decoder::template decode<false>(words[r], high[r], a);
#pragma unroll
        for (int n = 0; n < N / 8; ++n) {
          const std::uint32_t* const own = N == 8 ? &b[k % 4 / 2][k % 2 * 2] : &b[k % 4][2 * n];
          multiply_add(*reinterpret_cast<float(*)[4]>(&acc[r][4 * n]), a[0], a[1], a[2], a[3],
                       own[0], own[1]);
        }
      }
    }
    const int done = ring.slot;
    ring.next();
    // After the last stage the same stage is loaded again; the result is not used.
    if (kb + 1 < steps) {
      bar_wait(ring.full_bar(), ring.parity);
      stage = ring.slot * ring.stage_bytes;
    }
    rows.load(stage, 0);
    rows.load_scales(stage);
    ring.release_read(done);
  }
}

// `half`: the type of scales that can be f16 or bf16. Beside adapters there are no registers for
// two decoders.
template <class S, int N>
__device__ inline void multiply_codes_few(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                          int warpgroup, HalfType half) {
  using Decoder = typename S::Decoder;
  using Bf16Decoder = typename S::Bf16Decoder;
  if constexpr (!std::is_same_v<Decoder, Bf16Decoder> && !S::lora) {
    if (half == HalfType::bf16) {
      multiply_codes_few_by<S, N, Bf16Decoder>(acc, ring, steps, warpgroup, half);
      return;
    }
  }
  multiply_codes_few_by<S, N, Decoder>(acc, ring, steps, warpgroup, half);
}

// The codes of one load of a block, and all its scales.
template <class S>
struct CodeLoad {
  std::uint32_t words[4];
  typename S::Decoder::Stored scales;

  __device__ void load(std::uint32_t blob, int load, int t) {
    const uint4 stored = load_shared_16(blob + load * 2048 + t * 16);
    words[0] = stored.x;
    words[1] = stored.y;
    words[2] = stored.z;
    words[3] = stored.w;
    if (load == 0) scales = S::Decoder::Stored::load(blob + S::layout.code_bytes(), t / 4);
  }
};

// Decodes two k16 steps from `step` on, whose codes are loaded.
template <class S>
__device__ inline void decode_batch(const CodeLoad<S>& now, int step, HalfType half,
                                    std::uint32_t (&a)[2][4]) {
  using Decoder = typename S::Decoder;
  using Steps = CodeSteps<S>;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int group = (step + i) / Steps::per_group;
    const std::uint32_t* const words = now.words + (step + i) % Steps::per_load * Steps::words;
    Decoder::template decode<true>(words, Decoder::template scale<true>(now.scales, group, half),
                                   a[i]);
    Decoder::template decode<false>(words, Decoder::template scale<false>(now.scales, group, half),
                                    a[i]);
  }
}

template <class S, int N>
__device__ inline void multiply_codes(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                      int warpgroup, bool fence, HalfType half) {
  using Steps = CodeSteps<S>;
  const int t = thread_here() % 128;
  const auto blob_of = [&](int r) {
    return ring.data() + (warpgroup * S::blocks + r) * S::block_bytes;
  };
  // While one batch of two k16 steps multiplies, the next is decoded into other fragments.
  constexpr int batch = 2;
  std::uint32_t a[2][batch][4];
  CodeLoad<S> now;
  bar_wait(ring.full_bar(), ring.parity);
  now.load(blob_of(0), 0, t);
  for (int kb = 0; kb < steps; ++kb) {
    if (fence) fence_async_shared();
    const std::uint32_t b = descriptor_low(ring.data() + S::weight_bytes);
#pragma unroll
    for (int r = 0; r < S::blocks; ++r) {
#pragma unroll
      for (int k = 0; k < 8; k += batch) {
        const int buffer = k / batch % 2;
        decode_batch<S>(now, k, half, a[buffer]);
        mma_fence();
#pragma unroll
        for (int i = 0; i < batch; ++i)
          Mma<N>::template rs<swizzle_128>(
              acc[r], a[buffer][i], b + k / 4 * (N * 128 >> 4) + 2 * (k % 4 + i), kb + k + i > 0);
        mma_commit();
        // The next codes are loaded during these products.
        if ((k + batch) % Steps::per_load == 0) {
          if (k + batch < 8) {
            now.load(blob_of(r), (k + batch) / Steps::per_load, t);
          } else if (r + 1 < S::blocks) {
            now.load(blob_of(r + 1), 0, t);
          } else {
            ring.next();
            if (kb + 1 < steps) {
              bar_wait(ring.full_bar(), ring.parity);
              now.load(blob_of(0), 0, t);
            }
          }
        }
        mma_wait<1>();
        if (r == 0 && k == 0 && kb > 0) ring.release(ring.before());
      }
    }
  }
  mma_wait<0>();
  ring.release(ring.before());
}

}  // namespace motley::kernels::cuda::grouped
