// What brings queries, keys and values into shared memory.
#pragma once

#include "kernels/cuda/attention/mma.cuh"
#include "kernels/cuda/attention/schedule.cuh"

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

// By two warps: keys and values, or halves of a latent's rows. Page numbers are read a block ahead.
template <class S, bool keys>
__device__ inline void produce_blocks(const TileParams& p, const Schedule& schedule, Ring<S> ring,
                                      int role) {
  constexpr int panels = keys ? S::key_panels : S::value_panels;
  constexpr int parts = block_positions / rows_together;
  constexpr int own_parts = S::latent ? parts / 2 : parts;
  const int first_part = S::latent ? role * own_parts : 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_mask = (1 << p.page_shift) - 1;
  const PageView& pages = keys ? p.keys : p.values;
  for (int index = static_cast<int>(blockIdx.x); index < schedule.items;
       index += static_cast<int>(gridDim.x)) {
    const Item item = find_item<S>(p, schedule, index);
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
      bar_arrive_after_copies(keys ? ring.keys_full() : ring.values_full());
      page = next_page;
    }
  }
}

__device__ inline std::uint32_t pack(float a, float b) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}

// A tile's queries, rounded, as panels of 64 rows; rows behind the last are left as they are.
template <class S, int threads, int ahead>
__device__ inline void load_queries(const TileParams& p, const Item& item, std::uint32_t to,
                                    int t) {
  constexpr int fours = S::key_width / 4;
  const int count = min(item.rows - item.row, S::rows) * fours;
  for (int first = t; first < count; first += threads * ahead) {
    uint4 in[ahead];
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
      const int i = first + j * threads;
      if (i >= count) break;
      const int packed = item.row + i / fours;
      const int token = token_of(p, packed);
      const std::int64_t at =
          (item.first_row + token) * p.q_stride +
          (item.kv_head * p.group + packed - token * p.group) * p.q_head_stride + i % fours * 4;
      if (p.q_f32) {
        in[j] = *reinterpret_cast<const uint4*>(static_cast<const float*>(p.q) + at);
      } else {
        const auto two = *reinterpret_cast<const uint2*>(static_cast<const Bf16*>(p.q) + at);
        in[j] = make_uint4(two.x, two.y, 0, 0);
      }
    }
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
      const int i = first + j * threads;
      if (i >= count) break;
      const int row = i / fours;
      const int four = i % fours;
      const std::uint32_t addr = to + (row / 64 * S::key_panels + four / 16) * panel_bytes +
                                 swizzled(row % 64, four % 16 / 2, 128) + four % 2 * 8;
      const uint4 v = in[j];
      if (p.q_f32) {
        store_shared_8(addr, pack(__uint_as_float(v.x), __uint_as_float(v.y)),
                       pack(__uint_as_float(v.z), __uint_as_float(v.w)));
      } else {
        store_shared_8(addr, v.x, v.y);
      }
    }
  }
}

// Two buffers of queries, filled ahead by warps of their own.
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
__device__ inline void produce_queries(const TileParams& p, const Schedule& schedule,
                                       QueryRing<S> ring, int t) {
  for (int index = static_cast<int>(blockIdx.x); index < schedule.items;
       index += static_cast<int>(gridDim.x), ring.next()) {
    const Item item = find_item<S>(p, schedule, index);
    bar_wait(ring.free(), ring.parity ^ 1);
    load_queries<S, S::query_threads, 6>(p, item, ring.queries(), t);
    fence_async_shared();
    bar_arrive(ring.full());
  }
}

}  // namespace motley::kernels::cuda::tiles
