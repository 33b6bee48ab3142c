// Which block computes what. Every block derives it from the sequences' lengths, so one launch
// serves any lengths. An item is a tile and a range of its positions; long ranges are split if
// there are fewer tiles than resident blocks.
#pragma once

#include "kernels/cuda/attention/shape.cuh"

namespace motley::kernels::cuda::tiles {

// A sequence's tiles, and an upper bound of the positions that one of them reads.
struct Work {
  int first_row;
  int first_position;  // of its first row; positions of the next rows rise by one
  int rows;            // packed
  int tiles;
  int reach;
};

struct Schedule {
  int item_begin[max_sequences + 1];
  Work work[max_sequences];
  // Aligned, so that vec4 reads stay inside.
  alignas(16) int warp_sums[16];
  int cut;  // positions of an item; a multiple of cut_grain
  int items;
};

template <class S>
__device__ inline Work work_of(const TileParams& p, int sequence) {
  Work work{};
  if (sequence >= p.sequences) return work;
  work.first_row = p.seq_begin[sequence];
  const int tokens = p.seq_begin[sequence + 1] - work.first_row;
  work.rows = tokens * p.group;
  if (work.rows < p.least_rows || work.rows > p.max_rows) return work;
  work.first_position = p.positions[work.first_row];
  work.tiles = (work.rows + S::rows - 1) / S::rows;
  const int last = work.first_position + tokens - 1;
  work.reach = last + 1;
  if (p.window > 0)
    work.reach = min(work.reach, p.window + token_of(p, S::rows) + 2 + unit_length(last));
  return work;
}

__device__ inline int pieces(int reach, int cut) { return (reach + cut - 1) / cut; }

// The sum over the block; `before` is the sum over earlier threads.
template <int threads>
__device__ inline int sum_of_threads(int value, int* warp_sums, int& before) {
  const int t = static_cast<int>(threadIdx.x);
  int sum = value;
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFF, sum, d);
    if (t % 32 >= d) sum += other;
  }
  __syncthreads();
  if (t % 32 == 31) warp_sums[t / 32] = sum;
  __syncthreads();
  before = sum - value;
  int total = 0;
  for (int w = 0; w < threads / 32; ++w) {
    if (w < t / 32) before += warp_sums[w];
    total += warp_sums[w];
  }
  return total;
}

// One thread per sequence.
template <class S>
__device__ inline void make_schedule(const TileParams& p, Schedule& schedule) {
  static_assert(S::threads >= max_sequences);
  const int t = static_cast<int>(threadIdx.x);
  const Work work = work_of<S>(p, t);
  const int tiles = work.tiles * p.kv_heads;
  int before = 0;
  const int grains = sum_of_threads<S::threads>(tiles * pieces(work.reach, S::cut_grain),
                                                schedule.warp_sums, before);
  constexpr int uncut = 1 << 30;
  int cut = p.whole ? uncut : max(1, pieces(grains, p.slots)) * S::cut_grain;
  int items = 0;
  for (;;) {
    items = sum_of_threads<S::threads>(tiles * pieces(work.reach, cut), schedule.warp_sums, before);
    if (cut == uncut) break;
    const std::int64_t parts =
        static_cast<std::int64_t>(items) * (S::folds ? cut / unit_positions : 1);
    if (items < p.counter_count &&  // the last counter distributes items
        parts * p.partial_rows * (S::value_width + 2) <= p.partial_count)
      break;
    cut = uncut;  // the scratch is too small for it
  }
  if (t < p.sequences) {
    schedule.item_begin[t] = before;
    schedule.work[t] = work;
  }
  if (t == 0) {
    schedule.item_begin[p.sequences] = items;
    schedule.cut = cut;
    schedule.items = items;
  }
  __syncthreads();
}

struct alignas(16) Item {
  int sequence;
  int first_row;       // of its sequence, in the step
  int first_position;  // of that row
  int rows;            // of its sequence, packed; 0: no item
  int row;             // the tile's first, packed
  int kv_head;
  int begin, end;  // positions that the tile reads
  int chunk, chunks;
  int lead;  // the item that is the first chunk of this tile
  int cut;
};

__device__ inline int position_of(const TileParams& p, const Item& item, int packed) {
  return item.first_position + token_of(p, packed);
}

template <class S>
__device__ inline Item find_item(const TileParams& p, const Schedule& schedule, int index) {
  int low = 0;
  int high = p.sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (schedule.item_begin[middle] <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const Work& work = schedule.work[low];
  Item item;
  item.sequence = low;
  item.first_row = work.first_row;
  item.first_position = work.first_position;
  item.rows = work.rows;
  item.cut = schedule.cut;
  item.chunks = pieces(work.reach, item.cut);
  const int place = index - schedule.item_begin[low];
  item.chunk = place % item.chunks;
  item.lead = index - item.chunk;
  item.kv_head = place / item.chunks % p.kv_heads;
  // The last tile comes first, because it reads most.
  item.row = (work.tiles - 1 - place / item.chunks / p.kv_heads) * S::rows;
  const int first_end = position_of(p, item, item.row) + 1;
  item.begin = p.window > 0 ? max(0, first_end - p.window) : 0;
  item.end = position_of(p, item, min(item.row + S::rows, work.rows) - 1) + 1;
  return item;
}

// The first position of the first block that the tile reads.
template <class S>
__device__ inline int first_block(const Item& item) {
  return item.begin & ~(S::block - 1);
}
// The origin from which chunks are counted. Where a chunk is one unit of any length, no chunk
// before a non-empty one is empty, since its number is its place among the partial sums.
template <class S>
__device__ inline int chunks_begin(const Item& item) {
  return S::folds ? unit_begin(item.begin) : first_block<S>(item);
}

// Positions [first, last) of a chunk, in whole blocks except at the end. May be empty.
struct Stretch {
  int first, last;
};

template <class S>
__device__ inline Stretch stretch_of(const Item& item, int chunk) {
  const int block = first_block<S>(item);
  if (item.chunks == 1) return {block, item.end};
  int first = chunks_begin<S>(item) + chunk * item.cut;
  int last = first + item.cut;
  if constexpr (S::folds) {
    first = unit_begin(first);
    last = unit_begin(last);
  }
  return {max(first, block), chunk + 1 == item.chunks ? item.end : min(last, item.end)};
}

}  // namespace motley::kernels::cuda::tiles
