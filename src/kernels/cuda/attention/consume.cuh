// A consumer warpgroup's work on a tile: scores, softmax, sums of values, and the results.
#pragma once

#include "kernels/cuda/attention/join.cuh"

namespace motley::kernels::cuda::tiles {

template <class S>
struct Consumer {
  Rings<S> ring;
  std::uint32_t queries;       // this warpgroup's 64 rows
  std::uint32_t queries_free;  // a barrier, if another warp loads them
  int warpgroup;
  int* verdict;  // in shared memory: whether this was the tile's last chunk
};

// s = q . k for a block's positions, or its first ones. The caller commits.
template <class S, int count>
__device__ inline void score(float (&s)[count], std::uint32_t queries, std::uint32_t keys) {
  const std::uint32_t q = descriptor_low(queries);
  const std::uint32_t k = descriptor_low(keys);
  mma_fence();
#pragma unroll
  for (int i = 0; i < S::key_width / 16; ++i) {
    const int at = i % 4 * 2;
    Mma<2 * count>::template ss<swizzle_128>(s, q + i / 4 * (query_panel_bytes >> 4) + at,
                                             k + i / 4 * (S::panel_bytes >> 4) + at, i > 0);
  }
}

// sums (+)= weights . v
template <class S, int count>
__device__ inline void add_values(float (&sums)[S::own_values / 2],
                                  const std::uint32_t (&weights)[count][4], std::uint32_t values,
                                  bool accumulate) {
  const std::uint32_t v = transposed_descriptor_low(values, S::panel_bytes);
  mma_fence();
#pragma unroll
  for (int k = 0; k < count; ++k)
    Mma<S::own_values>::template rs<swizzle_128, 1>(sums, weights[k], v + k * (2048 >> 4),
                                                    accumulate || k > 0);
}

template <class S>
struct Sums {
  float own[S::own_values / 2];                 // of the current unit
  float all[S::folds ? S::own_values / 2 : 1];  // of all units before
  Seen seen[2];
};

// The factors that join the current unit to those before it.
template <class S>
__device__ inline void join_rows(Sums<S>& sums, const Seen (&unit)[2], Join (&factors)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
    factors[r] = join(sums.seen[r], {unit[r].largest, over_quad(unit[r].total)});
}
template <class S>
__device__ inline void fold(Sums<S>& sums, const Join (&factors)[2]) {
#pragma unroll
  for (int i = 0; i < S::own_values / 2; ++i) {
    const Join& own = factors[i / 2 % 2];
    if constexpr (S::folds) {
      sums.all[i] = joined(sums.all[i], sums.own[i], own);
    } else {
      sums.own[i] = joined(0.0F, sums.own[i], own);
    }
  }
}

// Call before the first unit.
template <class S>
__device__ inline void clear(Sums<S>& sums) {
#pragma unroll
  for (float& sum : sums.own) sum = 0;
#pragma unroll
  for (float& sum : sums.all) sum = 0;
}

// Call after the last unit: moves the sums of all units to `own`.
template <class S>
__device__ inline void collect(Sums<S>& sums) {
  if constexpr (S::folds) {
#pragma unroll
    for (int i = 0; i < S::own_values / 2; ++i) sums.own[i] = sums.all[i];
  }
}

// A thread's first place in a slot of the partial results.
struct PartialPlace {
  int slot;
  int row, column;
};

// Stores the current unit for the tile's last chunk.
template <class S>
__device__ inline void export_unit(const TileParams& p, const Sums<S>& sums, const ThreadRows& rows,
                                   const Seen (&unit)[2], const PartialPlace& place) {
  float* const to = p.partials + place.slot * partial_size<S>(p);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = over_quad(unit[r].total);
    if (rows.row[r] < 0) continue;
    const int row = place.row + 8 * r;
    float* const out = to + row * S::value_width + place.column;
#pragma unroll
    for (int i = 0; i < S::own_values / 8; ++i)
      *reinterpret_cast<float2*>(out + 8 * i) =
          make_float2(sums.own[4 * i + 2 * r], sums.own[4 * i + 2 * r + 1]);
    if (place.column == 0)
      *reinterpret_cast<float2*>(to + p.partial_rows * S::value_width + 2 * row) =
          make_float2(unit[r].largest, total);
  }
}

// Four lanes hold two columns each of four neighbouring 8-column blocks. Afterwards each lane holds
// the eight columns of one block.
__device__ inline uint4 gather_columns(const std::uint32_t (&w)[4]) {
  const bool odd = thread_here() % 2 == 1;
  const bool high = thread_here() / 2 % 2 == 1;
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
__device__ inline void gate_tile(const TileParams& p, Sums<S>& sums, const ThreadRows& rows,
                                 int column) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows.row[r] < 0) continue;
    const float* const gates = gates_of(p.gates, rows.row[r], rows.head[r]) + column;
#pragma unroll
    for (int i = 0; i < S::own_values / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& sum = sums.own[4 * i + 2 * r + j];
        sum = gated(__ldg(gates + 8 * i + j), sum);
      }
    }
  }
}

template <class S>
__device__ inline void store_tile(const TileParams& p, const Sums<S>& sums, const ThreadRows& rows,
                                  int column) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float factor = final_factor<S>(p, sums.seen[r].total);
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
    const int own = thread_here() % 4;
    Bf16* const out = static_cast<Bf16*>(p.out) + rows.row[r] * p.out_stride +
                      rows.head[r] * p.out_head_stride + column - 2 * own + 8 * own;
#pragma unroll
    for (int i = 0; i < S::own_values / 8; i += 4) {
      const std::uint32_t words[4] = {
          pack(value(i, 0), value(i, 1)), pack(value(i + 1, 0), value(i + 1, 1)),
          pack(value(i + 2, 0), value(i + 2, 1)), pack(value(i + 3, 0), value(i + 3, 1))};
      const uint4 vec8 = gather_columns(words);
      if (rows.row[r] >= 0) *reinterpret_cast<uint4*>(out + 8 * i) = vec8;
    }
  }
}

// Processes one item. Its queries are already in shared memory.
template <class S>
struct Attend {
  template <int positions>
  using Scores = float[positions / 2];
  template <int positions>
  using Weights = std::uint32_t[positions / 16][4];

  const TileParams& p;
  const Item& item;
  Consumer<S>& c;
  Stretch stretch;
  int all_below;  // every row sees positions [all_from, all_below)
  int all_from;
  ThreadRows rows;
  Sums<S> sums;
  float factor[2];

  __device__ Attend(const TileParams& params, const Item& own_item, Consumer<S>& consumer)
      : p(params), item(own_item), c(consumer), stretch(stretch_of<S>(item, item.chunk)) {}

  // The thread's first row in the tile, and the column of its first sum.
  __device__ static int tile_row() {
    const int t = thread_here();
    return (S::halves ? 0 : t / 128 * 64) + t % 128 / 32 * 16 + t % 32 / 4;
  }
  __device__ static int column() {
    const int t = thread_here();
    return (S::halves ? t / 128 * S::own_values : 0) + 2 * (t % 4);
  }

  // Done after the first scores are issued, which do not depend on it.
  __device__ void begin_rows() {
    all_below = position_of(p, item, item.row) + 1;
    all_from = p.window > 0 ? item.end - p.window : 0;
    rows.begin(p, item, item.row + tile_row());
    clear(sums);
#pragma unroll
    for (int r = 0; r < 2; ++r) sums.seen[r] = seen_at_first(p, rows.head[r]);
  }

  __device__ bool begins(int base) const { return S::folds && unit_begin(base) == base; }

  template <int count>
  __device__ void issue_scores(float (&s)[count]) {
    bar_wait(c.ring.keys.full(), c.ring.keys.parity);
    score<S>(s, c.queries, c.ring.keys.block());
    mma_commit();
  }
  // After the last scores the next tile's queries may be loaded.
  template <int count>
  __device__ void scores_done(float (&s)[count], int base) {
    settled(s);
    if constexpr (S::latent) return;
    c.ring.keys.pass_on();
    if (base + S::block >= stretch.last) release(c.queries_free);
  }
  template <int count>
  __device__ void issue_values(const std::uint32_t (&weights)[count][4], bool accumulate) {
    if constexpr (!S::latent) bar_wait(c.ring.values.full(), c.ring.values.parity);
    std::uint32_t values = S::latent ? c.ring.keys.block() : c.ring.values.block();
    if constexpr (S::halves) {
      static_assert(S::own_values % 64 == 0, "each warpgroup has whole panels of values");
      values += c.warpgroup * (S::own_values / 64) * S::panel_bytes;
    }
    add_values<S>(sums.own, weights, values, accumulate);
    mma_commit();
  }
  __device__ void values_done() {
    settled(sums.own);
    if constexpr (S::latent) {
      c.ring.keys.pass_on();
    } else {
      c.ring.values.pass_on();
    }
  }

  // Saves what the thread's rows have seen before this block. If the block begins a unit, they
  // start anew.
  template <int count>
  __device__ void weigh(float (&s)[count], int base, bool fresh, Seen (&before)[2]) {
    before[0] = rows.seen[0];
    before[1] = rows.seen[1];
    if (fresh) rows.restart();
    if (base + 2 * count > all_below) hide_behind(s, rows, base);
    if (base < all_from) hide_before(s, rows, base);
    soften(s, rows, p.scale, S::slack, factor);
  }

  // Ends a unit, whose last position is `position`.
  __device__ void close(const Seen (&seen)[2], const Join (&factors)[2], int position) {
    if (item.chunks > 1) {
      export_unit<S>(p, sums, rows, seen, {slot_of<S>(item, position), tile_row(), column()});
    } else {
      fold<S>(sums, factors);
    }
  }

  // Before a block's values are added: rescales the sums, or puts the finished unit away.
  __device__ void prepare(const Seen (&before)[2], int base, bool fresh) {
    if (fresh) {
      Join factors[2];
      join_rows<S>(sums, before, factors);
      return close(before, factors, base - 1);
    }
    // The largest score rarely changes, and a factor of 1 has no effect.
    if (!__any_sync(0xFFFFFFFF, factor[0] != 1.0F || factor[1] != 1.0F)) return;
#pragma unroll
    for (int i = 0; i < S::own_values / 2; ++i)
      sums.own[i] = __fmul_rn(sums.own[i], factor[i / 2 % 2]);
  }

  __device__ void run_in_turn() {
    begin_rows();
    Scores<S::block> s;
    Weights<S::block> weights;
    Seen before[2];
    for (int base = stretch.first; base < stretch.last; base += S::block) {
      const bool fresh = base > stretch.first && begins(base);
      issue_scores(s);
      mma_wait<0>();
      scores_done(s, base);
      weigh(s, base, fresh, before);
      round_weights(s, weights);
      if (base > stretch.first) prepare(before, base, fresh);
      issue_values(weights, base > stretch.first && !fresh);
      mma_wait<0>();
      values_done();
    }
    Join factors[2];
    join_rows<S>(sums, rows.seen, factors);
    close(rows.seen, factors, stretch.last - 1);
  }

  // The warpgroups alternate, so that one's softmax overlaps with the other's products.
  __device__ void await_turn() const { named_barrier(2 + c.warpgroup, S::consumers); }
  __device__ void pass_turn() const { named_barrier_arrive(3 - c.warpgroup, S::consumers); }

  template <int positions>
  __device__ void first_block(Weights<positions>& weights) {
    Scores<positions> s;
    Seen before[2];
    issue_scores(s);
    begin_rows();
    mma_wait<0>();
    scores_done(s, stretch.first);
    weigh(s, stretch.first, false, before);
    round_weights(s, weights);
  }
  // A block's scores are computed during the sums of the previous block's values. Weights are
  // converted to bf16 only after those sums, because registers that a running product reads must
  // not be written.
  template <int positions_before, int positions>
  __device__ void next_block(const Weights<positions_before>& weights_before,
                             Weights<positions>& weights, int base, bool fresh, bool accumulate) {
    Scores<positions> s;
    Seen before[2];
    await_turn();
    issue_scores(s);
    issue_values(weights_before, accumulate);
    pass_turn();
    mma_wait<1>();
    scores_done(s, base);
    weigh(s, base, fresh, before);
    done_before_here(rows.seen[0].total);
    done_before_here(rows.seen[1].total);
    mma_wait<0>();
    values_done();
    prepare(before, base, fresh);
    round_weights(s, weights);
  }
  template <int positions>
  __device__ void last_values(const Weights<positions>& weights, bool accumulate) {
    issue_values(weights, accumulate);
    Join factors[2];
    join_rows<S>(sums, rows.seen, factors);
    mma_wait<0>();
    values_done();
    close(rows.seen, factors, stretch.last - 1);
  }

  __device__ void run_ahead() {
    constexpr int half = 64;
    const int last_block = (stretch.last - 1) & -S::block;
    const bool halved = S::block > half && stretch.last - last_block <= half;
    if (halved && stretch.first == last_block) {
      Weights<half> weights;
      first_block<half>(weights);
      return last_values<half>(weights, false);
    }
    Weights<S::block> weights;
    first_block<S::block>(weights);
    bool accumulate = false;
    const int whole = halved ? last_block : stretch.last;
    for (int base = stretch.first + S::block; base < whole; base += S::block) {
      const bool fresh = begins(base);
      next_block<S::block, S::block>(weights, weights, base, fresh, accumulate);
      accumulate = !fresh;
    }
    if (!halved) return last_values<S::block>(weights, accumulate);
    Weights<half> rest;
    next_block<S::block, half>(weights, rest, last_block, false, accumulate);
    last_values<half>(rest, true);
  }

  __device__ void run() {
    if (stretch.first >= stretch.last) {
      if constexpr (S::query_warp) release(c.queries_free);
      return;
    }
    if constexpr (S::ahead) {
      run_ahead();
    } else {
      run_in_turn();
    }
  }

  __device__ void finish() {
    if (item.chunks > 1) {
      if (arrives_last<S>(p, item, c.verdict)) join_units<S>(p, item);
    } else {
      collect(sums);
      if constexpr (S::gates)
        if (p.gates.data != nullptr) gate_tile<S>(p, sums, rows, column());
      store_tile<S>(p, sums, rows, column());
    }
  }
};

}  // namespace motley::kernels::cuda::tiles
