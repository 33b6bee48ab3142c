// The expand of one map for many rows, with residual add and norm as its epilogue. A block has 8
// rows of one label; each warp has the outputs of a warp of add_and_norm.

#include "kernels/cuda/adapters/delta_kernels.h"
#include "kernels/cuda/adapters/expand.cuh"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace adapter_tiles {
namespace {

struct ExpandAndNorm {
  AdaptLinears call;
  AddAndNorm rows;
};

// A lane of add_and_norm has two vec4s of a row: number `thread`, and the one a team's width behind
// it. So a warp has 4 adjacent tiles twice: its vec4s 8 j + g are tile j.
constexpr int team_tiles = 4;
constexpr int lane_tiles = 2 * team_tiles;
constexpr int row_tiles = many_group_rows / warp_rows;

// A warp's outputs of a block's rows.
template <int team_warps>
struct NormRows {
  struct Memory {
    RowsTile others[team_warps][lane_tiles];  // what is added
    Passes passes;
    float warp_sums[warp_rows][team_warps];
  };

  Memory& memory;
  int out;
  bool there[2];
  std::int64_t row[2];
  WarpNumbers<lane_tiles> numbers;

  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  // The first output of a tile, and this lane's; past the row's end for tiles that do not exist.
  static __device__ int output(int j) {
    return warp_outputs * (team_tiles * (warp() + j / team_tiles * team_warps) + j % team_tiles);
  }
  static __device__ int own(int j) { return output(j) + lane_outputs(); }

  // Loads both addends concurrently. `copied`: the rows of which this lane copies parts.
  __device__ void load(const AdaptedLinear& linear, const Add& add,
                       const std::int64_t (&copied)[RowsTile::copies], int count) {
#pragma unroll
    for (int i = 0; i < RowsTile::copies; ++i) {
      const float* const from =
          static_cast<const float*>(add.a) + copied[i] * add.a_stride + RowsTile::copied_output();
#pragma unroll
      for (int j = 0; j < lane_tiles; ++j) {
        const bool here = RowsTile::copied_row(i) < count && output(j) < out;
        memory.others[warp()][j].copy(i, here ? from + output(j) : from, here);
      }
    }
    copies_commit();
#pragma unroll
    for (int j = 0; j < lane_tiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        load_acc<true>(linear, row[half], output(j) < out ? own(j) : lane_outputs(),
                       numbers.at[j][half]);
    }
  }
  __device__ void add_others(const Add& add) {
    copies_wait<0>();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < lane_tiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&sum)[4] = numbers.at[j][half];
        const float4 other = memory.others[warp()][j].own(half);
        sum[0] = other.x + sum[0];
        sum[1] = other.y + sum[1];
        sum[2] = other.z + sum[2];
        sum[3] = other.w + sum[3];
        if (there[half] && own(j) < out)
          store_floats<true>(static_cast<float*>(add.out) + row[half] * add.out_stride, own(j), out,
                             sum);
      }
    }
  }
  // A row's sum of squares in the order of add_and_norm, over this warp only.
  __device__ float squares(int half) const {
    float vec4s[team_tiles];
#pragma unroll
    for (int j = 0; j < team_tiles; ++j) {
      Squares both;
#pragma unroll
      for (int k = j; k < lane_tiles; k += team_tiles) {
        const float(&each)[4] = numbers.at[k][half];
        if (own(k) < out) both.add({each[0], each[1], each[2], each[3]});
      }
      const Vec4& sums = both.sums;
      vec4s[j] = (sums.at[0] + sums.at[1]) + (sums.at[2] + sums.at[3]);
    }
    return sum_of_row((vec4s[0] + vec4s[2]) + (vec4s[1] + vec4s[3]));
  }
  __device__ void norm(const RmsNorm& p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = squares(half);
      if (lane_outputs() == 0) memory.warp_sums[lane_row(half)][warp()] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!there[half]) continue;
      const float(&sums)[team_warps] = memory.warp_sums[lane_row(half)];
      float sum = sums[0];
#pragma unroll
      for (int w = 1; w < team_warps; ++w) sum += sums[w];
      const float factor = Squares::factor_of(sum, out, p.eps);
      auto* const to = static_cast<bf16*>(p.out) + row[half] * p.out_stride;
#pragma unroll
      for (int j = 0; j < lane_tiles; ++j) {
        if (own(j) >= out) continue;
        const float(&each)[4] = numbers.at[j][half];
        store_vec4<true>(
            to, own(j), out,
            normed<bf16>({each[0], each[1], each[2], each[3]},
                         load_vec4<true>(p.weight, own(j), out), factor, p.weight_in_f32));
      }
    }
  }
};

template <class FactorType, int team_warps>
__global__ void __launch_bounds__(32 * team_warps, 16 / team_warps)
    expand_and_norm_rows(const __grid_constant__ ExpandAndNorm p) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<typename NormRows<team_warps>::Memory*>(shared);
  launch_dependents();
  const AdapterRows& adapters = p.call.adapters;
  const AdaptedLinear& linear = p.call.linears[0];
  const int first_row = static_cast<int>(blockIdx.x) * warp_rows;
  const int groups = adapters.groups.counts[1];
#pragma unroll 1
  for (int g = static_cast<int>(blockIdx.y); g < groups; g += static_cast<int>(gridDim.y)) {
    const RowGroup group = adapters.groups.groups[g];
    const int count = group.rows - first_row;
    if (count <= 0) continue;
    if (threadIdx.x == 0)
      memory.passes.find(adapters, {group.term_begin, group.term_end}, linear.site, linear.bias, 0);
    const auto row_of = [&](int own) -> std::int64_t {
      return adapters.groups.order[group.first + first_row + min(own, count - 1)];
    };
    NormRows<team_warps> rows{.memory = memory,
                              .out = static_cast<int>(linear.out),
                              .there = {lane_row(0) < count, lane_row(1) < count},
                              .row = {row_of(lane_row(0)), row_of(lane_row(1))}};
    const std::int64_t copied[] = {row_of(RowsTile::copied_row(0)),
                                   row_of(RowsTile::copied_row(1))};
    const bool ranks_there = lane_rank_row() < count;
    const float* const ranks = rank_row(p.call, static_cast<int>(row_of(lane_rank_row())), 0);
    wait_for_previous_grid();
    rows.load(linear, p.rows.add, copied, count);
    __syncthreads();
    // For tiles that do not exist any output will do: their results are not stored.
    const auto output = [&](int j) {
      const int own = NormRows<team_warps>::output(j);
      return own < rows.out ? own : 0;
    };
    RankTile first{};
    if (memory.passes.count > 0) {
      const Pass& pass = memory.passes.all[0];
      first.load(ranks + pass.place, ranks_there, 0, pass.ranks);
    }
    rows.numbers.template adapt<FactorType>(memory.passes, ranks, ranks_there, rows.out, output,
                                            first);
    rows.add_others(p.rows.add);
    rows.norm(p.rows.norm);
    __syncthreads();
  }
  wait_for_previous_grid();
}

template <class FactorType, int team_warps>
void launch_rows(const ExpandAndNorm& p, StreamHandle stream) {
  constexpr std::size_t bytes = sizeof(typename NormRows<team_warps>::Memory);
  // The last group of a label may not be full.
  constexpr std::int64_t more_groups = 32;
  const std::int64_t groups = p.call.adapters.rows / many_group_rows + more_groups;
  launch("adapters' norm", expand_and_norm_rows<FactorType, team_warps>,
         {.grid = row_tiles,
          .grid_y = static_cast<unsigned>(groups),
          .threads = 32 * team_warps,
          .shared_bytes = bytes},
         stream, p);
}

template <class FactorType, int team_warps>
Result<void> prepare_team() {
  return allow_shared_memory("adapters' norm", expand_and_norm_rows<FactorType, team_warps>,
                             sizeof(typename NormRows<team_warps>::Memory));
}

}  // namespace
}  // namespace adapter_tiles

Result<void> prepare_expand_norm() {
  using namespace adapter_tiles;
  MOTLEY_TRY_VOID((prepare_team<FactorBf16, 8>()));
  MOTLEY_TRY_VOID((prepare_team<FactorBf16, 16>()));
  MOTLEY_TRY_VOID((prepare_team<FactorF8, 8>()));
  return prepare_team<FactorF8, 16>();
}

Support supports_norm(const DeltaProblem& problem) {
  using namespace adapter_tiles;
  const AdaptLinears& call = problem.linears;
  if (call.adapters.factor_type == DType::f32)
    return Support::no("it reads factors in bf16 or FP8");
  if (call.count != 1) return Support::no("it takes one map");
  if (call.adapters.groups.counts == nullptr)
    return Support::no("it takes rows whose groups are listed");
  if (rank_chunks(RankLayout::panels, call.max_ranks) > 1)
    return Support::no("it takes ranks of one chunk");
  if (problem.norm->add.b_bias != nullptr) return Support::no("it adds the map's bias only");
  if (!layout_of(call).whole || !norm_takes_vec4(*problem.norm))
    return Support::no("it reads and writes four numbers at a time");
  // Each thread of a team has two vec4s of a row.
  const std::int64_t out = call.linears[0].out;
  const int team = norm_team(out).threads;
  if (out % warp_outputs != 0 || out > std::int64_t{8} * team || team < 256)
    return Support::no("it takes 1056 to 4096 outputs, a multiple of 32");
  return Support::yes();
}

void expand_norm(const DeltaProblem& problem, const RankChunk& /*chunk*/, StreamHandle stream) {
  using namespace adapter_tiles;
  const ExpandAndNorm p{.call = problem.linears, .rows = *problem.norm};
  const bool wide = norm_team(problem.norm->add.width).threads > 256;
  with_bf16_or_f8(problem.linears.adapters.factor_type, [&](auto type) {
    using FactorType = decltype(type);
    wide ? launch_rows<FactorType, 16>(p, stream) : launch_rows<FactorType, 8>(p, stream);
  });
}

}  // namespace motley::kernels::cuda
