// Deltas of few rows in one launch. A cluster has some rows of one label and some outputs of one
// linear map. Its blocks split K for the shrink, and the outputs for the expand.

#include <algorithm>
#include <cooperative_groups.h>

#include "kernels/cuda/adapters/tiles.cuh"
#include "kernels/cuda/primitives/occupancy.cuh"

namespace motley::kernels::cuda {
namespace adapter_tiles {
namespace {

constexpr int group_rows = max_group_rows(1);
constexpr int at_once = 2;  // tiles of 16 outputs that a warp has in flight
constexpr int round_outputs = 16 * warps * at_once;

struct Few {
  AdaptLinears call;
  int run = 0;
  int block_outputs = 0;
  Slots slots{};
  int end_cluster[max_adapted_linears] = {};  // of a linear map, in a slot
  bool with_base = false;
};

struct Memory {
  union {
    float runs[warps][group_rows][sums_pitch];
    // Reuses the memory of `runs` once they are summed.
    RankRows<group_rows> rank_rows;
  };
  float slice[group_rows][panel_ranks];  // of this block; the whole cluster reads it
};

// A linear map and a range of its outputs.
struct Outputs {
  int linear = 0;
  int begin = 0;
  int end = 0;
};
__device__ Outputs outputs_of(const Few& p, int cluster, int block, int blocks) {
  Outputs outputs;
  while (cluster >= p.end_cluster[outputs.linear]) ++outputs.linear;
  const int own = cluster - (outputs.linear > 0 ? p.end_cluster[outputs.linear - 1] : 0);
  const int first = own * blocks * p.block_outputs;
  const int end =
      min(first + blocks * p.block_outputs, static_cast<int>(p.call.linears[outputs.linear].out));
  const int share = (end - first + blocks * 16 - 1) / (blocks * 16) * 16;
  outputs.begin = min(first + block * share, end);
  outputs.end = min(outputs.begin + share, end);
  return outputs;
}

// Adapter memory was written before the step began, so it may be prefetched at any time.
template <class FactorType>
__device__ void prefetch_factor(const FactorEntry& factor, std::int64_t in, std::int64_t out,
                                const Run& run, const Outputs& outputs) {
  using Number = typename FactorType::Number;
  if (run.begin < run.end) {
    for (int rank = static_cast<int>(threadIdx.x) % 32; rank < factor.rank; rank += 32)
      prefetch_l2(static_cast<const Number*>(factor.a) + rank * in + run.begin);
  }
  const auto* const b = static_cast<const char*>(factor.b);
  const auto row = static_cast<std::int64_t>(factor.split * sizeof(Number));
  for (std::int64_t at = outputs.begin * row + std::int64_t{128} * threadIdx.x;
       at < outputs.end * row; at += 128 * threads)
    prefetch_l2(b + at);
  if constexpr (FactorType::scaled) {
    if (threadIdx.x == 0) prefetch_l2(row_scales<FactorType>(factor.a, factor.split, in));
    const float* const scales = row_scales<FactorType>(factor.b, out, factor.split);
    for (int o = outputs.begin + 32 * static_cast<int>(threadIdx.x); o < outputs.end;
         o += 32 * threads)
      prefetch_l2(scales + o);
  }
}

template <class FactorType>
__device__ void prefetch_factors(const AdaptLinears& call, const TermRange& terms, const Run& run,
                                 const Outputs& outputs) {
  const AdapterRows& adapters = call.adapters;
  const AdaptedLinear& linear = call.linears[outputs.linear];
#pragma unroll 1
  for (int i = terms.begin; i < terms.end; ++i) {
    const AdapterTerm term = adapters.terms[i];
    if (!has_site(adapters, term, linear.site)) continue;
    const FactorEntry factor = term.sites[linear.site].factor;
    if (factor.rank > 0) prefetch_factor<FactorType>(factor, call.in, linear.out, run, outputs);
  }
}

// 4 ranks of a row, summed over the cluster's slices in order.
template <class Cluster>
__device__ float4 sum_of_slices(const Cluster& cluster, float* slice) {
  const int slices = static_cast<int>(cluster.num_blocks());
  float4 sum;
  constexpr int half = max_slices / 2;
#pragma unroll
  for (int begin = 0; begin < max_slices; begin += half) {
    float4 each[half];
#pragma unroll
    for (int i = 0; i < half; ++i) {
      if (begin + i < slices)
        each[i] = *reinterpret_cast<const float4*>(
            cluster.map_shared_rank(slice, static_cast<unsigned>(begin + i)));
    }
#pragma unroll
    for (int i = 0; i < half; ++i) {
      if (begin + i == 0) {
        sum = each[0];
      } else if (begin + i < slices) {
        add(sum, each[i]);
      }
    }
  }
  return sum;
}

// This block's slice of a panel: the sum of its warps' runs.
__device__ void sum_runs(Memory& memory, int ranks) {
  const int vec4s = ranks / 4;
  for (int at = static_cast<int>(threadIdx.x); at < group_rows * vec4s; at += threads) {
    const int row = at / vec4s;
    const int rank = at % vec4s * 4;
    *reinterpret_cast<float4*>(&memory.slice[row][rank]) =
        sum_of_runs(&memory.runs[0][row][rank], group_rows * sums_pitch);
  }
}

// A panel's rows in rank space: the sum of the cluster's slices, scaled.
template <class FactorType, class Cluster>
__device__ void sum_slices(const Cluster& cluster, Memory& memory, const FactorRanks& ranks,
                           std::int64_t in, float scale) {
  const int vec4s = (ranks.count + 15) / 16 * 4;
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < group_rows * vec4s; at += threads) {
    const int row = at / vec4s;
    const int rank = at % vec4s * 4;
    float4 vec4{0, 0, 0, 0};
    if (rank < ranks.count)
      vec4 = scaled_ranks<FactorType>(sum_of_slices(cluster, &memory.slice[row][rank]),
                                      ranks.factor, in, scale, ranks.first + rank);
    memory.rank_rows.store(row, rank, vec4);
  }
}

// This thread's 4 outputs of 2 rows in each of some tiles of 16 outputs. All updates of an output
// come from the same thread.
template <bool whole>
struct Tiles {
  const AdaptedLinear& linear;
  const Outputs& outputs;
  const GroupMemory& memory;
  int rows;
  float numbers[at_once][2][4];

  __device__ int begin(int round, int i) const {
    return outputs.begin + round * round_outputs +
           16 * (static_cast<int>(threadIdx.x) / 32 + warps * i);
  }
  __device__ int output(int round, int i) const {
    return begin(round, i) + 4 * static_cast<int>(threadIdx.x % 4);
  }
  __device__ int rounds() const {
    return (outputs.end - outputs.begin + round_outputs - 1) / round_outputs;
  }
  // Rows g and g + 8.
  __device__ int row(int half) const { return 8 * half + static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ bool there(int round, int i, int half) const {
    return row(half) < rows && output(round, i) < outputs.end;
  }

  __device__ void load(int round) {
#pragma unroll
    for (int i = 0; i < at_once; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (there(round, i, half))
          load_acc<whole>(linear, memory.rows[row(half)], output(round, i), numbers[i][half]);
  }
  __device__ void store(int round) const {
#pragma unroll
    for (int i = 0; i < at_once; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (there(round, i, half))
          store_acc<whole>(linear, memory.rows[row(half)], output(round, i), numbers[i][half]);
  }
  template <class FactorType>
  __device__ void load_b(const FactorRanks& ranks, int round, int rank,
                         BTiles (&b)[at_once]) const {
#pragma unroll
    for (int t = 0; t < at_once; ++t)
      b[t].load<FactorType>(ranks.factor, begin(round, t), outputs.end, ranks.first + rank);
  }
  // Adds a panel's product. The numbers and `b` are those of the first round.
  template <class FactorType>
  __device__ void add_panel(const RankRows<group_rows>& rank_rows, const FactorRanks& ranks,
                            BTiles (&b)[at_once]) {
#pragma unroll 1
    for (int round = 0; round < rounds(); ++round) {
      if (round > 0) {
        load_b<FactorType>(ranks, round, 0, b);
        load(round);
      }
      float4 by[at_once];
#pragma unroll
      for (int t = 0; t < at_once; ++t)
        if (output(round, t) < outputs.end)
          by[t] = b_scales<FactorType, whole>(ranks.factor, output(round, t),
                                              static_cast<int>(linear.out));
      float sums[at_once][2][4] = {};
#pragma unroll 1
      for (int rank = 0; rank < ranks.count; rank += 16) {
        if (rank > 0) load_b<FactorType>(ranks, round, rank, b);
#pragma unroll
        for (int t = 0; t < at_once; ++t) expand_step(rank_rows, 0, rank, b[t], sums[t]);
      }
#pragma unroll
      for (int t = 0; t < at_once; ++t) {
        if (output(round, t) >= outputs.end) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half)
          add_scaled(numbers[t][half], by[t], sums[t][0][2 * half], sums[t][0][2 * half + 1],
                     sums[t][1][2 * half], sums[t][1][2 * half + 1]);
      }
      store(round);
    }
  }
  __device__ void add_bias(const float* bias, float scale) {
#pragma unroll 1
    for (int round = 0; round < rounds(); ++round) {
      load(round);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int o = output(round, i);
        if (o >= outputs.end) continue;
        const float4 more = load_floats<whole>(bias, o, static_cast<int>(linear.out));
#pragma unroll
        for (int half = 0; half < 2; ++half)
          add_scaled(numbers[i][half], more, scale, scale, scale, scale);
      }
      store(round);
    }
  }
  __device__ void finish(const Finish& finishing) {
#pragma unroll 1
    for (int round = 0; round < rounds(); ++round) {
      load(round);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int o = output(round, i);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (!there(round, i, half)) continue;
          apply<whole>(finishing, o, static_cast<int>(linear.out), numbers[i][half]);
          store_result<whole>(linear, memory.rows[row(half)], o, numbers[i][half]);
        }
      }
    }
  }
};

template <class FactorType, bool whole>
__global__ void __launch_bounds__(threads, 2) adapt_few_rows(const __grid_constant__ Few p) {
  namespace groups = cooperative_groups;
  __shared__ Memory memory;
  __shared__ GroupMemory group_memory;
  launch_dependents();
  const groups::cluster_group cluster = groups::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks());
  const int block = static_cast<int>(blockIdx.y) % blocks;
  const int number = static_cast<int>(blockIdx.y) / blocks;
  const int clusters = p.end_cluster[p.call.count - 1];
  const Outputs outputs = outputs_of(p, number % clusters, block, blocks);
  const AdapterRows& adapters = p.call.adapters;
  const AdaptedLinear& linear = p.call.linears[outputs.linear];
  const Run run = run_of(p.call.in, p.run, block);
  const int warp = static_cast<int>(threadIdx.x) / 32;

  // Tables and adapter memory were written before the step began: only x and results are waited
  // for.
  Groups<group_rows> all(adapters, p.slots, number / clusters, p.with_base, group_memory);
  bool read = false;  // this block has read slices, and has arrived at the cluster barrier
#pragma unroll 1
  for (int g = all.begin(); g < all.end(); g += all.step()) {
    const Group group = all.take(g);
    prefetch_factors<FactorType>(p.call, group.terms, run, outputs);
    wait_for_previous_grid();

    const InputRows rows{p.call, group_memory.rows, group.rows};
    Tiles<whole> tiles{linear, outputs, group_memory, group.rows, {}};
    Finish finish{.bias = linear.bias};
    bool alone = true;  // no panel came before this one
#pragma unroll 1
    for (int i = group.terms.begin; i < group.terms.end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, linear.site)) continue;
      const SiteEntry* const entry = term.sites + linear.site;
      finish.take(*entry);
      const FactorEntry factor = entry->factor;
      const float scale = factor.scale[0] * term.scale;
#pragma unroll 1
      for (int first = 0; first < factor.rank; first += panel_ranks) {
        const FactorRanks ranks{factor, first, min(round_up_8(factor.rank) - first, panel_ranks)};
        {
          XTiles<1> x;
          x.load(rows, run.begin, run.end);
          // All threads have read the previous panel's rows.
          if (!alone) __syncthreads();
          shrink_run<FactorType, 1, 2>(rows, ranks, run, x, &memory.runs[warp][0][0]);
        }
        alone = false;
        BTiles b[at_once];
        // In flight while the cluster sums.
        tiles.template load_b<FactorType>(ranks, 0, 0, b);
        tiles.load(0);
        __syncthreads();
        // All blocks have read the previous panel's slices.
        if (read) cluster.barrier_wait();
        sum_runs(memory, ranks.count);
        cluster.sync();
        sum_slices<FactorType>(cluster, memory, ranks, p.call.in, scale);
        cluster.barrier_arrive();
        read = true;
        __syncthreads();
        tiles.template add_panel<FactorType>(memory.rank_rows, ranks, b);
      }
      if (entry->lora_bias != nullptr) tiles.add_bias(entry->lora_bias, scale);
    }
    if (finish.gain != nullptr || finish.bias != nullptr || linear.result != linear.acc)
      tiles.finish(finish);
    // The group's row numbers may be overwritten after this.
    __syncthreads();
  }
  wait_for_previous_grid();
  if (read) cluster.barrier_wait();
}

template <class FactorType>
Result<void> require_largest_cluster() {
  const LaunchShape shape{.threads = threads, .cluster_y = max_slices};
  MOTLEY_TRY_VOID(
      require_cluster("adapters' deltas of few rows", adapt_few_rows<FactorType, true>, shape));
  return require_cluster("adapters' deltas of few rows", adapt_few_rows<FactorType, false>, shape);
}

}  // namespace
}  // namespace adapter_tiles

Result<void> prepare_delta_in_cluster() {
  MOTLEY_TRY_VOID(adapter_tiles::require_largest_cluster<FactorBf16>());
  return adapter_tiles::require_largest_cluster<FactorF8>();
}

void delta_in_cluster(const DeltaProblem& problem, const RankChunk& /*chunk*/,
                      StreamHandle stream) {
  using namespace adapter_tiles;
  const AdaptLinears& call = problem.linears;
  const Cut cut = cut_of(call.in);
  const ResultLayout layout = layout_of(call);
  const auto rows = static_cast<int>(call.adapters.rows);
  // With many groups, fewer blocks with more outputs each.
  const int rounds = rows <= 8 ? 1 : 2;
  Few few{.call = call,
          .run = cut.run,
          .block_outputs = rounds * round_outputs,
          .with_base = layout.with_base};
  int clusters = 0;
  for (int i = 0; i < call.count; ++i) {
    const std::int64_t outputs = std::int64_t{cut.slices} * few.block_outputs;
    clusters += static_cast<int>((call.linears[i].out + outputs - 1) / outputs);
    few.end_cluster[i] = clusters;
  }
  // One slot for each possible group, unless that makes far more blocks than a GPU holds.
  constexpr int enough_blocks = 512;
  const int slots = std::min(rows, std::max(enough_blocks / (clusters * cut.slices), 4));
  few.slots = {.count = slots, .of_stretch = slots};
  with_bf16_or_f8(call.adapters.factor_type, [&](auto type) {
    using FactorType = decltype(type);
    launch("adapters' deltas of few rows",
           layout.whole ? adapt_few_rows<FactorType, true> : adapt_few_rows<FactorType, false>,
           {.grid_y = static_cast<unsigned>(slots * clusters * cut.slices),
            .threads = threads,
            .cluster_y = static_cast<unsigned>(cut.slices)},
           stream, few);
  });
}

}  // namespace motley::kernels::cuda
