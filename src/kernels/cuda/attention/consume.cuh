// What a warpgroup does with a tile: scores, softmax, sums of values, and what becomes of them.
#pragma once

#include "kernels/cuda/attention/join.cuh"

namespace motley::kernels::cuda::tiles {

template <class S>
struct Consumer {
  Ring<S> ring;
  std::uint32_t queries;  // this warpgroup's 64 rows
  int warpgroup;
  int* verdict;  // shared: what the tile's last chunk was told
};

__device__ inline void release(std::uint32_t bar) {
  if (threadIdx.x % 32 == 0) bar_arrive(bar);
}

// s = q . k for a block's 64 positions; to be committed.
template <class S>
__device__ inline void score(float (&s)[32], std::uint32_t queries, std::uint32_t keys) {
  const std::uint32_t q = descriptor_low(queries);
  const std::uint32_t k = descriptor_low(keys);
  mma_fence();
#pragma unroll
  for (int i = 0; i < S::key_width / 16; ++i) {
    const int at = i / 4 * (panel_bytes >> 4) + i % 4 * 2;
    Mma<64>::ss<swizzle_128>(s, q + at, k + at, i > 0);
  }
}

// sums (+)= weights . v
template <class S>
__device__ inline void add_values(float (&sums)[S::own_values / 2],
                                  const std::uint32_t (&weights)[4][4], std::uint32_t values,
                                  bool accumulate) {
  const std::uint32_t v = transposed_descriptor_low(values, panel_bytes);
  mma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    MmaTransposed<S::own_values>::template rs<swizzle_128>(sums, weights[k], v + k * (2048 >> 4),
                                                           accumulate || k > 0);
}

template <class S>
struct Sums {
  float own[S::own_values / 2];                 // of the unit that runs
  float all[S::folds ? S::own_values / 2 : 1];  // of all units before
  Seen seen[2];
};

// Puts the unit that ran to those before it.
template <class S>
__device__ inline void fold(Sums<S>& sums, const Seen (&unit)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const Join factors = join(sums.seen[r], {unit[r].most, over_quad(unit[r].total)});
#pragma unroll
    for (int i = 0; i < S::own_values / 8; ++i) {
      float* const own = sums.own + 4 * i + 2 * r;
      if constexpr (S::folds) {
        float* const all = sums.all + 4 * i + 2 * r;
        all[0] = joined(all[0], own[0], factors);
        all[1] = joined(all[1], own[1], factors);
      } else {
        own[0] = joined(0.0F, own[0], factors);
        own[1] = joined(0.0F, own[1], factors);
      }
    }
  }
}

// Before any unit.
template <class S>
__device__ inline void clear(Sums<S>& sums) {
#pragma unroll
  for (float& sum : sums.own) sum = 0;
#pragma unroll
  for (float& sum : sums.all) sum = 0;
}

// Behind the last unit: the sums of all, in `own` again.
template <class S>
__device__ inline void collect(Sums<S>& sums) {
  if constexpr (S::folds) {
#pragma unroll
    for (int i = 0; i < S::own_values / 2; ++i) sums.own[i] = sums.all[i];
  }
}

// The unit that ran, to where the tile's last chunk will find it.
template <class S>
__device__ inline void export_unit(const TileParams& p, const Sums<S>& sums, const ThreadRows& rows,
                                   const Seen (&unit)[2], int slot, int tile_row, int column) {
  float* const to = p.partials + slot * partial_size<S>(p);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = over_quad(unit[r].total);
    if (rows.row[r] < 0) continue;
    const int row = tile_row + 8 * r;
    float* const out = to + row * S::value_width + column;
#pragma unroll
    for (int i = 0; i < S::own_values / 8; ++i)
      *reinterpret_cast<float2*>(out + 8 * i) =
          make_float2(sums.own[4 * i + 2 * r], sums.own[4 * i + 2 * r + 1]);
    if (column == 0)
      *reinterpret_cast<float2*>(to + p.partial_rows * S::value_width + 2 * row) =
          make_float2(unit[r].most, total);
  }
}

// Four lanes hold two columns each of four neighbouring blocks of eight; after it each holds the
// eight columns of the block of its own number.
__device__ inline uint4 gather_columns(const std::uint32_t (&w)[4]) {
  const bool odd = threadIdx.x % 2 == 1;
  const bool high = threadIdx.x / 2 % 2 == 1;
  const auto swap = [](std::uint32_t word, int with) {
    return __shfl_xor_sync(0xFFFFFFFF, word, with);
  };
  const std::uint32_t near[2] = {swap(odd ? w[0] : w[1], 1), swap(odd ? w[2] : w[3], 1)};
  const uint2 low_pair = odd ? make_uint2(near[0], w[1]) : make_uint2(w[0], near[0]);
  const uint2 high_pair = odd ? make_uint2(near[1], w[3]) : make_uint2(w[2], near[1]);
  const uint2 far = make_uint2(swap(high ? low_pair.x : high_pair.x, 2),
                               swap(high ? low_pair.y : high_pair.y, 2));
  return high ? make_uint4(far.x, far.y, high_pair.x, high_pair.y)
              : make_uint4(low_pair.x, low_pair.y, far.x, far.y);
}

template <class S>
__device__ inline void store_tile(const TileParams& p, const Sums<S>& sums, const ThreadRows& rows,
                                  int column) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float factor = 1.0F / sums.seen[r].total;
    const auto value = [&](int block, int i) {
      return __fmul_rn(sums.own[4 * block + 2 * r + i], factor);
    };
    if (p.out_f32) {
#pragma unroll
      for (int i = 0; i < S::own_values / 8; ++i)
        if (rows.row[r] >= 0)
          store_two(p, rows.row[r], rows.head[r], column + 8 * i, value(i, 0), value(i, 1));
      continue;
    }
    const int own = static_cast<int>(threadIdx.x) % 4;
    Bf16* const out = static_cast<Bf16*>(p.out) + rows.row[r] * p.out_stride +
                      rows.head[r] * p.out_head_stride + column - 2 * own + 8 * own;
#pragma unroll
    for (int i = 0; i < S::own_values / 8; i += 4) {
      const std::uint32_t words[4] = {
          pack(value(i, 0), value(i, 1)), pack(value(i + 1, 0), value(i + 1, 1)),
          pack(value(i + 2, 0), value(i + 2, 1)), pack(value(i + 3, 0), value(i + 3, 1))};
      const uint4 eight = gather_columns(words);
      if (rows.row[r] >= 0) *reinterpret_cast<uint4*>(out + 8 * i) = eight;
    }
  }
}

// One item, queries already in shared memory.
template <class S>
struct Attend {
  const TileParams& p;
  const Item& item;
  Consumer<S>& c;
  Stretch stretch;
  int tile_row;   // of the thread's first row
  int column;     // of its first sum
  int all_below;  // every row sees positions [all_from, all_below)
  int all_from;
  ThreadRows rows;
  Sums<S> sums;
  float factor[2];

  __device__ Attend(const TileParams& params, const Item& own_item, Consumer<S>& consumer)
      : p(params), item(own_item), c(consumer), stretch(stretch_of<S>(item, item.chunk)) {
    const int t = static_cast<int>(threadIdx.x) % 128;
    tile_row = (S::latent ? 0 : c.warpgroup * 64) + t / 32 * 16 + t % 32 / 4;
    column = (S::latent ? c.warpgroup * S::own_values : 0) + 2 * (t % 4);
    all_below = position_of(p, item, item.row) + 1;
    all_from = p.window > 0 ? item.end - p.window : 0;
    rows.begin(p, item, item.row + tile_row);
    clear(sums);
#pragma unroll
    for (int r = 0; r < 2; ++r) sums.seen[r] = seen_at_first(p, rows.head[r]);
  }

  __device__ bool begins(int base) const { return S::folds && unit_begin(base) == base; }

  __device__ void issue_scores(float (&s)[32]) {
    wait_for_block<S>(c.ring.keys_full(), c.ring.parity);
    score<S>(s, c.queries, c.ring.keys());
    mma_commit();
  }
  __device__ void issue_values(const Ring<S>& ring, const std::uint32_t (&weights)[4][4],
                               bool accumulate) {
    if constexpr (!S::latent) {
      wait_for_block<S>(ring.values_full(), ring.parity);
    }
    const int own_panels = S::latent ? c.warpgroup * (S::own_values / 64) * panel_bytes : 0;
    add_values<S>(sums.own, weights, ring.values() + own_panels, accumulate);
    mma_commit();
  }
  __device__ void values_done(const Ring<S>& ring) {
    settled(sums.own);
    release(S::latent ? ring.keys_free() : ring.values_free());
  }

  // What the thread's rows saw before this block, if it begins a unit; then they see afresh.
  __device__ void weigh(float (&s)[32], int base, bool fresh, Seen (&before)[2]) {
    before[0] = rows.seen[0];
    before[1] = rows.seen[1];
    if (fresh) rows.restart();
    soften(s, rows, base, p.scale, base + block_positions > all_below || base < all_from, factor);
  }

  // A unit's end.
  __device__ void close(const Seen (&seen)[2], int base) {
    if (item.chunks > 1) {
      export_unit<S>(p, sums, rows, seen, slot_of<S>(item, base), tile_row, column);
    } else {
      fold<S>(sums, seen);
    }
  }

  // Before a block's values: what stands is scaled, or put away.
  __device__ void prepare(const Seen (&before)[2], int base, bool fresh) {
    if (fresh) return close(before, base - 1);
    // Mostly the largest score stands, and a factor of 1 changes nothing.
    if (!__any_sync(0xFFFFFFFF, factor[0] != 1.0F || factor[1] != 1.0F)) return;
#pragma unroll
    for (int i = 0; i < S::own_values / 2; ++i)
      sums.own[i] = __fmul_rn(sums.own[i], factor[i / 2 % 2]);
  }

  __device__ void run_in_turn() {
    float s[32];
    std::uint32_t weights[4][4];
    Seen before[2];
    for (int base = stretch.first; base < stretch.last; base += block_positions) {
      const bool fresh = base > stretch.first && begins(base);
      issue_scores(s);
      mma_wait<0>();
      settled(s);
      if constexpr (!S::latent) release(c.ring.keys_free());
      weigh(s, base, fresh, before);
      round_weights(s, weights);
      if (base > stretch.first) prepare(before, base, fresh);
      issue_values(c.ring, weights, base > stretch.first && !fresh);
      mma_wait<0>();
      values_done(c.ring);
      c.ring.next();
    }
  }

  // The warpgroups' products take turns, so that one's softmax is beside the other's products.
  __device__ void await_turn() const { named_barrier(2 + c.warpgroup, S::consumers); }
  __device__ void pass_turn() const { named_barrier_arrive(3 - c.warpgroup, S::consumers); }

  // The next block's scores are under way beside the values' sums; weights are rounded only when
  // those are done, for registers that a product reads may not be written beside it.
  __device__ void run_ahead() {
    std::uint32_t weights[4][4];
    Seen before[2];
    bool accumulate = false;
    Ring<S> behind = c.ring;
    {
      float s[32];
      issue_scores(s);
      mma_wait<0>();
      settled(s);
      release(c.ring.keys_free());
      weigh(s, stretch.first, false, before);
      round_weights(s, weights);
    }
    c.ring.next();
    int base = stretch.first + block_positions;
    for (; base < stretch.last; base += block_positions) {
      const bool fresh = begins(base);
      float s[32];
      await_turn();
      issue_scores(s);
      issue_values(behind, weights, accumulate);
      pass_turn();
      mma_wait<1>();
      settled(s);
      release(c.ring.keys_free());
      weigh(s, base, fresh, before);
      done_before_here(rows.seen[0].total);
      done_before_here(rows.seen[1].total);
      mma_wait<0>();
      values_done(behind);
      prepare(before, base, fresh);
      round_weights(s, weights);
      accumulate = !fresh;
      behind = c.ring;
      c.ring.next();
    }
    issue_values(behind, weights, accumulate);
    mma_wait<0>();
    values_done(behind);
  }

  __device__ void run() {
    if (stretch.first >= stretch.last) return;
    if constexpr (S::ahead) {
      run_ahead();
    } else {
      run_in_turn();
    }
    close(rows.seen, stretch.last - 1);
  }

  __device__ void finish() {
    if (item.chunks > 1) {
      if (arrives_last<S>(p, item, c.verdict)) join_units<S>(p, item);
    } else {
      collect(sums);
      store_tile<S>(p, sums, rows, column);
    }
  }
};

}  // namespace motley::kernels::cuda::tiles
