// Deltas of few rows of many labels: two launches whose warps work independently. In the shrink a
// warp has 8 ranks of a slice; in the expand it has some outputs of a group's rows, and prefetches
// tables and factors while the shrink runs. Without a block-wide wait, the loads of many adapters
// are in flight together. For few labels, few.cu is faster.

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/adapters/tiles.cuh"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace adapter_tiles {
namespace {

// Eight numbers of a factor as stored; they are widened when used.
template <class FactorType>
using Vec8Bits = std::conditional_t<FactorType::scaled, uint2, uint4>;
__device__ uint4 widen(const uint4& vec8) { return vec8; }
__device__ uint4 widen(const uint2& vec8) {
  return {widen_two(vec8.x), widen_two(vec8.x >> 16), widen_two(vec8.y), widen_two(vec8.y >> 16)};
}

// How K is cut.
struct Slices {
  int in;
  int run;
  int count;

  explicit Slices(std::int64_t inputs)
      : in(static_cast<int>(inputs)), run(cut_of(inputs).run), count(cut_of(inputs).slices) {}
  __host__ __device__ int inputs() const { return warps * run; }  // of a slice
  __device__ int run_steps() const { return (run + step_inputs - 1) / step_inputs; }
};

// The slices of rank rows: [slices][rows][linear maps][rank_chunk]. A term takes a multiple of 16
// places, so that its panels are whole.
struct SliceRows {
  float* numbers;
  int rows;
  int linears;

  __device__ std::int64_t slice_numbers() const {
    return std::int64_t{rows} * linears * rank_chunk;
  }
  __device__ float* row(int row, int linear) const {
    return numbers + (std::int64_t{row} * linears + linear) * rank_chunk;
  }
};
__device__ int places_of(const FactorEntry& factor) { return (factor.rank + 15) / 16 * 16; }

// A warp's position in a slice, run by run.
struct SliceStep {
  int run = 0;
  int step = 0;  // of the run

  __device__ void advance(int run_steps) {
    if (++step < run_steps) return;
    step = 0;
    ++run;
  }
};

// Up to 8 ranks of a factor over one slice.
struct SliceRanks {
  const void* a;  // the first rank's row
  int count;
  int slice;
};

// Up to 8 rows of A, at some steps of a slice.
template <class FactorType, int steps>
struct Vec8Rows {
  Vec8Bits<FactorType> numbers[steps][2];

  // `at` advances.
  __device__ void load(const Slices& cut, const SliceRanks& ranks, SliceStep& at) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* const row =
        static_cast<const typename FactorType::Number*>(ranks.a) + std::int64_t{lane / 4} * cut.in;
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int run = ranks.slice * cut.inputs() + at.run * cut.run;
      const int end = at.run < warps && lane / 4 < ranks.count ? min(run + cut.run, cut.in) : 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int k = run + at.step * step_inputs + 32 * half + 8 * (lane % 4);
        numbers[i][half] = {};
        if (k < end) numbers[i][half] = *reinterpret_cast<const Vec8Bits<FactorType>*>(row + k);
      }
      at.advance(cut.run_steps());
    }
  }
};

// A warp's products of 16 rows with 8 ranks: rows g and g + 8, ranks 2t and 2t + 1.
struct SliceSums {
  float sum[4] = {};
  float of_run[4] = {};

  __device__ void multiply(const uint4& low, const uint4& high, const uint4& a) {
    multiply_add(of_run, low.x, high.x, low.y, high.y, a.x, a.y);
    multiply_add(of_run, low.z, high.z, low.w, high.w, a.z, a.w);
  }
  __device__ void end_step(const SliceStep& at, int run_steps) {
    if (at.step + 1 < run_steps) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[i] = at.run == 0 ? of_run[i] : sum[i] + of_run[i];
      of_run[i] = 0;
    }
  }
};

// 4 ranks of a row, summed over its slices in order.
__device__ float4 sum_of_slices(const SliceRows& rows, int slices, const float* from) {
  constexpr int at_once = 4;
  float4 sum{};
#pragma unroll 1
  for (int first = 0; first < slices; first += at_once) {
    float4 each[at_once];
#pragma unroll
    for (int s = 0; s < at_once; ++s, from += rows.slice_numbers())
      if (first + s < slices) each[s] = *reinterpret_cast<const float4*>(from);
#pragma unroll
    for (int s = 0; s < at_once; ++s) {
      if (first + s == 0) {
        sum = each[0];
      } else if (first + s < slices) {
        add(sum, each[s]);
      }
    }
  }
  return sum;
}

constexpr int steps_at_once = 4;  // of a slice, in a warp's registers
constexpr int tiles_at_once = 2;  // tiles of 16 outputs
// As many blocks as are resident together.
constexpr int max_blocks = 2 * 132;

struct Labels {
  AdaptLinears call;
  Slices cut;
  SliceRows rows;
  int vec8_apart;                     // warps among which a map's ranks are divided, 8 at a time
  int tiles;                          // of 16 outputs
  int end_tile[max_adapted_linears];  // of a linear map
  bool with_base;
};

// A lane's rows g and g + 8 of a group, or -1.
struct LaneRows {
  int rows[2];

  __device__ LaneRows(const AdapterRows& adapters, const RowGroup& group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = 8 * half + static_cast<int>(threadIdx.x) % 32 / 4;
      rows[half] = -1;
      if (at < group.rows) rows[half] = adapters.groups.order[group.first + at];
    }
  }
};

// A lane's inputs of a step of 64.
struct XStep {
  uint4 numbers[2][2];  // [half of the inputs][row g, row g + 8]

  __device__ void load(const AdaptLinears& call, const LaneRows& of, int k, int end) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int own = k + 32 * part + 8 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        numbers[part][half] = {};
        if (of.rows[half] >= 0 && own < end)
          numbers[part][half] = *reinterpret_cast<const uint4*>(
              static_cast<const Bf16*>(call.x) + of.rows[half] * call.x_stride + own);
      }
    }
  }
};

// Adapter memory was written before the step began, so it may be prefetched at any time.
template <class FactorType>
__device__ void prefetch_slice(const Slices& cut, const SliceRanks& ranks) {
  using Number = typename FactorType::Number;
  constexpr int line = 128 / sizeof(Number);
  const int rank = static_cast<int>(threadIdx.x) % 32 / 4;
  const auto* const row = static_cast<const Number*>(ranks.a) + std::int64_t{rank} * cut.in;
  const int end = rank < ranks.count ? min((ranks.slice + 1) * cut.inputs(), cut.in) : 0;
#pragma unroll 1
  for (int k = ranks.slice * cut.inputs() + line * static_cast<int>(threadIdx.x % 4); k < end;
       k += 4 * line)
    prefetch_l2(row + k);
}

// Up to 8 ranks over one slice, for a group's rows. `place`: of the first rank in a map's rank
// rows.
template <class FactorType>
__device__ void shrink_vec8(const Labels& p, const SliceRanks& ranks, const LaneRows& of,
                            int linear, int place) {
  Vec8Rows<FactorType, steps_at_once> rows;
  SliceStep ahead;
  rows.load(p.cut, ranks, ahead);
  prefetch_slice<FactorType>(p.cut, ranks);
  wait_for_previous_grid();
  SliceSums sums;
  SliceStep at;
#pragma unroll 1
  while (at.run < warps) {
    XStep x[steps_at_once];
    SliceStep of_x = at;
#pragma unroll
    for (XStep& step : x) {
      const int run = ranks.slice * p.cut.inputs() + of_x.run * p.cut.run;
      step.load(p.call, of, run + of_x.step * step_inputs,
                of_x.run < warps ? min(run + p.cut.run, p.cut.in) : 0);
      of_x.advance(p.cut.run_steps());
    }
#pragma unroll
    for (int i = 0; i < steps_at_once; ++i) {
      if (at.run == warps) break;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        sums.multiply(x[i].numbers[half][0], x[i].numbers[half][1], widen(rows.numbers[i][half]));
      sums.end_step(at, p.cut.run_steps());
      at.advance(p.cut.run_steps());
    }
    if (at.run < warps) rows.load(p.cut, ranks, ahead);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (of.rows[half] < 0) continue;
    float* const to =
        p.rows.row(of.rows[half], linear) + ranks.slice * p.rows.slice_numbers() + place;
    *reinterpret_cast<float2*>(to + 2 * (threadIdx.x % 4)) =
        make_float2(sums.sum[2 * half], sums.sum[2 * half + 1]);
  }
}

template <class FactorType>
__global__ void __launch_bounds__(threads, 2) shrink_labels(const __grid_constant__ Labels p) {
  launch_dependents();
  const AdapterRows& adapters = p.call.adapters;
  const int each = p.vec8_apart * p.cut.count;
  const int items = adapters.groups.counts[0] * p.call.count * each;
#pragma unroll 1
  for (int item = static_cast<int>(blockIdx.x * warps + threadIdx.x / 32); item < items;
       item += static_cast<int>(gridDim.x) * warps) {
    const int linear = item / each % p.call.count;
    const RowGroup group = adapters.groups.groups[item / each / p.call.count];
    const LaneRows of(adapters, group);
    const int slice = item % each / p.vec8_apart;
    int next = item % p.vec8_apart;  // 8-rank part of this term
    int place = 0;
#pragma unroll 1
    for (int i = group.term_begin; i < group.term_end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      const std::int32_t site = p.call.linears[linear].site;
      if (!has_site(adapters, term, site)) continue;
      const FactorEntry factor = term.sites[site].factor;
#pragma unroll 1
      for (; 8 * next < factor.rank; next += p.vec8_apart)
        shrink_vec8<FactorType>(p,
                                {.a = static_cast<const typename FactorType::Number*>(factor.a) +
                                      std::int64_t{8} * next * p.cut.in,
                                 .count = min(factor.rank - 8 * next, 8),
                                 .slice = slice},
                                of, linear, place + 8 * next);
      next -= (factor.rank + 7) / 8;
      place += places_of(factor);
    }
  }
  wait_for_previous_grid();
}

// Outputs [begin, end) of a linear map for a group's rows. One warp's work.
template <class FactorType, bool whole>
class Expand {
 public:
  __device__ Expand(const Labels& p, const RowGroup& group, int linear, int begin, int end)
      : p_(p),
        group_(group),
        linear_(linear),
        begin_(begin),
        end_(min(end, static_cast<int>(p.call.linears[linear].out))),
        of_(p.call.adapters, group) {}

  __device__ void prefetch_factors() const {
    each_term([&](const AdapterTerm&, const SiteEntry& entry, int) {
      const FactorEntry& factor = entry.factor;
      const auto* const b = static_cast<const typename FactorType::Number*>(factor.b);
      constexpr int line = 128 / sizeof(typename FactorType::Number);
#pragma unroll 1
      for (int at = begin_ * factor.split + line * lane(); at < end_ * factor.split;
           at += line * 32)
        prefetch_l2(b + at);
      if constexpr (FactorType::scaled) {
        if (lane() == 0) prefetch_l2(row_scales<FactorType>(factor.a, factor.split, p_.call.in));
        const int scale = begin_ + 32 * lane();
        if (scale < end_)
          prefetch_l2(row_scales<FactorType>(factor.b, to().out, factor.split) + scale);
      }
    });
  }
  __device__ void run() {
#pragma unroll 1
    for (first_ = begin_; first_ < end_; first_ += 16 * tiles_at_once) {
      load();
      finish_ = {.gain = nullptr, .bias = to().bias};
      each_term([&](const AdapterTerm& term, const SiteEntry& entry, int place) {
        const FactorEntry factor = entry.factor;
        const float scale = factor.scale[0] * term.scale;
#pragma unroll 1
        for (int rank = 0; rank < factor.rank; rank += panel_ranks)
          add_panel(factor, scale, rank, place + rank);
        if (entry.lora_bias != nullptr) add_bias(entry.lora_bias, scale);
        finish_.take(entry);
      });
      store();
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ const AdaptedLinear& to() const { return p_.call.linears[linear_]; }
  // This lane's 4 outputs of a tile.
  __device__ int output(int tile) const { return first_ + 16 * tile + 4 * (lane() % 4); }

  template <class Do>
  __device__ void each_term(Do go) const {
    const AdapterRows& adapters = p_.call.adapters;
    int place = 0;
#pragma unroll 1
    for (int i = group_.term_begin; i < group_.term_end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, to().site)) continue;
      const SiteEntry& entry = term.sites[to().site];
      go(term, entry, place);
      place += places_of(entry.factor);
    }
  }
  template <class Do>
  __device__ void each_result(Do go) {
#pragma unroll
    for (int tile = 0; tile < tiles_at_once; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (of_.rows[half] >= 0 && output(tile) < end_)
          go(of_.rows[half], output(tile), numbers_[tile][half]);
  }
  __device__ void load() {
    each_result([&](int row, int o, float(&vec4)[4]) { load_acc<whole>(to(), row, o, vec4); });
  }
  __device__ void store() {
    const bool finishes = finish_.gain != nullptr || finish_.bias != nullptr;
    each_result([&](int row, int o, float(&vec4)[4]) {
      if (finishes) apply<whole>(finish_, o, static_cast<int>(to().out), vec4);
      store_result<whole>(to(), row, o, vec4);
    });
  }
  __device__ void add_panel(const FactorEntry& factor, float scale, int begin, int place) {
    const int ranks = min(round_up_8(factor.rank) - begin, panel_ranks);
    float sums[tiles_at_once][2][4] = {};
    float4 by[tiles_at_once];
#pragma unroll
    for (int tile = 0; tile < tiles_at_once; ++tile)
      if (output(tile) < end_)
        by[tile] = b_scales<FactorType, whole>(factor, output(tile), static_cast<int>(to().out));
#pragma unroll 1
    for (int rank = 0; rank < ranks; rank += 16) {
      BTiles b[tiles_at_once];
#pragma unroll
      for (int tile = 0; tile < tiles_at_once; ++tile)
        b[tile].load<FactorType>(factor, first_ + 16 * tile, end_, begin + rank);
      read_ranks(factor, scale, begin + rank, ranks - rank, place + rank);
#pragma unroll
      for (int tile = 0; tile < tiles_at_once; ++tile)
        multiply_parts(ranks_[0], ranks_[1], b[tile], sums[tile]);
    }
#pragma unroll
    for (int tile = 0; tile < tiles_at_once; ++tile) {
      if (output(tile) >= end_) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_scaled(numbers_[tile][half], by[tile], sums[tile][0][2 * half],
                   sums[tile][0][2 * half + 1], sums[tile][1][2 * half],
                   sums[tile][1][2 * half + 1]);
    }
  }
  // Reads up to 16 ranks of the rows. Where there are no more, they are kept for all tiles.
  __device__ void read_ranks(const FactorEntry& factor, float scale, int rank, int left,
                             int place) {
    if (place == place_) return;
    place_ = place;
    const int own = 4 * (lane() % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float4 vec4{0, 0, 0, 0};
      if (of_.rows[half] >= 0 && own < left)
        vec4 = scaled_ranks<FactorType>(
            sum_of_slices(p_.rows, p_.cut.count,
                          p_.rows.row(of_.rows[half], linear_) + place + own),
            factor, p_.call.in, scale, rank + own);
      split_in_three(vec4, ranks_[half]);
    }
  }
  __device__ void add_bias(const float* bias, float scale) {
#pragma unroll
    for (int tile = 0; tile < tiles_at_once; ++tile) {
      if (output(tile) >= end_) continue;
      const float4 more = load_floats<whole>(bias, output(tile), static_cast<int>(to().out));
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_scaled(numbers_[tile][half], more, scale, scale, scale, scale);
    }
  }

  const Labels& p_;
  const RowGroup group_;
  const int linear_;
  const int begin_;
  const int end_;
  const LaneRows of_;
  int first_ = 0;
  Finish finish_;
  float numbers_[tiles_at_once][2][4];
  uint2 ranks_[2][3];
  int place_ = -1;  // of those ranks
};

template <class FactorType, bool whole>
__global__ void __launch_bounds__(threads, 2) expand_labels(const __grid_constant__ Labels p) {
  launch_dependents();
  const RowGroups& groups = p.call.adapters.groups;
  const int all = groups.counts[p.with_base ? 1 : 0] * p.tiles;
  const int at_once = static_cast<int>(gridDim.x) * warps;
  const int each = (all + at_once - 1) / at_once;
  int at = static_cast<int>(blockIdx.x * warps + threadIdx.x / 32) * each;
  const int end = min(at + each, all);
#pragma unroll 1
  while (at < end) {
    const int group = at / p.tiles;
    const int tile = at % p.tiles;
    int linear = 0;
    while (tile >= p.end_tile[linear]) ++linear;
    const int before = linear > 0 ? p.end_tile[linear - 1] : 0;
    const int count = min(p.end_tile[linear] - tile, end - at);
    Expand<FactorType, whole> expand(p, groups.groups[group], linear, 16 * (tile - before),
                                     16 * (tile - before + count));
    expand.prefetch_factors();
    wait_for_previous_grid();
    expand.run();
    at += count;
  }
  wait_for_previous_grid();
}

Labels labels_of(const AdaptLinears& call) {
  Labels all{.call = call,
             .cut = Slices(call.in),
             .rows = {.numbers = call.rank_rows,
                      .rows = static_cast<int>(call.adapters.rows),
                      .linears = call.count},
             .vec8_apart = std::clamp(call.max_ranks / 8, 1, 4),
             .tiles = 0,
             .end_tile = {},
             .with_base = layout_of(call).with_base};
  for (int i = 0; i < call.count; ++i) {
    all.tiles += static_cast<int>((call.linears[i].out + 15) / 16);
    all.end_tile[i] = all.tiles;
  }
  return all;
}

// The launch shape for this many warps.
LaunchShape shape_of(int tasks) {
  return {.grid = static_cast<unsigned>(std::min((tasks + warps - 1) / warps, max_blocks)),
          .threads = threads};
}

}  // namespace
}  // namespace adapter_tiles

void shrink_slices(const AdaptLinears& call, int /*chunk*/, StreamHandle stream) {
  using namespace adapter_tiles;
  const Labels all = labels_of(call);
  with_bf16_or_f8(call.adapters.factor_type, [&](auto type) {
    launch("adapters' shrink of many labels", shrink_labels<decltype(type)>,
           shape_of(all.rows.rows * call.count * all.cut.count * all.vec8_apart), stream, all);
  });
}

void expand_slices(const DeltaProblem& problem, const RankChunk& /*chunk*/, StreamHandle stream) {
  using namespace adapter_tiles;
  const AdaptLinears& call = problem.linears;
  const Labels all = labels_of(call);
  const bool whole = layout_of(call).whole;
  with_bf16_or_f8(call.adapters.factor_type, [&](auto type) {
    using FactorType = decltype(type);
    launch("adapters' expand of many labels",
           whole ? expand_labels<FactorType, true> : expand_labels<FactorType, false>,
           shape_of(all.rows.rows * all.tiles), stream, all);
  });
}

}  // namespace motley::kernels::cuda
