// Loads queries, keys and values into shared memory.
#pragma once

#include "kernels/cuda/attention/order.cuh"
#include "kernels/cuda/attention/tile_scheduler.cuh"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda::tiles {

// One arrival per warp.
__device__ inline void release(std::uint32_t bar) {
  if (threadIdx.x % 32 == 0) bar_arrive(bar);
}

// A ring of blocks, each with a full and an empty barrier.
template <int slots, int bytes>
struct Ring : PipelineState {
  std::uint32_t data;
  std::uint32_t bars;  // [2][slots]: full, free

  __device__ Ring(std::uint32_t first_block, std::uint32_t barriers)
      : data(first_block), bars(barriers) {}

  __device__ std::uint32_t block() const { return data + slot * bytes; }
  __device__ std::uint32_t full() const { return bars + slot * 8; }
  __device__ std::uint32_t free() const { return bars + (slots + slot) * 8; }
  __device__ void next() { advance(slots); }
  // Call when a warp has read the block.
  __device__ void pass_on() {
    release(free());
    next();
  }
};

// Latents have keys only.
template <class S>
struct Rings {
  static constexpr int key_bytes = S::key_panels * S::panel_bytes;
  static constexpr int value_bytes = S::value_panels * S::panel_bytes;
  static constexpr int bar_count = 2 * (S::key_slots + S::value_slots);
  Ring<S::key_slots, key_bytes> keys;
  Ring<S::value_slots, value_bytes> values;

  __device__ Rings(std::uint32_t data, std::uint32_t bars)
      : keys{data, bars}, values{data + S::key_slots * key_bytes, bars + 2 * S::key_slots * 8} {}
};

// A block's rows are loaded 16 at a time; those lie in one page.
constexpr int rows_together = 16;

// Copies 16 rows of one page to panels of a block: 8 lanes per row of 128 bytes, 4 rows at once.
// Rows outside [low, high) are zeroed: they belong to another sequence, and a NaN there would
// survive even a softmax weight of zero.
template <int panels, int panel_bytes, bool whole>
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

// Prefetches the first `count` of 16 rows of one page to L2. A whole warp calls it.
template <int panels>
__device__ inline void fetch_rows_ahead(const Bf16* from, std::int64_t token_stride, int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane % rows_together >= count) return;
  const Bf16* const row = from + lane % rows_together * token_stride;
#pragma unroll 1
  for (int panel = lane / rows_together; panel < panels; panel += 32 / rows_together)
    prefetch_l2(row + panel * 64);
}

// The last copies of a lane, which no barrier has signalled yet. The tensor cores may read copied
// data once the copying lane has waited for it and fenced; then no consumer needs a fence. A block
// is signalled when the next one starts, or when no slot is free for that.
struct Landing {
  std::uint32_t bar = 0;

  __device__ void started(std::uint32_t full) {
    copies_commit();
    if (bar != 0) signal<1>();
    bar = full;
  }
  __device__ void finish() {
    if (bar != 0) signal<0>();
    bar = 0;
  }

 private:
  template <int pending>
  __device__ void signal() {
    copies_wait<pending>();
    fence_async_shared();
    bar_arrive(bar);
  }
};

// Loads an item's keys or values with S::copy_warps_each warps, of which this is `role`: they
// divide a block's 16-row parts. Page numbers are read one block ahead. Only rows that this step
// writes wait for the previous grid: earlier keys and values, and the table, were written before
// the step.
template <class S, bool keys, class R>
__device__ inline void produce_blocks(const TileParams& p, const Item& item, R& ring,
                                      Landing& landing, int role) {
  constexpr int panels = keys ? S::key_panels : S::value_panels;
  constexpr int parts = S::block / rows_together;
  constexpr int own_parts = parts / S::copy_warps_each;
  const int first_part = role * own_parts;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_mask = (1 << p.page_shift) - 1;
  const PageView& pages = keys ? p.keys : p.values;
  const Stretch stretch = stretch_of<S>(item, item.chunk);
  const std::int32_t* const table = p.table + item.sequence * p.table_stride;
  const Bf16* const head = pages.data + item.kv_head * pages.head_stride;
  // Lane i has the page of part i. Table entries without positions of the tile are not read.
  const auto page_of = [&](int base) {
    const int position = base + lane * rows_together;
    const bool needed =
        lane < parts && position + rows_together > item.begin && position < item.end;
    return needed ? table[position >> p.page_shift] : 0;
  };
  int page = page_of(stretch.first);
  for (int base = stretch.first; base < stretch.last; base += S::block, ring.next()) {
    const int next_page = page_of(base + S::block);
    const auto rows_of = [&](int part) {
      return head + __shfl_sync(0xFFFFFFFF, page, part) * pages.page_stride +
             ((base + part * rows_together) & page_mask) * pages.token_stride;
    };
    if (base + S::block > item.first_position) {
      // Most rows of the block are older than the step.
#pragma unroll
      for (int i = 0; i < own_parts; ++i) {
        const int part = first_part + i;
        fetch_rows_ahead<panels>(rows_of(part), pages.token_stride,
                                 item.end - base - part * rows_together);
      }
      wait_for_previous_grid();
    }
    if (!__all_sync(0xFFFFFFFF, bar_test(ring.free(), ring.parity ^ 1))) {
      landing.finish();
      bar_wait(ring.free(), ring.parity ^ 1);
    }
    const bool whole = base >= item.begin && base + S::block <= item.end;
    const std::uint32_t to = ring.block();
#pragma unroll
    for (int i = 0; i < own_parts; ++i) {
      const int part = first_part + i;
      const int position = base + part * rows_together;
      const Bf16* const from = rows_of(part);
      const std::uint32_t place = to + part * rows_together * 128;
      if (whole) {
        copy_rows<panels, S::panel_bytes, true>(from, pages.token_stride, place, 0, rows_together);
      } else {
        copy_rows<panels, S::panel_bytes, false>(from, pages.token_stride, place,
                                                 item.begin - position, item.end - position);
      }
    }
    landing.started(ring.full());
    page = next_page;
  }
}

// The same by one warp with tensor maps, a box of 16 rows x 64 columns per lane. Rows of other
// sequences are zeroed where they would meet a softmax weight; scores of such rows are masked. A
// box outside of its page reads zeros.
template <class S, bool keys, class R>
__device__ inline void produce_boxes(const TileParams& p, const Item& item, R& ring) {
  constexpr int panels = keys ? S::key_panels : S::value_panels;
  constexpr int boxes = S::block / rows_together * panels;
  constexpr int rounds = (boxes + 31) / 32;
  constexpr bool cleans = !keys || S::latent;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_mask = (1 << p.page_shift) - 1;
  const CUtensorMap* const map = keys ? &p.key_pages : &p.value_pages;
  const Stretch stretch = stretch_of<S>(item, item.chunk);
  const std::int32_t* const table = p.table + item.sequence * p.table_stride;
  const auto needed = [&](int position) {
    return position + rows_together > item.begin && position < item.end;
  };
  // Table entries without positions of the tile are not read.
  int page[rounds];
  const auto find_pages = [&](int base) {
#pragma unroll
    for (int r = 0; r < rounds; ++r) {
      const int box = lane + 32 * r;
      const int position = base + box / panels * rows_together;
      page[r] = box < boxes && needed(position) ? table[position >> p.page_shift] : 0;
    }
  };
  find_pages(stretch.first);
  for (int base = stretch.first; base < stretch.last; base += S::block, ring.next()) {
    bar_wait(ring.free(), ring.parity ^ 1);
    if (lane == 0) bar_expect(ring.full(), S::block * 128 * panels);
    // If the tile's last position splits a group of 16 rows, those are loaded one by one.
    const int cut =
        cleans && item.end % rows_together != 0 ? (item.end - base) / rows_together : -1;
#pragma unroll
    for (int r = 0; r < rounds; ++r) {
      const int box = lane + 32 * r;
      const int part = box / panels;
      const int position = base + part * rows_together;
      if (box >= boxes || part == cut) continue;
      const int panel = box % panels;
      const bool shared = keys && !S::latent && panel >= p.own_key_panels;
      tma_4d(ring.block() + panel * S::panel_bytes + part * rows_together * 128,
             shared ? &p.shared_pages : map,
             {(shared ? panel - p.own_key_panels : panel) * 64,
              needed(position) ? position & page_mask : p.page_tokens, shared ? 0 : item.kv_head,
              page[r]},
             ring.full());
    }
    if (cut >= 0 && cut < S::block / rows_together) {
      const int first = base + cut * rows_together;
      const int cut_page = table[first >> p.page_shift];
#pragma unroll 1
      for (int box = lane; box < rows_together * panels; box += 32) {
        const int row = box / panels;
        tma_4d(
            ring.block() + box % panels * S::panel_bytes + (cut * rows_together + row) * 128,
            &p.last_tokens,
            {box % panels * 64, first + row < item.end ? (first + row) & page_mask : p.page_tokens,
             item.kv_head, cut_page},
            ring.full());
      }
    }
    find_pages(base + S::block);
  }
}

__device__ inline std::uint32_t pack(float a, float b) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}

// The offset of a packed row's queries.
__device__ inline std::int64_t query_at(const TileParams& p, const Item& item, int packed) {
  const int token = token_of(p, packed);
  return (item.first_row + token) * p.q_stride +
         (item.kv_head * p.group + packed - token * p.group) * p.q_head_stride;
}

// Loads a tile's queries as adjacent panels of `rows` rows, eight numbers at a time: bf16 is copied
// asynchronously, float32 is rounded first. Rows behind the last are left as they are.
template <class S, int rows, int threads>
__device__ inline void load_queries(const TileParams& p, const Item& item, std::uint32_t to,
                                    int t) {
  constexpr int vec8s = S::key_width / 8;
  constexpr int panel = rows * 128;
  const int count = min(item.rows - item.row, S::rows) * vec8s;
#pragma unroll 1
  for (int i = t; i < count; i += threads) {
    const int row = i / vec8s;
    const int vec8 = i % vec8s;
    const std::int64_t at = query_at(p, item, item.row + row) + vec8 * 8;
    const std::uint32_t place =
        to + (row / rows * S::key_panels + vec8 / 8) * panel + swizzled(row % rows, vec8 % 8, 128);
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

// The queries of two tiles, loaded ahead by a warp of their own.
template <class S>
using QueryRing = Ring<S::query_buffers, S::query_bytes>;

// Copies queries in bf16 with one warp: lane l finds the begin of rows l, l + 32 ...; then 8 lanes
// copy a row's 128 bytes, 4 rows at once. Past the end the last row is repeated.
template <class S>
__device__ inline void copy_queries(const TileParams& p, const Item& item, std::uint32_t to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunk = lane % 8;
  const auto* const q = static_cast<const Bf16*>(p.q) + chunk * 8;
  const int last = item.rows - 1;
#pragma unroll
  for (int first = 0; first < S::rows; first += 32) {
    const std::int64_t own = query_at(p, item, min(item.row + first + lane, last));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = 4 * i + lane / 8;
      const Bf16* const from = q + __shfl_sync(0xFFFFFFFF, own, row);
      const std::uint32_t place = to + first / 64 * S::key_panels * query_panel_bytes +
                                  first % 64 * 128 + swizzled(row, chunk, 128);
#pragma unroll
      for (int panel = 0; panel < S::key_panels; ++panel)
        copy_16(place + panel * query_panel_bytes, from + panel * 64);
    }
  }
}

template <class S>
__device__ inline void produce_queries(const TileParams& p, const Item& item, QueryRing<S>& ring) {
  bar_wait(ring.free(), ring.parity ^ 1);
  if (p.q_f32) {
    load_queries<S, 64, 32>(p, item, ring.block(), static_cast<int>(threadIdx.x) % 32);
  } else {
    copy_queries<S>(p, item, ring.block());
  }
  copies_commit();
  copies_wait<0>();
  fence_async_shared();
  bar_arrive(ring.full());
  ring.next();
}

}  // namespace motley::kernels::cuda::tiles
