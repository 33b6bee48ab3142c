// The K loops of a consumer warpgroup over int4 weights, which are converted to bf16 in registers.
#pragma once

#include "kernels/cuda/experts/grouped/ring.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"

namespace motley::kernels::cuda::grouped {

// Converts the codes of a row and group to weights: bf16(factor * code + offset), which has the
// bits of bf16((code - 8) * scale) * int4_unit. A code is read as bf16 in place: in bits 0 to 3 of
// a half it is 2^-133 times itself, in bits 4 to 7 2^-129 times, because the bf16 numbers of the
// two smallest exponents count up like integers. The unit keeps factors in the range of bf16, for
// scales below 2^58.
struct Int4Scale {
  __nv_bfloat162 factor, offset;
};

__device__ inline __nv_bfloat162 twice(std::uint32_t bits) {
  bits *= 0x10001U;
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

// `low`: codes are in bits 0 to 3.
template <bool low>
__device__ inline Int4Scale int4_scale(std::uint32_t scales) {
  const std::uint32_t two = __byte_perm(scales, 0, low ? 0x1010 : 0x3232);
  const auto scale = *reinterpret_cast<const __nv_bfloat162*>(&two);
  return {.factor = __hmul2(scale, twice(low ? 0x6200 : 0x6000)),  // 2^69, 2^65
          .offset = __hmul2(scale, twice(0xA100))};                // -2^-61
}

__device__ inline std::uint32_t decode_two(std::uint32_t codes, const Int4Scale& scale) {
  const __nv_bfloat162 q =
      __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&codes), scale.factor, scale.offset);
  return *reinterpret_cast<const std::uint32_t*>(&q);
}

// Converts the lower or upper row's share of 8 int4 of one k16 step to its half of the A fragment.
template <bool low>
__device__ inline void decode_row(std::uint32_t w, const Int4Scale& scale, std::uint32_t (&a)[4]) {
  constexpr std::uint32_t mask = low ? 0x000F000F : 0x00F000F0;
  a[low ? 0 : 1] = decode_two(w & mask, scale);
  a[low ? 2 : 3] = decode_two(w >> 8 & mask, scale);
}

template <bool low, int steps>
__device__ inline void decode_rows(const std::uint32_t* words, std::uint32_t scales,
                                   std::uint32_t (&a)[steps][4]) {
  const Int4Scale both = int4_scale<low>(scales);
#pragma unroll
  for (int i = 0; i < steps; ++i) decode_row<low>(words[i], both, a[i]);
}

// Scales of a thread's two rows; the lower row's is in the lower half.
__device__ inline std::uint32_t load_scales(std::uint32_t address) {
  return load_shared_u16(address) | load_shared_u16(address + 16) << 16;
}

// A thread's part of half a blob: four k16 steps.
struct Int4Half {
  uint4 words;
  std::uint32_t scales;

  template <class S>
  __device__ void load(std::uint32_t blob, int half, int t, int row) {
    words = load_shared_16(blob + half * 2048 + t * 16);
    if (S::scales == 1 && half > 0) return;
    load_group<S>(blob, 2 * half, row);
  }
  // The scales of the group of k16 steps 2 * `pair` and after.
  template <class S>
  __device__ void load_group(std::uint32_t blob, int pair, int row) {
    scales = load_scales(blob + 4096 + (S::scales == 1 ? 0 : pair * 128) + row * 2);
  }
};

// Returns the same number, but hides its origin: ptxas would recompute values derived from
// threadIdx in loops.
__device__ inline std::uint32_t made_here(std::uint32_t value) {
  return __shfl_sync(0xFFFFFFFF, value, thread_here() % 32);
}

// A thread's codes and scales of its row in each block of 64, and where it finds them.
template <class S>
struct Int4Rows {
  std::uint32_t words_at, scales_at;  // in the first stage
  uint4 words[S::blocks];             // of half a blob
  std::uint32_t scales[S::blocks];

  __device__ Int4Rows(std::uint32_t blob, int t)
      : words_at(made_here(blob + t * 16)),
        scales_at(made_here(blob + 4096 + (16 * (t / 32) + t % 32 / 4) * 2)) {}

  // `stage`: its offset from the first.
  __device__ void load(std::uint32_t stage, int half) {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r)
      words[r] = load_shared_16(words_at + stage + r * S::block_bytes + half * 2048);
  }
  __device__ void load_groups(std::uint32_t stage, int group) {
#pragma unroll
    for (int r = 0; r < S::blocks; ++r)
      scales[r] = load_scales(scales_at + stage + r * S::block_bytes + group * 128);
  }
  // The codes of one k16 step of a half.
  __device__ std::uint32_t word(int r, int step) const {
    return step == 0 ? words[r].x : step == 1 ? words[r].y : step == 2 ? words[r].z : words[r].w;
  }
};

// Tiles of up to 16 tokens: each warp multiplies 16 rows of each block by itself, so that no warp
// waits for another and the compiler may overlap decoding with products. The sums have the bits of
// wgmma.
template <class S, int N>
__device__ inline void multiply_int4_few(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                         int warpgroup) {
  const int t = thread_here() % 128;
  const int lane = t % 32;
  const std::uint32_t blob = ring.stages + warpgroup * S::blocks * S::block_bytes;
  Int4Rows<S> rows(blob, t);
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
  rows.load_groups(stage, 0);
  for (int kb = 0; kb < steps; ++kb) {
    Int4Scale low[S::blocks];
    Int4Scale high[S::blocks];
    std::uint32_t b[loads][4];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      std::uint32_t word[S::blocks];
#pragma unroll
      for (int r = 0; r < S::blocks; ++r) word[r] = rows.word(r, k % 4);
      if (k == 3) rows.load(stage, 1);
      if (k % 4 == 0) {
#pragma unroll
        for (int i = 0; i < loads; ++i)
          load_matrix_x4(b[i], ((tokens_at + stage) ^ (i * (128 / loads))) + k / 4 * (N * 128));
      }
      if (S::scales == 1 ? k == 0 : k % 2 == 0) {
        if (k > 0) rows.load_groups(stage, k / 2);
#pragma unroll
        for (int r = 0; r < S::blocks; ++r) {
          low[r] = int4_scale<true>(rows.scales[r]);
          high[r] = int4_scale<false>(rows.scales[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < S::blocks; ++r) {
        std::uint32_t a[4];
        decode_row<true>(word[r], low[r], a);
        decode_row<false>(word[r], high[r], a);
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
    rows.load_groups(stage, 0);
    ring.release_read(done);
  }
}

template <class S, int N>
__device__ inline void multiply_int4(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                     int warpgroup, bool fence) {
  const int t = thread_here() % 128;
  const int row = 16 * (t / 32) + t % 32 / 4;
  const auto blob_of = [&](int r) {
    return ring.data() + (warpgroup * S::blocks + r) * S::block_bytes;
  };
  // k16 steps per batch: while one batch multiplies, the next is decoded into other fragments
  constexpr int batch = 2;
  std::uint32_t a[2][batch][4];
  Int4Half now;
  bar_wait(ring.full_bar(), ring.parity);
  now.load<S>(blob_of(0), 0, t, row);
  for (int kb = 0; kb < steps; ++kb) {
    if (fence) fence_async_shared();
    const std::uint32_t b = descriptor_low(ring.data() + S::weight_bytes);
#pragma unroll
    for (int r = 0; r < S::blocks; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::uint32_t words[4] = {now.words.x, now.words.y, now.words.z, now.words.w};
#pragma unroll
        for (int k = 0; k < 4; k += batch) {
          const int buffer = k / batch;
          if (S::scales == 4 && k > 0) now.load_group<S>(blob_of(r), 2 * h + 1, row);
          decode_rows<true>(words + k, now.scales, a[buffer]);
          decode_rows<false>(words + k, now.scales, a[buffer]);
          mma_fence();
#pragma unroll
          for (int i = 0; i < batch; ++i)
            Mma<N>::template rs<swizzle_128>(
                acc[r], a[buffer][i], b + h * (N * 128 >> 4) + 2 * (k + i), kb + h + k + i > 0);
          mma_commit();
          const bool first = r == 0 && h == 0 && k == 0;
          if (k + batch == 4) {
            // The next half is loaded during these products.
            if (h == 0) {
              now.load<S>(blob_of(r), 1, t, row);
            } else if (r + 1 < S::blocks) {
              now.load<S>(blob_of(r + 1), 0, t, row);
            } else {
              ring.next();
              if (kb + 1 < steps) {
                bar_wait(ring.full_bar(), ring.parity);
                now.load<S>(blob_of(0), 0, t, row);
              }
            }
          }
          mma_wait<1>();
          if (first && kb > 0) ring.release(ring.before());
        }
      }
    }
  }
  mma_wait<0>();
  ring.release(ring.before());
}

}  // namespace motley::kernels::cuda::grouped
