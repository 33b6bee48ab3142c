// Deltas of many rows in two launches a window of ranks: into rank space, a cluster taking rows of
// one label through all linear maps, so that x is read once; and out of it.

#include <algorithm>
#include <cooperative_groups.h>

#include "kernels/cuda/adapters_tiles.cuh"
#include "kernels/cuda/queue.cuh"

namespace motley::kernels::cuda::adapter_tiles {
namespace {

constexpr int row_tiles = 4;
constexpr int group_rows = 16 * row_tiles;
// Where rows of a window have few labels, as in prompts, each of their groups has a slot.
constexpr int window_slots = 8;
constexpr int block_outputs = 512;

struct Many {
  AdaptLinears call;
  int run = 0;
  int ranks_window = 0;
  bool last = false;  // of the windows: gain, bias and rounding come with it
  bool with_base = false;
  int end_tile[most_adapted_linears] = {};  // of a linear map's outputs
};

// Chunks of a row's ranks stand one behind the other in windows, each whole.
class ChunkPlaces {
 public:
  __device__ explicit ChunkPlaces(int window) : wanted_(window) {}
  // Where a chunk begins in the window that is asked for, or -1.
  __device__ int place(int ranks) {
    if (end_ + ranks > rank_window) {
      ++window_;
      end_ = 0;
    }
    end_ += ranks;
    return here() ? end_ - ranks : -1;
  }
  // Whether what comes behind the last chunk is the window's business.
  __device__ bool here() const { return window_ == wanted_; }

 private:
  int wanted_;
  int window_ = 0;
  int end_ = 0;
};

__device__ float* rank_row(const AdaptLinears& call, std::int64_t row, int linear) {
  return call.rank_rows + (row * call.count + linear) * rank_window;
}

template <class Pages>
__global__ void __launch_bounds__(threads, 2) shrink_rows(const __grid_constant__ Many p) {
  namespace groups = cooperative_groups;
  using Memory = ShrinkMemory<row_tiles>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ GroupMemory group_memory;
  auto& memory = *reinterpret_cast<Memory*>(shared);
  launch_dependents();
  const groups::cluster_group cluster = groups::this_cluster();
  const AdaptLinears& call = p.call;
  const AdapterRows& adapters = call.adapters;
  const int blocks = static_cast<int>(cluster.num_blocks());
  const int block = static_cast<int>(blockIdx.y) % blocks;
  const int slot = static_cast<int>(blockIdx.y) / blocks;
  const Run run = run_of(call.in, p.run, block);
  const Groups<group_rows> all(adapters, blockIdx.x, false, group_memory);
  wait_for_previous_grid();
  int parity = 0;
#pragma unroll 1
  for (int g = slot; g < all.count(); g += window_slots) {
    const Group group = all.take(g);
    const TermRange range = terms_of(adapters, group.label);
    XTiles<row_tiles> x;
    x.load(call, group_memory.rows, group.rows, run.begin, run.end);
#pragma unroll 1
    for (int linear = 0; linear < call.count; ++linear) {
      ChunkPlaces places(p.ranks_window);
#pragma unroll 1
      for (int i = range.begin; i < range.end; ++i) {
        const AdapterTerm term = adapters.terms[i];
        const SiteEntry* const entry = site_of(adapters, term, call.linears[linear].site);
        if (entry == nullptr) continue;
        const FactorEntry factor = entry->factor;
        const float scale = factor.scale[0] * term.scale;
#pragma unroll 1
        for (int chunk = 0; chunk < factor.rank; chunk += chunk_ranks) {
          const int chunk_end = min(up_to_eight(factor.rank), chunk + chunk_ranks);
          const int place = places.place(chunk_end - chunk);
          if (place < 0) continue;
#pragma unroll 1
          for (int first = chunk; first < chunk_end; first += Memory::most_ranks) {
            const int ranks = min(chunk_end - first, Memory::most_ranks);
            shrink_runs<Pages, row_tiles, 1>(call, factor, first, ranks, run, group_memory.rows,
                                             group.rows, x, memory, parity);
            cluster.sync();
            // The blocks share out the rows.
            const int fours = ranks / 4;
            const int share = (group_rows + blocks - 1) / blocks;
            const int row_end = min((block + 1) * share, group.rows);
#pragma unroll 1
            for (int at = static_cast<int>(threadIdx.x); at < share * fours; at += threads) {
              const int row = block * share + at / fours;
              const int rank = at % fours * 4;
              if (row >= row_end) break;
              *reinterpret_cast<float4*>(rank_row(call, group_memory.rows[row], linear) + place +
                                         first - chunk + rank) =
                  row_of_cluster<Pages>(cluster, &memory.sums[parity][row][rank], factor, call.in,
                                        scale, first + rank);
            }
            parity ^= 1;
          }
        }
      }
    }
    __syncthreads();
  }
  // Other blocks of the cluster may still read this one's sums.
  cluster.sync();
}

// A block: rows of one label, outputs of one linear map; a warp: sixteen outputs of them at a time.
template <class Pages, bool whole>
__global__ void __launch_bounds__(threads, 2) expand_rows(const __grid_constant__ Many p) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ GroupMemory group_memory;
  auto& rank_rows = *reinterpret_cast<RankRows<group_rows>*>(shared);
  launch_dependents();
  const AdaptLinears& call = p.call;
  const AdapterRows& adapters = call.adapters;
  int index = 0;
  while (static_cast<int>(blockIdx.x) >= p.end_tile[index]) ++index;
  const AdaptedLinear& linear = call.linears[index];
  const auto out = static_cast<int>(linear.out);
  const int tile = static_cast<int>(blockIdx.x) - (index > 0 ? p.end_tile[index - 1] : 0);
  const int out_begin = tile * block_outputs;
  const int out_end = min(out_begin + block_outputs, out);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int slot = static_cast<int>(blockIdx.y) % window_slots;
  const Groups<group_rows> all(adapters, blockIdx.y / window_slots, p.with_base, group_memory);
  wait_for_previous_grid();
#pragma unroll 1
  for (int g = slot; g < all.count(); g += window_slots) {
    const Group group = all.take(g);
    const TermRange range = terms_of(adapters, group.label);
    int chunks = 0;
    bool changed = p.with_base;
#pragma unroll 1
    for (int i = range.begin; i < range.end; ++i) {
      const SiteEntry* const entry = site_of(adapters, adapters.terms[i], linear.site);
      if (entry == nullptr) continue;
      chunks += (entry->factor.rank + chunk_ranks - 1) / chunk_ranks;
      changed = changed || chunks > 0 || entry->lora_bias != nullptr || entry->gain != nullptr ||
                entry->replaced_bias != nullptr;
    }
    if (!changed) continue;
    bool stored = false;
#pragma unroll 1
    for (int done = 0; done < block_outputs; done += 16 * warps) {
      const int first = out_begin + done + 16 * warp;
      const int o = first + 4 * (lane % 4);
      if (out_begin + done >= out_end) break;
      float acc[row_tiles][2][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = 16 * m + 8 * half + lane / 4;
          if (row < group.rows && o < out_end)
            load_acc<whole>(linear, group_memory.rows[row], o, acc[m][half]);
        }
      }
      Finish finish{.bias = linear.bias};
      ChunkPlaces places(p.ranks_window);
#pragma unroll 1
      for (int i = range.begin; i < range.end; ++i) {
        const AdapterTerm term = adapters.terms[i];
        const SiteEntry* const found = site_of(adapters, term, linear.site);
        if (found == nullptr) continue;
        const SiteEntry& entry = *found;
        finish.take(entry);
        const FactorEntry factor = entry.factor;
#pragma unroll 1
        for (int chunk = 0; chunk < factor.rank; chunk += chunk_ranks) {
          const int ranks = min(up_to_eight(factor.rank) - chunk, chunk_ranks);
          const int place = places.place(ranks);
          if (place < 0) continue;
          if (!stored || chunks > 1) {
            __syncthreads();
            const int fours = (ranks + 15) / 16 * 4;
#pragma unroll 1
            for (int at = static_cast<int>(threadIdx.x); at < group_rows * fours; at += threads) {
              const int row = at / fours;
              const int rank = at % fours * 4;
              const bool there = row < group.rows && rank < ranks;
              rank_rows.store(
                  row, rank,
                  there ? *reinterpret_cast<const float4*>(
                              rank_row(call, group_memory.rows[row], index) + place + rank)
                        : float4{0, 0, 0, 0});
            }
            __syncthreads();
            stored = true;
          }
          float sums[row_tiles][2][4] = {};
#pragma unroll 1
          for (int rank = 0; rank < ranks; rank += 16) {
            BTiles b;
            b.load<Pages>(factor, first, out_end, chunk + rank);
#pragma unroll
            for (int m = 0; m < row_tiles; ++m) expand_step(rank_rows, m, rank, b, sums[m]);
          }
          if (o >= out_end) continue;
          const float4 by = b_scales<Pages, whole>(factor, o, out);
#pragma unroll
          for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
              add_scaled(acc[m][half], by, sums[m][0][2 * half], sums[m][0][2 * half + 1],
                         sums[m][1][2 * half], sums[m][1][2 * half + 1]);
          }
        }
        if (entry.lora_bias == nullptr || !places.here() || o >= out_end) continue;
        const float scale = factor.scale[0] * term.scale;
        const float4 more = load_floats<whole>(entry.lora_bias, o, out);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            add_scaled(acc[m][half], more, scale, scale, scale, scale);
        }
      }
      if (o >= out_end) continue;
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = 16 * m + 8 * half + lane / 4;
          if (row >= group.rows) continue;
          if (p.last) {
            finish.apply<whole>(o, out, acc[m][half]);
            store_result<whole>(linear, group_memory.rows[row], o, acc[m][half]);
          } else {
            store_acc<whole>(linear, group_memory.rows[row], o, acc[m][half]);
          }
        }
      }
    }
    __syncthreads();
  }
}

template <class Pages>
void run_windows(const AdaptLinears& call, StreamHandle stream) {
  const Cut cut = cut_of(call.in);
  const Layout layout = layout_of(call);
  Many many{.call = call, .run = cut.run, .with_base = layout.with_base};
  int tiles = 0;
  for (int i = 0; i < call.count; ++i) {
    const AdaptedLinear& linear = call.linears[i];
    tiles += static_cast<int>((linear.out + block_outputs - 1) / block_outputs);
    many.end_tile[i] = tiles;
  }
  constexpr std::size_t shrink_bytes = sizeof(ShrinkMemory<row_tiles>);
  constexpr std::size_t expand_bytes = sizeof(RankRows<group_rows>);
  static_assert(expand_bytes <= 40 << 10, "shared memory that need not be asked for");
  static const Result<void> allowed =
      launched(cudaFuncSetAttribute(shrink_rows<Pages>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shrink_bytes)),
               "adapters' shrink");
  keep_error(allowed);
  const auto windows_of_rows =
      static_cast<unsigned>((call.adapters.rows + window_rows - 1) / window_rows);
  // Less than a chunk stays empty at a window's end.
  constexpr int least_filled = rank_window - chunk_ranks;
  const int windows = std::max(1, (call.most_ranks + least_filled - 1) / least_filled);
  for (int window = 0; window < windows; ++window) {
    many.ranks_window = window;
    many.last = window + 1 == windows;
    if (call.most_ranks > 0) {
      queue("adapters' shrink", shrink_rows<Pages>,
            {.grid = windows_of_rows,
             .grid_y = static_cast<unsigned>(window_slots * cut.blocks),
             .threads = threads,
             .shared_bytes = shrink_bytes,
             .cluster_y = static_cast<unsigned>(cut.blocks)},
            stream, many);
    }
    queue("adapters' expand", layout.whole ? expand_rows<Pages, true> : expand_rows<Pages, false>,
          {.grid = static_cast<unsigned>(tiles),
           .grid_y = windows_of_rows * window_slots,
           .threads = threads,
           .shared_bytes = expand_bytes},
          stream, many);
  }
}

}  // namespace

void adapt_many(const AdaptLinears& call, StreamHandle stream) {
  with_pages(call.adapters.pages, [&](auto pages) {
    using Pages = decltype(pages);
    if constexpr (!std::is_same_v<Pages, PagesF32>) run_windows<Pages>(call, stream);
  });
}

}  // namespace motley::kernels::cuda::adapter_tiles
