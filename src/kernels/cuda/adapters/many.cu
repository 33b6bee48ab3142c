// Deltas of many rows in two launches per rank chunk. In the shrink a block takes rows of one label
// through all linear maps, so that x is read once.

#include <algorithm>

#include "kernels/cuda/adapters/rank_panels.cuh"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace adapter_tiles {
namespace {

constexpr int group_rows = many_group_rows;
constexpr int row_tiles = group_rows / 16;
constexpr int block_outputs = 1024;

struct Many {
  AdaptLinears call;
  int slices = 0;
  int run = 0;
  int rank_chunk_index = 0;
  Slots slots{};
  bool last = false;  // the last rank chunk adds gain, bias and rounding
  bool with_base = false;
  int end_tile[max_adapted_linears] = {};  // by linear map, of its outputs
};

// Up to 16 ranks of a factor, and their place in rank rows.
struct Unit {
  FactorEntry factor;
  float scale;
  int linear;
  int first;
  int ranks;
  int place;  // in a rank row
};
constexpr int unit_ranks = 16;
constexpr int max_units = panel_ranks / unit_ranks;  // at a time

struct ShrinkMemory {
  float runs[warps][group_rows][sums_pitch];
  Unit units[max_units];
  int count;
};

// Iterates over the units of a group in the rank chunk.
class UnitWalk {
 public:
  __device__ UnitWalk(const Many& p, const TermRange& terms)
      : p_(p), terms_(terms), places_(p.rank_chunk_index), term_(terms.begin) {}

  // Takes the next units. Fewer than max_units: there are no more.
  __device__ int take(Unit (&units)[max_units]) {
    int count = 0;
    while (count < max_units && (panel_end_ > first_ || next_panel())) {
      units[count++] = {.factor = factor_,
                        .scale = scale_,
                        .linear = linear_,
                        .first = first_,
                        .ranks = min(panel_end_ - first_, unit_ranks),
                        .place = place_};
      first_ += unit_ranks;
      place_ += unit_ranks;
    }
    return count;
  }

 private:
  // Moves to the next panel in the chunk.
  __device__ bool next_panel() {
    while (linear_ < p_.call.count) {
      while (begin_ < factor_.rank) {
        first_ = begin_;
        begin_ += panel_ranks;
        panel_end_ = min(round_up_8(factor_.rank), begin_);
        place_ = places_.place(panel_end_ - first_);
        if (place_ >= 0) return true;
      }
      panel_end_ = first_;
      next_factor();
    }
    return false;
  }
  __device__ void next_factor() {
    factor_ = {};
    begin_ = 0;
    if (term_ == terms_.end) {
      ++linear_;
      term_ = terms_.begin;
      places_ = PanelPlaces(p_.rank_chunk_index);
      if (terms_.begin == terms_.end) linear_ = p_.call.count;
      return;
    }
    const AdapterRows& adapters = p_.call.adapters;
    const AdapterTerm term = adapters.terms[term_++];
    if (!has_site(adapters, term, p_.call.linears[linear_].site)) return;
    factor_ = term.sites[p_.call.linears[linear_].site].factor;
    scale_ = factor_.scale[0] * term.scale;
  }

  const Many& p_;
  TermRange terms_;
  PanelPlaces places_;
  int linear_ = 0;
  int term_;
  FactorEntry factor_{};
  float scale_ = 0;
  int begin_ = 0;  // of the factor's next panel
  int first_ = 0;  // of the panel's next unit
  int panel_end_ = 0;
  int place_ = 0;
};

// Whether some of a group's rows are to be shrunk. All threads of a block call it.
__device__ bool shrinks_any(const AdaptLinears& call, const std::int32_t* rows, int count) {
  const int t = static_cast<int>(threadIdx.x);
  return __syncthreads_or(t < count && rows[t] >= call.shrink_begin && rows[t] < call.shrink_end) !=
         0;
}

template <class FactorType>
__global__ void __launch_bounds__(threads, 2) shrink_rows(const __grid_constant__ Many p) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ GroupMemory group_memory;
  auto& memory = *reinterpret_cast<ShrinkMemory*>(shared);
  launch_dependents();
  const AdaptLinears& call = p.call;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Groups<group_rows> all(call.adapters, p.slots, static_cast<int>(blockIdx.x), false, group_memory);
#pragma unroll 1
  for (int g = all.begin(); g < all.end(); g += all.step()) {
    const Group group = all.take(g);
    if (call.shared.ranks > 1 && !shrinks_any(call, group_memory.rows, group.rows)) continue;
    wait_for_previous_grid();
    const InputRows rows{call, group_memory.rows, group.rows};
    XTiles<row_tiles> x;
    const auto load_x = [&](int slice) {
      const Run run = run_of(call.in, p.run, slice);
      x.load(rows, run.begin, run.end);
    };
    load_x(0);
    UnitWalk walk(p, group.terms);
#pragma unroll 1
    for (bool more = true; more;) {
      if (threadIdx.x == 0) memory.count = walk.take(memory.units);
      __syncthreads();
      const int count = memory.count;
      more = count == max_units;
      // A thread sums 4 ranks of 2 rows.
      constexpr int rows_apart = threads / (panel_ranks / 4);
      const int row = static_cast<int>(threadIdx.x) / (panel_ranks / 4);
      const int rank = static_cast<int>(threadIdx.x) % (panel_ranks / 4) * 4;
      const int unit = rank / unit_ranks;
      const bool mine = unit < count && rank % unit_ranks < memory.units[unit].ranks;
      float4 sums[group_rows / rows_apart];
#pragma unroll 1
      for (int slice = 0; slice < p.slices && count > 0; ++slice) {
        const Run run = run_of(call.in, p.run, slice);
#pragma unroll 1
        for (int u = 0; u < count; ++u) {
          const Unit& each = memory.units[u];
          shrink_run<FactorType, row_tiles, 2>(rows, {each.factor, each.first, each.ranks}, run, x,
                                               &memory.runs[warp][0][u * unit_ranks]);
        }
        if (slice + 1 < p.slices || more) load_x((slice + 1) % p.slices);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < group_rows / rows_apart; ++i) {
          if (!mine) continue;
          const float4 sum =
              sum_of_runs(&memory.runs[0][row + i * rows_apart][rank], group_rows * sums_pitch);
          if (slice == 0) {
            sums[i] = sum;
          } else {
            add(sums[i], sum);
          }
        }
        __syncthreads();
      }
#pragma unroll
      for (int i = 0; i < group_rows / rows_apart; ++i) {
        if (!mine || row + i * rows_apart >= group.rows) continue;
        const Unit& each = memory.units[unit];
        const int within = rank % unit_ranks;
        *reinterpret_cast<float4*>(
            rank_row(call, group_memory.rows[row + i * rows_apart], each.linear) + each.place +
            within) = scaled_ranks<FactorType>(sums[i], each.factor, call.in, each.scale,
                                               each.first + within);
      }
      __syncthreads();
    }
  }
  wait_for_previous_grid();
}

// Outputs [begin, end) of a linear map for a group's rows, by one block. A warp has 16 outputs at a
// time. All updates of an output come from the same thread.
template <bool whole>
struct OutputTiles {
  static constexpr int apart = 16 * warps;
  struct Numbers {
    float at[row_tiles][2][4];
  };

  const AdaptedLinear& linear;
  const GroupMemory& memory;
  int rows;
  int begin;  // of this warp
  int end;    // of the block

  __device__ int out() const { return static_cast<int>(linear.out); }
  // This lane's 4 outputs of a tile.
  __device__ static int own(int tile) { return tile + 4 * static_cast<int>(threadIdx.x % 4); }
  __device__ static int row(int m, int half) {
    return 16 * m + 8 * half + static_cast<int>(threadIdx.x) % 32 / 4;
  }

  __device__ void load(int tile, Numbers& numbers) const {
    if (own(tile) >= end) return;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (row(m, half) < rows)
          load_acc<whole>(linear, memory.rows[row(m, half)], own(tile), numbers.at[m][half]);
  }
  // `last`: no more updates follow.
  __device__ void store(int tile, Numbers& numbers, const Finish& finish, bool last) const {
    if (own(tile) >= end) return;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row(m, half) >= rows) continue;
        const std::int32_t to = memory.rows[row(m, half)];
        if (last) {
          apply<whole>(finish, own(tile), out(), numbers.at[m][half]);
          store_result<whole>(linear, to, own(tile), numbers.at[m][half]);
        } else {
          store_acc<whole>(linear, to, own(tile), numbers.at[m][half]);
        }
      }
    }
  }

  // Adds a panel's product. The panel's rank rows are in shared memory; the next tile of B is in
  // flight while one is multiplied.
  template <class FactorType>
  __device__ void add_panel(const RankRows<group_rows>& rank_rows, const Pass& pass,
                            const Finish& finish, bool last_pass) const {
    const FactorEntry& factor = pass.factor;
    const int panel = pass.panel;
    const int ranks = pass.ranks;
    Numbers next;
    BTiles b;
    load(begin, next);
    b.load<FactorType>(factor, begin, end, panel);
#pragma unroll 1
    for (int tile = begin; tile < end; tile += apart) {
      Numbers numbers = next;
      load(tile + apart, next);
      float sums[row_tiles][2][4] = {};
#pragma unroll 1
      for (int rank = 0; rank < ranks; rank += 16) {
        const BTiles here = b;
        const bool last = rank + 16 >= ranks;
        b.load<FactorType>(factor, last ? tile + apart : tile, end,
                           last ? panel : panel + rank + 16);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) expand_step(rank_rows, m, rank, here, sums[m]);
      }
      if (own(tile) < end) {
        const float4 by = b_scales<FactorType, whole>(factor, own(tile), out());
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            add_scaled(numbers.at[m][half], by, sums[m][0][2 * half], sums[m][0][2 * half + 1],
                       sums[m][1][2 * half], sums[m][1][2 * half + 1]);
      }
      store(tile, numbers, finish, last_pass);
    }
  }
  // Adds the bias of a term; scale 0: it has none.
  __device__ void add_bias(const float* bias, float scale, const Finish& finish, bool last) const {
#pragma unroll 1
    for (int tile = begin; tile < end; tile += apart) {
      Numbers numbers;
      load(tile, numbers);
      if (scale != 0 && own(tile) < end) {
        const float4 more = load_floats<whole>(bias, own(tile), out());
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            add_scaled(numbers.at[m][half], more, scale, scale, scale, scale);
      }
      store(tile, numbers, finish, last);
    }
  }
};

// A block has rows of one label, and outputs of one linear map.
template <class FactorType, bool whole>
__global__ void __launch_bounds__(threads, 2) expand_rows(const __grid_constant__ Many p) {
  __shared__ __align__(16) RankRows<group_rows> rank_rows;
  __shared__ GroupMemory group_memory;
  __shared__ __align__(16) unsigned char passes_memory[sizeof(Passes)];
  auto& passes = *reinterpret_cast<Passes*>(passes_memory);
  launch_dependents();
  const AdaptLinears& call = p.call;
  const AdapterRows& adapters = call.adapters;
  int index = 0;
  while (static_cast<int>(blockIdx.x) >= p.end_tile[index]) ++index;
  const AdaptedLinear& linear = call.linears[index];
  const int block = static_cast<int>(blockIdx.x) - (index > 0 ? p.end_tile[index - 1] : 0);
  const int out_begin = block * block_outputs;
  const int out_end = min(out_begin + block_outputs, static_cast<int>(linear.out));
  Groups<group_rows> all(adapters, p.slots, static_cast<int>(blockIdx.y), p.with_base,
                         group_memory);
#pragma unroll 1
  for (int g = all.begin(); g < all.end(); g += all.step()) {
    const Group group = all.take(g);
    if (threadIdx.x == 0)
      passes.find(adapters, group.terms, linear.site, linear.bias, p.rank_chunk_index);
    __syncthreads();
    wait_for_previous_grid();
    const OutputTiles<whole> tiles{linear, group_memory, group.rows,
                                   out_begin + 16 * (static_cast<int>(threadIdx.x) / 32), out_end};
    const Finish& finish = passes.finish;
    const bool finishes =
        p.last && (finish.gain != nullptr || finish.bias != nullptr || linear.result != linear.acc);
    if (passes.count == 0 && finishes) tiles.add_bias(nullptr, 0, finish, true);
#pragma unroll 1
    for (int i = 0; i < passes.count; ++i) {
      const Pass& pass = passes.all[i];
      const bool last = finishes && i + 1 == passes.count;
      __syncthreads();
      store_rank_rows({call, group_memory.rows, group.rows}, index, pass, rank_rows);
      __syncthreads();
      tiles.template add_panel<FactorType>(rank_rows, pass, finish, last && pass.scale == 0);
      if (pass.scale != 0) tiles.add_bias(pass.bias, pass.scale, finish, last);
    }
    __syncthreads();
  }
  wait_for_previous_grid();
}

Many many_of(const AdaptLinears& call, const RankChunk& chunk) {
  const Cut cut = cut_of(call.in);
  return {.call = call,
          .slices = cut.slices,
          .run = cut.run,
          .rank_chunk_index = chunk.number,
          .slots = many_slots(call.adapters),
          .last = chunk.last,
          .with_base = layout_of(call).with_base};
}

}  // namespace
}  // namespace adapter_tiles

Result<void> prepare_panels() {
  using namespace adapter_tiles;
  constexpr auto name = "adapters' shrink";
  MOTLEY_TRY_VOID(allow_shared_memory(name, shrink_rows<FactorBf16>, sizeof(ShrinkMemory)));
  return allow_shared_memory(name, shrink_rows<FactorF8>, sizeof(ShrinkMemory));
}

void shrink_panels(const AdaptLinears& call, int chunk, StreamHandle stream) {
  using namespace adapter_tiles;
  const Many many = many_of(call, {.number = chunk});
  with_bf16_or_f8(call.adapters.factor_type, [&](auto type) {
    launch("adapters' shrink", shrink_rows<decltype(type)>,
           {.grid = static_cast<unsigned>(many.slots.count),
            .threads = threads,
            .shared_bytes = sizeof(ShrinkMemory)},
           stream, many);
  });
}

void expand_panels(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream) {
  using namespace adapter_tiles;
  const AdaptLinears& call = problem.linears;
  const bool whole = layout_of(call).whole;
  Many many = many_of(call, chunk);
  int tiles = 0;
  for (int i = 0; i < call.count; ++i) {
    tiles += static_cast<int>((call.linears[i].out + block_outputs - 1) / block_outputs);
    many.end_tile[i] = tiles;
  }
  with_bf16_or_f8(call.adapters.factor_type, [&](auto type) {
    using FactorType = decltype(type);
    launch("adapters' expand",
           whole ? expand_rows<FactorType, true> : expand_rows<FactorType, false>,
           {.grid = static_cast<unsigned>(tiles),
            .grid_y = static_cast<unsigned>(many.slots.count),
            .threads = threads},
           stream, many);
  });
}

}  // namespace motley::kernels::cuda
