// The norm of a row's part, and who works on it together. Files that include this are compiled
// without fused products.
#pragma once

#include "kernels/cuda/fours.cuh"
#include "kernels/elementary.h"

namespace motley::kernels::cuda {

inline constexpr int most_norm_threads = 512;

// Threads that share a part, a power of two that its width alone decides, and parts of a block.
struct NormTeam {
  int threads = 32;
  int parts = 1;
};
inline NormTeam norm_team(std::int64_t width) {
  NormTeam team;
  while (team.threads < most_norm_threads && 8 * team.threads < width) team.threads *= 2;
  team.parts = 256 / team.threads > 1 ? 256 / team.threads : 1;
  return team;
}

// A thread's share of a sum of squares, in four partial sums: fours thread, thread + threads, ...
struct Squares {
  Four sums{};

  __device__ void add(const Four& value) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums.at[i] += value.at[i] * value.at[i];
  }
  // The warp's sum, in pairs of lanes.
  __device__ float of_warp() const {
    float sum = (sums.at[0] + sums.at[1]) + (sums.at[2] + sums.at[3]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    return sum;
  }
  // What the part is to be multiplied with, in every thread of its team; warps are summed in order.
  __device__ float factor(std::int64_t width, float eps, const NormTeam& team,
                          float* warp_sums) const {
    float sum = of_warp();
    if (team.threads > 32) {
      const int warps = team.threads / 32;
      if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
      __syncthreads();
      const int first = static_cast<int>(threadIdx.x) / team.threads * warps;
      sum = warp_sums[first];
#pragma unroll
      for (int i = 1; i < most_norm_threads / 32; ++i) {
        if (i < warps) sum += warp_sums[first + i];
      }
    }
    return factor_of(sum, width, eps);
  }
  __device__ static float factor_of(float sum, std::int64_t width, float eps) {
    return 1.0F / sqrtf(sum / static_cast<float>(width) + eps);
  }
};

// RmsNorm's product with the factor and the weight, for a result of type Out.
template <class Out>
__device__ Four normed(Four value, const Four& weight, float factor, bool weight_in_f32) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float scaled = value.at[i] * factor;
    if (sizeof(Out) == 2 && !weight_in_f32) scaled = widen(narrow<bf16>(scaled));
    value.at[i] = scaled * weight.at[i];
  }
  return value;
}

// Whether a sum of float32 rows and its norm, in bf16, are read and written in whole fours.
inline bool normed_in_fours(const AddAndNorm& p) {
  const Add& add = p.add;
  return add.a_type == DType::f32 && add.b_type == DType::f32 && add.out_type == DType::f32 &&
         p.norm.out_type == DType::bf16 && add.width % 4 == 0 &&
         in_fours(add.a, DType::f32, add.a_stride) && in_fours(add.b, DType::f32, add.b_stride) &&
         in_fours(add.out, DType::f32, add.out_stride) && in_fours(p.norm.weight, DType::f32, 0) &&
         in_fours(p.norm.out, DType::bf16, p.norm.out_stride);
}

// A four of a + b, rounded to X.
template <class X, bool whole, class A, class B>
__device__ Four sum_of_fours(const A* a, const B* b, std::int64_t at, std::int64_t width) {
  const Four left = read_four<whole>(a, at, width);
  const Four right = read_four<whole>(b, at, width);
  Four sum;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum.at[i] = widen(narrow<X>(left.at[i] + right.at[i]));
  return sum;
}

// A thread's share of one row's norm: its fours are number thread, thread + team.threads, ... The
// first of them stay in registers; those of the weight are read before the grid ahead has ended.
template <bool whole>
class NormShare {
 public:
  __device__ NormShare(const float* weight, std::int64_t width, const NormTeam& team, int thread)
      : weight_(weight), width_(width), team_(team), thread_(thread) {
#pragma unroll
    for (int i = 0; i < kept; ++i)
      if (at(i) < width) weights_[i] = read_four<whole>(weight, at(i), width);
  }

  // read(at) gives a four of the row, made(at, four) sees each once, again(at) gives one that
  // made() has seen, write(at, four) takes the result. `size` is the row's width in every thread of
  // the block, and width may be 0: all come to the barrier.
  template <class Out, class Read, class Made, class Again, class Write>
  __device__ void run(std::int64_t size, float eps, bool weight_in_f32, float* warp_sums,
                      const Read& read, const Made& made, const Again& again,
                      const Write& write) const {
    Four row[kept];
    Squares squares;
#pragma unroll
    for (int i = 0; i < kept; ++i)
      if (at(i) < width_) row[i] = read(at(i));
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      if (at(i) >= width_) continue;
      made(at(i), row[i]);
      squares.add(row[i]);
    }
#pragma unroll 1
    for (std::int64_t place = at(kept); place < width_; place += 4 * team_.threads) {
      const Four four = read(place);
      made(place, four);
      squares.add(four);
    }
    const float factor = squares.factor(size, eps, team_, warp_sums);
#pragma unroll
    for (int i = 0; i < kept; ++i)
      if (at(i) < width_) write(at(i), normed<Out>(row[i], weights_[i], factor, weight_in_f32));
#pragma unroll 1
    for (std::int64_t place = at(kept); place < width_; place += 4 * team_.threads) {
      const Four weight = read_four<whole>(weight_, place, width_);
      write(place, normed<Out>(again(place), weight, factor, weight_in_f32));
    }
  }

 private:
  static constexpr int kept = 2;

  __device__ std::int64_t at(int i) const {
    return 4 * (thread_ + std::int64_t{i} * team_.threads);
  }

  const float* weight_;
  std::int64_t width_;
  NormTeam team_;
  int thread_;
  Four weights_[kept];
};

}  // namespace motley::kernels::cuda
