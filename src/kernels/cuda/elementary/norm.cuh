// RMSNorm of a part of a row by a team of threads. Files that include this are compiled without
// fused multiply-add.
#pragma once

#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "kernels/elementary.h"

namespace motley::kernels::cuda {

inline constexpr int max_norm_threads = 512;

// The threads that share a part, a power of two that depends on its width only, and the parts of a
// block.
struct NormTeam {
  int threads = 32;
  int parts = 1;
};
inline NormTeam norm_team(std::int64_t width) {
  NormTeam team;
  while (team.threads < max_norm_threads && 8 * team.threads < width) team.threads *= 2;
  team.parts = 256 / team.threads > 1 ? 256 / team.threads : 1;
  return team;
}

// A thread's share of a sum of squares, in four partial sums. Its vec4s are thread, thread +
// threads, ...
struct Squares {
  Vec4 sums{};

  __device__ void add(const Vec4& value) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums.at[i] += value.at[i] * value.at[i];
  }
  // The warp's sum, by pairs of lanes.
  __device__ float of_warp() const {
    return warp_sum((sums.at[0] + sums.at[1]) + (sums.at[2] + sums.at[3]));
  }
  // The factor of the part, in every thread of its team. Warps are summed in order.
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
      for (int i = 1; i < max_norm_threads / 32; ++i) {
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
__device__ Vec4 normed(Vec4 value, const Vec4& weight, float factor, bool weight_in_f32) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float scaled = value.at[i] * factor;
    if (sizeof(Out) == 2 && !weight_in_f32) scaled = widen(narrow<bf16>(scaled));
    value.at[i] = scaled * weight.at[i];
  }
  return value;
}

// Whether a sum of float32 rows and its norm in bf16 can be read and written in whole vec4s.
inline bool norm_takes_vec4(const AddAndNorm& p) {
  const Add& add = p.add;
  return add.a_type == DType::f32 && add.b_type == DType::f32 && add.out_type == DType::f32 &&
         p.norm.out_type == DType::bf16 && add.width % 4 == 0 &&
         vec4_aligned(add.a, DType::f32, add.a_stride) &&
         vec4_aligned(add.b, DType::f32, add.b_stride) && vec4_aligned(add.b_bias, DType::f32, 0) &&
         vec4_aligned(add.out, DType::f32, add.out_stride) &&
         vec4_aligned(p.norm.weight, DType::f32, 0) &&
         vec4_aligned(p.norm.out, DType::bf16, p.norm.out_stride);
}

// A row of each addend; a bias of b or null. Or b gets `share` times another row first.
template <class A, class B>
struct Addends {
  const A* a;
  const B* b;
  const float* b_bias;
  const float* shared = nullptr;
  float share = 1;

  // A vec4 of the sum, rounded to X.
  template <class X, bool whole>
  __device__ Vec4 sum(std::int64_t at, std::int64_t width) const {
    const Vec4 left = load_vec4<whole>(a, at, width);
    Vec4 right = load_vec4<whole>(b, at, width);
    if (b_bias != nullptr) {
      const Vec4 bias = load_vec4<whole>(b_bias, at, width);
#pragma unroll
      for (int i = 0; i < 4; ++i) right.at[i] = widen(narrow<B>(right.at[i] + bias.at[i]));
    }
    if (shared != nullptr) {
      const Vec4 row = load_vec4<whole>(shared, at, width);
#pragma unroll
      for (int i = 0; i < 4; ++i) right.at[i] = right.at[i] + row.at[i] * share;
    }
    Vec4 sum;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.at[i] = widen(narrow<X>(left.at[i] + right.at[i]));
    return sum;
  }
};

// What a row's norm depends on beside its numbers.
struct RowNorm {
  std::int64_t width;  // the row's, in every thread of the block
  float eps;
  bool weight_in_f32;
};

// A thread's share of one row's norm. Its vec4s are thread, thread + team.threads, ... The first of
// them stay in registers; their weights are read before the previous grid has ended.
template <bool whole>
class NormShare {
 public:
  __device__ NormShare(const float* weight, std::int64_t width, const NormTeam& team, int thread)
      : weight_(weight), width_(static_cast<int>(width)), team_(team), thread_(thread) {
#pragma unroll
    for (int i = 0; i < kept; ++i)
      if (at(i) < width) weights_[i] = load_vec4<whole>(weight, at(i), width);
  }

  static constexpr int kept = 2;
  // Results at the thread's first places. Those behind the row's end are zeros.
  struct Kept {
    Vec4 at[kept]{};
  };

  // read(at) returns a vec4 of the row; made(at, four) sees each once; again(at) returns one that
  // made() has seen; write(at, four) takes the result. The share's own width may be 0, because all
  // threads must reach the barrier.
  template <class Out, class Read, class Made, class Again, class Write>
  __device__ Kept run(const RowNorm& norm, float* warp_sums, const Read& read, const Made& made,
                      const Again& again, const Write& write) const {
    Vec4 row[kept];
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
    for (int place = at(kept); place < width_; place += 4 * team_.threads) {
      const Vec4 vec4 = read(place);
      made(place, vec4);
      squares.add(vec4);
    }
    const float factor = squares.factor(norm.width, norm.eps, team_, warp_sums);
    Kept results;
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      if (at(i) >= width_) continue;
      results.at[i] = normed<Out>(row[i], weights_[i], factor, norm.weight_in_f32);
      write(at(i), results.at[i]);
    }
#pragma unroll 1
    for (int place = at(kept); place < width_; place += 4 * team_.threads) {
      const Vec4 weight = load_vec4<whole>(weight_, place, width_);
      write(place, normed<Out>(again(place), weight, factor, norm.weight_in_f32));
    }
    return results;
  }

  // Calls body(at, vec4) for the results in bf16, those that run() has kept and those that
  // again(at) returns. A warp's threads call it together, with zeros behind the row's end.
  template <class Again, class Body>
  __device__ void for_results(const Kept& results, const Again& again, const Body& body) const {
    const auto in_bf16 = [](Vec4 vec4) {
#pragma unroll
      for (float& number : vec4.at) number = widen(narrow<bf16>(number));
      return vec4;
    };
#pragma unroll
    for (int i = 0; i < kept; ++i) body(at(i), in_bf16(results.at[i]));
    const int lane = thread_ % 32;
#pragma unroll 1
    for (int place = at(kept); place - 4 * lane < width_; place += 4 * team_.threads)
      body(place, place < width_ ? again(place) : Vec4{});
  }

  __device__ const NormTeam& team() const { return team_; }

 private:
  __device__ int at(int i) const { return 4 * (thread_ + i * team_.threads); }

  const float* weight_;
  int width_;
  NormTeam team_;
  int thread_;
  Vec4 weights_[kept];
};

}  // namespace motley::kernels::cuda
