// Where the units of a split tile are stored, and how its last chunk joins them.
#pragma once

#include "kernels/cuda/attention/softmax.cuh"

namespace motley::kernels::cuda::tiles {

// A barrier of all consumers of the block.
template <class S>
__device__ inline void consumers_meet() {
  named_barrier(1, S::consumers);
}

template <class S>
__device__ inline std::int64_t partial_size(const TileParams& p) {
  return static_cast<std::int64_t>(p.partial_rows) * (S::value_width + 2);
}

// The units of a tile are consecutive. Where earlier units are not kept apart, a chunk is one unit.
template <class S>
__device__ inline int first_slot(const Item& item) {
  return S::folds ? item.lead * (item.cut / unit_positions) : item.lead;
}
// The slot of the unit that ends at `position`.
template <class S>
__device__ inline int slot_of(const Item& item, int position) {
  return first_slot<S>(item) +
         (S::folds ? unit_index(position) - unit_index(item.begin) : item.chunk);
}
template <class S>
__device__ inline int slots_of(const Item& item) {
  return S::folds ? unit_index(item.end - 1) - unit_index(item.begin) + 1
                  : pieces(item.end - chunks_begin<S>(item), item.cut);
}

__device__ inline void store_two(const TileParams& p, int row, int head, int column, float a,
                                 float b) {
  const std::int64_t at = row * p.out_stride + head * p.out_head_stride + column;
  if (p.out_f32) {
    *reinterpret_cast<float2*>(static_cast<float*>(p.out) + at) = make_float2(a, b);
  } else {
    *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(p.out) + at) = pack(a, b);
  }
}

// Whether this block's chunk is the last of the tile to arrive. Leaves the counter at zero. Between
// the barriers, the release and acquire of one thread order the writes of all before and their
// reads after.
template <class S>
__device__ inline bool arrives_last(const TileParams& p, const Item& item, int* verdict) {
  consumers_meet<S>();
  if (threadIdx.x == 0) {
    const bool last = fetch_add_acq_rel(p.counters + item.lead, 1) == item.chunks - 1;
    if (last) p.counters[item.lead] = 0;
    *verdict = last ? 1 : 0;
  }
  consumers_meet<S>();
  return *verdict != 0;
}

// The blocks of all chunks of a tile wait for each other, once here and once after each has joined
// its share; then the counter is zero again. Requires co-resident blocks.
template <class S>
__device__ inline void chunks_meet(const TileParams& p, const Item& item) {
  __threadfence();
  consumers_meet<S>();
  if (threadIdx.x == 0) {
    fetch_add_acq_rel(p.counters + item.lead, 1);
    while (load_acquire(p.counters + item.lead) < item.chunks) {
    }
  }
  consumers_meet<S>();
  __threadfence();
}
template <class S>
__device__ inline void chunks_part(const TileParams& p, const Item& item) {
  consumers_meet<S>();
  if (threadIdx.x == 0 && fetch_add_acq_rel(p.counters + item.lead, 1) == 2 * item.chunks - 1)
    p.counters[item.lead] = 0;
}

// Joins share `share` of `shares`. Four columns of a row at a time, `wide` of them per thread, with
// `ahead` units of each in flight.
template <class S>
__device__ inline void join_units(const TileParams& p, const Item& item, int share = 0,
                                  int shares = 1) {
  constexpr int ahead = S::rows <= 8 && !S::latent ? 8 : 4;
  constexpr int wide = 2;
  constexpr int columns = S::value_width / 4;
  const int all = min(item.rows - item.row, S::rows) * columns;
  const int count = all * (share + 1) / shares;
  const int slots = slots_of<S>(item);
  const float* const parts = p.partials + first_slot<S>(item) * partial_size<S>(p);
  for (int first = all * share / shares + static_cast<int>(threadIdx.x); first < count;
       first += wide * S::consumers) {
    int row[wide];
    int column[wide];
    int token[wide];
    int head[wide];
    Seen seen[wide];
    float sum[wide][4] = {};
#pragma unroll
    for (int w = 0; w < wide; ++w) {
      // Past the end the last one is repeated.
      const int i = min(first + w * S::consumers, count - 1);
      row[w] = i / columns;
      column[w] = i % columns * 4;
      const int packed = item.row + row[w];
      token[w] = token_of(p, packed);
      head[w] = item.kv_head * p.group + packed - token[w] * p.group;
      seen[w] = seen_at_first(p, head[w]);
    }
    for (int unit = 0; unit < slots; unit += ahead) {
      float4 v[ahead][wide];
      float2 own[ahead][wide];
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        const float* const part = parts + (unit + j) * partial_size<S>(p);
#pragma unroll
        for (int w = 0; w < wide; ++w) {
          own[j][w] = make_float2(-INFINITY, 0.0F);
          v[j][w] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
          if (unit + j >= slots) continue;
          v[j][w] =
              __ldcg(reinterpret_cast<const float4*>(part + row[w] * S::value_width + column[w]));
          own[j][w] = __ldcg(
              reinterpret_cast<const float2*>(part + p.partial_rows * S::value_width + 2 * row[w]));
        }
      }
      // A missing unit has no effect: its sums and weights are zero.
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
#pragma unroll
        for (int w = 0; w < wide; ++w) {
          const Join factors = join(seen[w], {own[j][w].x, own[j][w].y});
          sum[w][0] = joined(sum[w][0], v[j][w].x, factors);
          sum[w][1] = joined(sum[w][1], v[j][w].y, factors);
          sum[w][2] = joined(sum[w][2], v[j][w].z, factors);
          sum[w][3] = joined(sum[w][3], v[j][w].w, factors);
        }
      }
    }
#pragma unroll
    for (int w = 0; w < wide; ++w) {
      if (first + w * S::consumers >= count) continue;
      const float factor = final_factor<S>(p, seen[w].total);
      const int out_row = item.first_row + token[w];
      if (S::gates && p.gates.data != nullptr) {
        const float* const gates = gates_of(p.gates, out_row, head[w]) + column[w];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[w][i] = gated(__ldg(gates + i), sum[w][i]);
      }
      store_two(p, out_row, head[w], column[w], __fmul_rn(sum[w][0], factor),
                __fmul_rn(sum[w][1], factor));
      store_two(p, out_row, head[w], column[w] + 2, __fmul_rn(sum[w][2], factor),
                __fmul_rn(sum[w][3], factor));
    }
  }
}

}  // namespace motley::kernels::cuda::tiles
