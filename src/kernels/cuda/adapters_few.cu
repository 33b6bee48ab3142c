// Deltas of few rows in one launch: a cluster has some rows of one label and some outputs of one
// linear map; its blocks share out K on the way into rank space and the outputs on the way back.

#include <algorithm>
#include <cooperative_groups.h>

#include "kernels/cuda/adapters_tiles.cuh"
#include "kernels/cuda/queue.cuh"

namespace motley::kernels::cuda::adapter_tiles {
namespace {

constexpr int group_rows = 16;
constexpr int warp_tiles = 2;  // of sixteen outputs
constexpr int block_outputs = 16 * warps * warp_tiles;

struct Few {
  AdaptLinears call;
  int run = 0;
  int slots = 0;
  int end_cluster[most_adapted_linears] = {};  // of a linear map, in a slot
  bool with_base = false;
};

struct FewMemory {
  union {
    ShrinkMemory<1> shrink;
    // Where the runs were, when their sums have been taken.
    RankRows<group_rows> rank_rows;
  };
};
static_assert(sizeof(RankRows<group_rows>) <= sizeof(ShrinkMemory<1>::runs));

// Which linear map and which outputs of it.
struct Outputs {
  int linear = 0;
  int begin = 0;
  int end = 0;
};
__device__ Outputs outputs_of(const Few& p, int cluster, int block, int blocks) {
  Outputs outputs;
  while (cluster >= p.end_cluster[outputs.linear]) ++outputs.linear;
  const int own = cluster - (outputs.linear > 0 ? p.end_cluster[outputs.linear - 1] : 0);
  const int first = own * blocks * block_outputs;
  const int end =
      min(first + blocks * block_outputs, static_cast<int>(p.call.linears[outputs.linear].out));
  const int share = (end - first + blocks * 16 - 1) / (blocks * 16) * 16;
  outputs.begin = min(first + block * share, end);
  outputs.end = min(outputs.begin + share, end);
  return outputs;
}

// Pages are as they are since before the step began, so they may be asked for at any time.
template <class Pages>
__device__ void prefetch_pages(const FactorEntry& factor, std::int64_t in, const Run& run,
                               const Outputs& outputs) {
  using Number = typename Pages::Number;
  if (run.begin < run.end) {
    for (int rank = static_cast<int>(threadIdx.x) % 32; rank < factor.rank; rank += 32)
      prefetch(static_cast<const Number*>(factor.a) + rank * in + run.begin);
  }
  const auto* const b = static_cast<const char*>(factor.b);
  const auto row = static_cast<std::int64_t>(factor.split * sizeof(Number));
  for (std::int64_t at = outputs.begin * row + std::int64_t{128} * threadIdx.x;
       at < outputs.end * row; at += 128 * threads)
    prefetch(b + at);
}

// This lane's outputs of a warp's tiles, of the rows g and g + 8.
struct Accumulators {
  float numbers[warp_tiles][2][4];
};

template <class Pages, bool whole>
__global__ void __launch_bounds__(threads, 2) adapt_few_rows(const __grid_constant__ Few p) {
  namespace groups = cooperative_groups;
  __shared__ FewMemory memory;
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
  const auto out = static_cast<int>(linear.out);
  const Run run = run_of(p.call.in, p.run, block);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto tile_begin = [&](int i) { return outputs.begin + 16 * (warp + warps * i); };

  // Tables and pages were written before the step began: only x and results are waited for.
  const Groups<group_rows> all(adapters, 0, p.with_base, group_memory);
  int parity = 0;
#pragma unroll 1
  for (int g = number / clusters; g < all.count(); g += p.slots) {
    const Group group = all.take(g);
    const TermRange range = terms_of(adapters, group.label);
    bool changed = p.with_base;
#pragma unroll 1
    for (int i = range.begin; i < range.end; ++i) {
      const SiteEntry* const entry = site_of(adapters, adapters.terms[i], linear.site);
      if (entry == nullptr) continue;
      const FactorEntry factor = entry->factor;
      changed = changed || factor.rank > 0 || entry->lora_bias != nullptr ||
                entry->gain != nullptr || entry->replaced_bias != nullptr;
      if (factor.rank > 0) prefetch_pages<Pages>(factor, p.call.in, run, outputs);
    }
    wait_for_previous_grid();
    Accumulators acc;
    if (changed) {
#pragma unroll
      for (int i = 0; i < warp_tiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = 8 * half + lane / 4;
          const int o = tile_begin(i) + 4 * (lane % 4);
          if (row < group.rows && o < outputs.end)
            load_acc<whole>(linear, group_memory.rows[row], o, acc.numbers[i][half]);
        }
      }
    }

    Finish finish{.bias = linear.bias};
#pragma unroll 1
    for (int i = range.begin; changed && i < range.end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      const SiteEntry* const found = site_of(adapters, term, linear.site);
      if (found == nullptr) continue;
      const SiteEntry& entry = *found;
      finish.take(entry);
      const FactorEntry factor = entry.factor;
      const float scale = factor.scale[0] * term.scale;
#pragma unroll 1
      for (int first = 0; first < factor.rank; first += chunk_ranks) {
        const int ranks = min(up_to_eight(factor.rank) - first, chunk_ranks);
        // Nobody reads rows of the chunk before.
        __syncthreads();
        {
          XTiles<1> x;
          x.load(p.call, group_memory.rows, group.rows, run.begin, run.end);
          shrink_runs<Pages, 1, 2>(p.call, factor, first, ranks, run, group_memory.rows, group.rows,
                                   x, memory.shrink, parity);
        }
        BTiles b[warp_tiles];
#pragma unroll
        for (int t = 0; t < warp_tiles; ++t)
          b[t].load<Pages>(factor, tile_begin(t), outputs.end, first);
        cluster.sync();
        const int fours = (ranks + 15) / 16 * 4;
#pragma unroll 1
        for (int at = static_cast<int>(threadIdx.x); at < group_rows * fours; at += threads) {
          const int row = at / fours;
          const int rank = at % fours * 4;
          const float4 four =
              rank < ranks ? row_of_cluster<Pages>(cluster, &memory.shrink.sums[parity][row][rank],
                                                   factor, p.call.in, scale, first + rank)
                           : float4{0, 0, 0, 0};
          memory.rank_rows.store(row, rank, four);
        }
        __syncthreads();
        parity ^= 1;
#pragma unroll
        for (int t = 0; t < warp_tiles; ++t) {
          if (tile_begin(t) >= outputs.end) continue;
          const int o = tile_begin(t) + 4 * (lane % 4);
          float sums[2][4] = {};
#pragma unroll 1
          for (int rank = 0; rank < ranks; rank += 16) {
            if (rank > 0) b[t].load<Pages>(factor, tile_begin(t), outputs.end, first + rank);
            expand_step(memory.rank_rows, 0, rank, b[t], sums);
          }
          if (o >= outputs.end) continue;
          const float4 by = b_scales<Pages, whole>(factor, o, out);
#pragma unroll
          for (int half = 0; half < 2; ++half)
            add_scaled(acc.numbers[t][half], by, sums[0][2 * half], sums[0][2 * half + 1],
                       sums[1][2 * half], sums[1][2 * half + 1]);
        }
      }
      if (entry.lora_bias == nullptr) continue;
#pragma unroll
      for (int t = 0; t < warp_tiles; ++t) {
        const int o = tile_begin(t) + 4 * (lane % 4);
        if (o >= outputs.end) continue;
        const float4 more = load_floats<whole>(entry.lora_bias, o, out);
#pragma unroll
        for (int half = 0; half < 2; ++half)
          add_scaled(acc.numbers[t][half], more, scale, scale, scale, scale);
      }
    }
    if (changed) {
#pragma unroll
      for (int t = 0; t < warp_tiles; ++t) {
        const int o = tile_begin(t) + 4 * (lane % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = 8 * half + lane / 4;
          if (row >= group.rows || o >= outputs.end) continue;
          finish.apply<whole>(o, out, acc.numbers[t][half]);
          store_result<whole>(linear, group_memory.rows[row], o, acc.numbers[t][half]);
        }
      }
    }
    // Its rows' numbers are used no more.
    __syncthreads();
  }
  wait_for_previous_grid();
  // Other blocks of the cluster may still read this one's sums.
  cluster.sync();
}

}  // namespace

void adapt_few(const AdaptLinears& call, StreamHandle stream) {
  const Cut cut = cut_of(call.in);
  const Layout layout = layout_of(call);
  Few few{.call = call, .run = cut.run, .with_base = layout.with_base};
  int clusters = 0;
  for (int i = 0; i < call.count; ++i) {
    const AdaptedLinear& linear = call.linears[i];
    clusters += static_cast<int>((linear.out + cut.blocks * block_outputs - 1) /
                                 (cut.blocks * block_outputs));
    few.end_cluster[i] = clusters;
  }
  // As many groups at once as there may be, unless that were far more blocks than work.
  const std::int64_t most_slots = std::max(1024 / (clusters * cut.blocks), 4);
  few.slots = static_cast<int>(std::min(call.adapters.rows, most_slots));
  with_pages(call.adapters.pages, [&](auto pages) {
    using Pages = decltype(pages);
    if constexpr (!std::is_same_v<Pages, PagesF32>) {
      queue("adapters' deltas of few rows",
            layout.whole ? adapt_few_rows<Pages, true> : adapt_few_rows<Pages, false>,
            {.grid_y = static_cast<unsigned>(few.slots * clusters * cut.blocks),
             .threads = threads,
             .cluster_y = static_cast<unsigned>(cut.blocks)},
            stream, few);
    }
  });
}

}  // namespace motley::kernels::cuda::adapter_tiles
