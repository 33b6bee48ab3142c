// Where units of a tile that was cut lie, and how its last chunk puts them together.
#pragma once

#include "kernels/cuda/attention/softmax.cuh"

namespace motley::kernels::cuda::tiles {

// All consumers of the block.
template <class S>
__device__ inline void consumers_meet() {
  named_barrier(1, S::consumers);
}

template <class S>
__device__ inline std::int64_t partial_size(const TileParams& p) {
  return static_cast<std::int64_t>(p.partial_rows) * (S::value_width + 2);
}

// The slot of a chunk's unit. A latent's chunk is one unit.
template <class S>
__device__ inline int slot_of(const Item& item, int chunk, int first, int position) {
  const int number = item.lead + chunk;
  if constexpr (!S::folds) return number;
  return number * (item.cut / unit_positions) + unit_index(position) - unit_index(first);
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

// Walks over the slots of a tile's units, in order.
template <class S>
struct Units {
  const Item& item;
  int chunk = -1;
  int slot = 0;
  int end = 0;

  // -1 behind the last.
  __device__ int next() {
    while (slot == end) {
      if (++chunk >= item.chunks) {
        --chunk;
        return -1;
      }
      const Stretch stretch = stretch_of<S>(item, chunk);
      if (stretch.first >= stretch.last) continue;
      slot = slot_of<S>(item, chunk, stretch.first, stretch.first);
      end = slot_of<S>(item, chunk, stretch.first, stretch.last - 1) + 1;
    }
    return slot++;
  }
};

// Whether this block's chunk is the tile's last to arrive. The counter is left at zero.
template <class S>
__device__ inline bool arrives_last(const TileParams& p, const Item& item, int* verdict) {
  __threadfence();
  consumers_meet<S>();
  if (threadIdx.x == 0) {
    const bool last = fetch_add_acq_rel(p.counters + item.lead, 1) == item.chunks - 1;
    if (last) p.counters[item.lead] = 0;
    *verdict = last ? 1 : 0;
  }
  consumers_meet<S>();
  __threadfence();
  return *verdict != 0;
}

// Four columns of a row a thread, `ahead` units on their way together.
template <class S>
__device__ inline void join_units(const TileParams& p, const Item& item) {
  constexpr int ahead = 8;
  constexpr int columns = S::value_width / 4;
  const int rows = min(item.rows - item.row, S::rows);
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += S::consumers) {
    const int row = i / columns;
    const int column = i % columns * 4;
    const int packed = item.row + row;
    const int token = token_of(p, packed);
    const int head = item.kv_head * p.group + packed - token * p.group;
    Seen seen = seen_at_first(p, head);
    float sum[4] = {};
    Units<S> units{item};
    for (bool more = true; more;) {
      float4 v[ahead];
      float2 own[ahead];
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        const int slot = units.next();
        more = slot >= 0;
        own[j] = make_float2(-INFINITY, 0.0F);
        v[j] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        if (!more) continue;
        const float* const part = p.partials + slot * partial_size<S>(p);
        v[j] = __ldcg(reinterpret_cast<const float4*>(part + row * S::value_width + column));
        own[j] = __ldcg(
            reinterpret_cast<const float2*>(part + p.partial_rows * S::value_width + 2 * row));
      }
      // A unit that is not there changes nothing: its sums and weights are zero.
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        const Join factors = join(seen, {own[j].x, own[j].y});
        sum[0] = joined(sum[0], v[j].x, factors);
        sum[1] = joined(sum[1], v[j].y, factors);
        sum[2] = joined(sum[2], v[j].z, factors);
        sum[3] = joined(sum[3], v[j].w, factors);
      }
    }
    const float factor = 1.0F / seen.total;
    const int out_row = item.first_row + token;
    store_two(p, out_row, head, column, __fmul_rn(sum[0], factor), __fmul_rn(sum[1], factor));
    store_two(p, out_row, head, column + 2, __fmul_rn(sum[2], factor), __fmul_rn(sum[3], factor));
  }
}

}  // namespace motley::kernels::cuda::tiles
