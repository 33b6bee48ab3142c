// What brings queries, keys and values into shared memory.
#pragma once

#include "kernels/cuda/attention/deal.cuh"
#include "kernels/cuda/attention/mma.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::kernels::cuda::tiles {

// Stages of keys and of values, each with barriers that say full and free. A latent's stage has
// keys only.
template <class S>
struct Ring {
  std::uint32_t data;  // of stage 0: keys' panels, then values'
  std::uint32_t bars;  // [4][stages]: keys full, keys free, values full, values free
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ std::uint32_t keys() const { return data + stage * S::stage_bytes; }
  __device__ std::uint32_t values() const {
    return S::latent ? keys() : keys() + S::key_panels * panel_bytes;
  }
  __device__ std::uint32_t keys_full() const { return bars + stage * 8; }
  __device__ std::uint32_t keys_free() const { return bars + (S::stages + stage) * 8; }
  __device__ std::uint32_t values_full() const { return bars + (2 * S::stages + stage) * 8; }
  __device__ std::uint32_t values_free() const { return bars + (3 * S::stages + stage) * 8; }
  __device__ void next() {
    if (++stage == S::stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// A block's rows come by sixteens, which lie in one page.
constexpr int rows_together = 16;

// Sixteen rows of one page to panels of a block: eight lanes a row of 128 bytes, four rows at once.
// Rows outside [low, high) become zeros: they are somebody else's, and even a softmax weight of
// zero would keep their NaN.
template <int panels, bool whole>
__device__ inline void copy_rows(const Bf16* from, std::int64_t token_stride, std::uint32_t to,
                                 int low, int high) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane / 8;
  const int chunk = lane % 8;
#pragma unroll
  for (int i = 0; i < rows_together / 4; ++i) {
    const std::uint32_t place = to + swizzled(row + 4 * i, chunk, 128);
    const Bf16* const source = from + (row + 4 * i) * token_stride + chunk * 8;
    const bool keep = row + 4 * i >= low && row + 4 * i < high;
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      if constexpr (whole) {
        copy_16(place + panel * panel_bytes, source + panel * 64);
      } else {
        copy_16_or_zero(place + panel * panel_bytes, keep ? source + panel * 64 : from, keep);
      }
    }
  }
}

// What a lane copied last, of which nobody knows yet. The tensor cores may read what was copied
// once the lane has seen it land and has fenced; a lane that fences saves all consumers from it. It
// tells of a block when the next one is started: where a ring holds two, that is too late, and
// consumers fence.
template <class S>
struct Landing {
  std::uint32_t bar = 0;

  __device__ void started(std::uint32_t full) {
    if constexpr (S::consumers_fence) return bar_arrive_after_copies(full);
    copies_commit();
    if (bar != 0) {
      copies_wait<1>();
      fence_async_shared();
      bar_arrive(bar);
    }
    bar = full;
  }
  __device__ void finish() {
    if (bar == 0) return;
    copies_wait<0>();
    fence_async_shared();
    bar_arrive(bar);
  }
};

// Until a block that was copied may be read.
template <class S>
__device__ inline void wait_for_block(std::uint32_t full, std::uint32_t parity) {
  bar_wait(full, parity);
  if constexpr (S::consumers_fence) fence_async_shared();
}

// An item's keys or values, by S::copy_warps_each warps, `role` among them, that share out a
// block's sixteens of rows. Page numbers are read a block ahead. Only what this step writes waits
// for the grid before: earlier steps' keys and values, and the table, were there before the step
// began.
template <class S, bool keys>
__device__ inline void produce_blocks(const TileParams& p, const Item& item, Ring<S>& ring,
                                      Landing<S>& landing, int role) {
  static_assert(S::consumers_fence || S::stages > S::blocks_together, "a block behind them");
  constexpr int panels = keys ? S::key_panels : S::value_panels;
  constexpr int parts = block_positions / rows_together;
  constexpr int own_parts = parts / S::copy_warps_each;
  const int first_part = role * own_parts;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_mask = (1 << p.page_shift) - 1;
  const PageView& pages = keys ? p.keys : p.values;
  const Stretch stretch = stretch_of<S>(item, item.chunk);
  const std::int32_t* const table = p.table + item.sequence * p.table_stride;
  const Bf16* const head = pages.data + item.kv_head * pages.head_stride;
  // Lane i: the page of part i. No page is looked up that holds none of the tile's positions.
  const auto page_of = [&](int base) {
    const int position = base + lane * rows_together;
    const bool needed =
        lane < parts && position + rows_together > item.begin && position < item.end;
    return needed ? table[position >> p.page_shift] : 0;
  };
  int page = page_of(stretch.first);
  for (int base = stretch.first; base < stretch.last; base += block_positions, ring.next()) {
    const int next_page = page_of(base + block_positions);
    if (base + block_positions > item.first_position) wait_for_previous_grid();
    bar_wait(keys ? ring.keys_free() : ring.values_free(), ring.parity ^ 1);
    const bool whole = base >= item.begin && base + block_positions <= item.end;
    const std::uint32_t to = keys ? ring.keys() : ring.values();
#pragma unroll
    for (int i = 0; i < own_parts; ++i) {
      const int part = first_part + i;
      const int position = base + part * rows_together;
      const Bf16* const from = head + __shfl_sync(0xFFFFFFFF, page, part) * pages.page_stride +
                               (position & page_mask) * pages.token_stride;
      const std::uint32_t place = to + part * rows_together * 128;
      if (whole) {
        copy_rows<panels, true>(from, pages.token_stride, place, 0, rows_together);
      } else {
        copy_rows<panels, false>(from, pages.token_stride, place, item.begin - position,
                                 item.end - position);
      }
    }
    landing.started(keys ? ring.keys_full() : ring.values_full());
    page = next_page;
  }
}

__device__ inline std::uint32_t pack(float a, float b) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}

// Where a packed row's queries begin.
__device__ inline std::int64_t query_at(const TileParams& p, const Item& item, int packed) {
  const int token = token_of(p, packed);
  return (item.first_row + token) * p.q_stride +
         (item.kv_head * p.group + packed - token * p.group) * p.q_head_stride;
}

// A tile's queries as panels of `rows` rows side by side, eight numbers at a time: bf16 is copied
// behind the caller's back, float32 is rounded on the way. Rows behind the last are left as they
// are.
template <class S, int rows, int threads>
__device__ inline void load_queries(const TileParams& p, const Item& item, std::uint32_t to,
                                    int t) {
  constexpr int eights = S::key_width / 8;
  constexpr int panel = rows * 128;
  const int count = min(item.rows - item.row, S::rows) * eights;
#pragma unroll 1
  for (int i = t; i < count; i += threads) {
    const int row = i / eights;
    const int eight = i % eights;
    const std::int64_t at = query_at(p, item, item.row + row) + eight * 8;
    const std::uint32_t place = to + (row / rows * S::key_panels + eight / 8) * panel +
                                swizzled(row % rows, eight % 8, 128);
    if (!p.q_f32) {
      copy_16(place, static_cast<const Bf16*>(p.q) + at);
      continue;
    }
    const auto* const from = reinterpret_cast<const float4*>(static_cast<const float*>(p.q) + at);
    const float4 low = from[0];
    const float4 high = from[1];
    store_shared_16(place, make_uint4(pack(low.x, low.y), pack(low.z, low.w), pack(high.x, high.y),
                                      pack(high.z, high.w)));
  }
}

// Two buffers of queries, filled ahead by a warp of their own.
template <class S>
struct QueryRing {
  std::uint32_t data;
  std::uint32_t bars;  // [2][buffers]: full, free
  int buffer = 0;
  std::uint32_t parity = 0;

  __device__ std::uint32_t queries() const { return data + buffer * S::query_bytes; }
  __device__ std::uint32_t full() const { return bars + buffer * 8; }
  __device__ std::uint32_t free() const { return bars + (S::query_buffers + buffer) * 8; }
  __device__ void next() {
    if (++buffer == S::query_buffers) {
      buffer = 0;
      parity ^= 1;
    }
  }
};

template <class S>
__device__ inline void produce_queries(const TileParams& p, const Item& item, QueryRing<S>& ring) {
  bar_wait(ring.free(), ring.parity ^ 1);
  load_queries<S, 64, 32>(p, item, ring.queries(), static_cast<int>(threadIdx.x) % 32);
  copies_commit();
  copies_wait<0>();
  fence_async_shared();
  bar_arrive(ring.full());
  ring.next();
}

}  // namespace motley::kernels::cuda::tiles
