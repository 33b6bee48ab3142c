// Few packed rows: positions are the M = 64 side of the MMA, rows the N side of 8 to 32. Up to four
// blocks of positions at a time, so that a softmax synchronises once for all of them. Every sum has
// the order of consume.cuh with separate units.
#pragma once

#include "kernels/cuda/attention/join.cuh"

namespace motley::kernels::cuda::tiles {

// Located behind the stages in shared memory.
template <class S>
struct FewShared {
  std::uint32_t base;
  // Panels of `rows` rows, for two items.
  __device__ std::uint32_t queries(int buffer) const { return base + buffer * S::query_bytes; }
  // Softmax weights in bf16, one panel of `rows` rows per block.
  __device__ std::uint32_t weights(int block) const { return queries(2) + block * S::rows * 128; }
  // [block][warp][8][rows]: sums of the weights of two positions.
  __device__ std::uint32_t sums(int block, int warp, int place) const {
    return weights(S::blocks_together) + ((block * 4 + warp) * 8 + place) * S::rows * 4;
  }
  // [block][warp][rows]: the largest score.
  __device__ std::uint32_t largest(int block, int warp) const {
    return sums(S::blocks_together, 0, 0) + (block * 4 + warp) * S::rows * 4;
  }
};

// What the items of a block share.
template <class S>
struct FewMemory {
  Rings<S>& ring;
  FewShared<S> shared;
  int* verdict;
};

// Processes one item.
template <class S>
struct AttendFew {
  static constexpr int blocks = S::blocks_together;
  static constexpr int columns = S::rows / 4;  // packed rows of a thread
  static constexpr int panels = S::sum_panels;

  const TileParams& p;
  const Item& item;
  Rings<S>& ring;
  FewShared<S> shared;
  int buffer;  // of queries
  int* verdict;
  bool side_by_side;  // each block has at most one item
  Stretch stretch;
  int warp, place, pair;  // the thread's positions are 16 warp + place (+ 8)
  int first_end;          // end of the positions that the item's first token attends to
  int end[columns];       // the same for the rows of each column; 0 behind the last row
  Seen seen[columns];     // of the current unit
  Seen all_seen[columns];
  float own[panels][S::rows / 2];
  float all[S::folds ? panels : 1][S::rows / 2];
  float factor[blocks][columns];

  __device__ AttendFew(const TileParams& params, const Item& own_item, const FewMemory<S>& memory,
                       int own_buffer, bool one_item_each)
      : p(params),
        item(own_item),
        ring(memory.ring),
        shared(memory.shared),
        buffer(own_buffer),
        verdict(memory.verdict),
        side_by_side(one_item_each),
        stretch(stretch_of<S>(item, item.chunk)) {
    const int t = static_cast<int>(threadIdx.x);
    warp = __shfl_sync(0xFFFFFFFF, t / 32, 0);
    place = t % 32 / 4;
    pair = t % 4;
    first_end = position_of(p, item, item.row) + 1;
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      seen[c] = {-INFINITY, 0.0F};
      const int packed = packed_of(c);
      all_seen[c] = seen_at_first(p, head_of(packed, token_of(p, packed)));
      end[c] = packed < item.rows ? position_of(p, item, packed) + 1 : 0;
    }
#pragma unroll
    for (int h = 0; h < panels; ++h) {
#pragma unroll
      for (int i = 0; i < S::rows / 2; ++i) own[h][i] = all[S::folds ? h : 0][i] = 0;
    }
  }

  // Column c of the thread: accumulators 4 (c / 2) + c % 2 and that + 2.
  __device__ int row_of(int c) const { return 8 * (c / 2) + 2 * pair + c % 2; }
  __device__ int packed_of(int c) const { return item.row + row_of(c); }
  __device__ int head_of(int packed, int token) const {
    const int head = item.kv_head * p.group + packed - token * p.group;
    return packed < item.rows ? head : 0;
  }

  // s[b] = k . q for the first `count` blocks; scores of the others are -infinity.
  __device__ void score(float (&s)[blocks][S::rows / 2], int count) {
    const std::uint32_t q = descriptor_low(shared.queries(buffer));
    auto ahead = ring.keys;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      if (b >= count) break;
      bar_wait(ahead.full(), ahead.parity);
      const std::uint32_t k = descriptor_low(ahead.block());
      mma_fence();
#pragma unroll
      for (int i = 0; i < S::key_width / 16; ++i)
        Mma<S::rows>::template ss<swizzle_128>(s[b], k + i / 4 * (S::panel_bytes >> 4) + i % 4 * 2,
                                               q + i / 4 * (S::rows * 128 >> 4) + i % 4 * 2, i > 0);
      mma_commit();
      if constexpr (S::scores_apart) {
        mma_wait<0>();
        settled(s[b]);
      }
      ahead.next();
    }
    mma_wait<0>();
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      settled(s[b]);
      if (b < count) {
        if constexpr (!S::latent) ring.keys.pass_on();
        continue;
      }
#pragma unroll
      for (float& score : s[b]) score = -INFINITY;
    }
  }

  __device__ void hide(float (&s)[S::rows / 2], int base) {
    const int own = base + 16 * warp + place;
#pragma unroll
    for (int i = 0; i < S::rows / 2; ++i) {
      const int c = 2 * (i / 4) + i % 2;
      // distance to the row's end, this position included
      const int behind = end[c] - own - 8 * (i / 2 % 2);
      if (behind <= 0 || (p.window > 0 && behind > p.window)) s[i] = -INFINITY;
    }
  }

  // Computes softmax weights from scores, into shared memory. `factor` rescales the sums before
  // each block.
  __device__ void soften(float (&s)[blocks][S::rows / 2]) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int c = 0; c < columns; c += 2) {
        const int i = 2 * c;
        float2 largest = make_float2(fmaxf(s[b][i], s[b][i + 2]), fmaxf(s[b][i + 1], s[b][i + 3]));
#pragma unroll
        for (int d = 4; d < 32; d *= 2) {
          largest.x = fmaxf(largest.x, __shfl_xor_sync(0xFFFFFFFF, largest.x, d));
          largest.y = fmaxf(largest.y, __shfl_xor_sync(0xFFFFFFFF, largest.y, d));
        }
        if (place == 0)
          store_shared_8(shared.largest(b, warp) + row_of(c) * 4, largest.x, largest.y);
      }
    }
    consumers_meet<S>();
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int c = 0; c < columns; c += 2) {
        float2 largest = load_shared_8(shared.largest(b, 0) + row_of(c) * 4);
#pragma unroll
        for (int w = 1; w < 4; ++w) {
          const float2 other = load_shared_8(shared.largest(b, w) + row_of(c) * 4);
          largest = make_float2(fmaxf(largest.x, other.x), fmaxf(largest.y, other.y));
        }
        const int i = 2 * c;
        const float2 sum =
            make_float2(weigh(s[b], b, c, i, largest.x), weigh(s[b], b, c + 1, i + 1, largest.y));
        store_shared_8(shared.sums(b, warp, place) + row_of(c) * 4, sum.x, sum.y);
      }
    }
    // Two columns of eight rows at a time, [block][eight].
    constexpr int vec8s = S::rows / 8;
#pragma unroll
    for (int u = 0; u < blocks * vec8s; u += 2) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int own = u + lane / 16;
      const std::uint32_t to = shared.weights(own / vec8s) +
                               swizzled(own % vec8s * 8 + lane % 8, 2 * warp + lane / 8 % 2, 128);
      const auto two = [&](int which, int row) {
        const float* const from = s[which / vec8s] + 4 * (which % vec8s) + 2 * row;
        return pack(from[0], from[1]);
      };
      store_matrix_x4_trans(to, {two(u, 0), two(u, 1), two(u + 1, 0), two(u + 1, 1)});
    }
    fence_async_shared();
    consumers_meet<S>();
  }

  // Computes the weights of column c, accumulators i and i + 2, and returns their sum.
  __device__ float weigh(float (&s)[S::rows / 2], int b, int c, int i, float raw) {
    const float largest = fmaxf(seen[c].largest, __fmul_rn(raw, p.scale));
    const float least = largest == -INFINITY ? 0.0F : largest;
    factor[b][c] = power_of_two(seen[c].largest - least);
    seen[c].largest = largest;
    s[i] = power_of_two(__fmaf_rn(s[i], p.scale, -least));
    s[i + 2] = power_of_two(__fmaf_rn(s[i + 2], p.scale, -least));
    return __fadd_rn(s[i], s[i + 2]);
  }

  __device__ void add_totals(int count) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      if (b >= count) break;
#pragma unroll
      for (int c = 0; c < columns; c += 2) {
        float2 w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = load_shared_8(shared.sums(b, i, place) + row_of(c) * 4);
        const float x = __fadd_rn(__fadd_rn(w[0].x, w[1].x), __fadd_rn(w[2].x, w[3].x));
        const float y = __fadd_rn(__fadd_rn(w[0].y, w[1].y), __fadd_rn(w[2].y, w[3].y));
        seen[c].total =
            __fmaf_rn(seen[c].total, factor[b][c], __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFF, x, 4)));
        seen[c + 1].total = __fmaf_rn(seen[c + 1].total, factor[b][c + 1],
                                      __fadd_rn(y, __shfl_xor_sync(0xFFFFFFFF, y, 4)));
      }
    }
  }

  // own (+)= v^T . weights, block by block.
  __device__ void add_values(int count, bool first) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      if (b >= count) break;
      const bool accumulate = !first || b > 0;
      if (accumulate) scale_own(b);
      if constexpr (!S::latent) {
        bar_wait(ring.values.full(), ring.values.parity);
      }
      const std::uint32_t v = transposed_descriptor_low(
          S::latent ? ring.keys.block() : ring.values.block(), S::panel_bytes);
      const std::uint32_t w = descriptor_low(shared.weights(b));
      mma_fence();
#pragma unroll
      for (int h = 0; h < panels; ++h) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          Mma<S::rows>::template ss<swizzle_128, 1>(own[h],
                                                    v + h * (S::panel_bytes >> 4) + k * (2048 >> 4),
                                                    w + 2 * k, accumulate || k > 0);
      }
      mma_commit();
      mma_wait<0>();
#pragma unroll
      for (int h = 0; h < panels; ++h) settled(own[h]);
      if constexpr (S::latent) {
        ring.keys.pass_on();
      } else {
        ring.values.pass_on();
      }
    }
  }

  __device__ void scale_own(int b) {
    bool moved = false;
#pragma unroll
    for (int c = 0; c < columns; ++c) moved = moved || factor[b][c] != 1.0F;
    if (!__any_sync(0xFFFFFFFF, moved)) return;
#pragma unroll
    for (int h = 0; h < panels; ++h) {
#pragma unroll
      for (int i = 0; i < S::rows / 2; ++i)
        own[h][i] = __fmul_rn(own[h][i], factor[b][2 * (i / 4) + i % 2]);
    }
  }

  // Ends a unit, whose last position is `position`.
  __device__ void close(int position) {
    const bool cut = item.chunks > 1;
    float* const to = p.partials + (cut ? slot_of<S>(item, position) * partial_size<S>(p) : 0);
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      float total = seen[c].total;
      total = __fadd_rn(total, __shfl_xor_sync(0xFFFFFFFF, total, 8));
      total = __fadd_rn(total, __shfl_xor_sync(0xFFFFFFFF, total, 16));
      if (cut) {
        if (packed_of(c) < item.rows) export_column(to, c, total);
      } else {
        const Join factors = join(all_seen[c], {seen[c].largest, total});
#pragma unroll
        for (int h = 0; h < panels; ++h) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int i = 4 * (c / 2) + c % 2 + 2 * r;
            if constexpr (S::folds) {
              all[h][i] = joined(all[h][i], own[h][i], factors);
            } else {
              own[h][i] = joined(0.0F, own[h][i], factors);
            }
          }
        }
      }
      seen[c] = {-INFINITY, 0.0F};
    }
  }

  __device__ int value_column(int half, int r) const {
    return 64 * half + 16 * warp + place + 8 * r;
  }

  __device__ void export_column(float* to, int c, float total) {
    const int row = row_of(c);
#pragma unroll
    for (int h = 0; h < panels; ++h) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        to[row * S::value_width + value_column(h, r)] = own[h][4 * (c / 2) + c % 2 + 2 * r];
    }
    if (warp == 0 && place == 0)
      *reinterpret_cast<float2*>(to + p.partial_rows * S::value_width + 2 * row) =
          make_float2(seen[c].largest, total);
  }

  __device__ void run() {
    constexpr int together = blocks * S::block;
    bool first = true;  // of a unit
    for (int base = stretch.first; base < stretch.last;) {
      const int end = min((base & ~(together - 1)) + together, stretch.last);
      const int count = (end - base + S::block - 1) / S::block;
      float s[blocks][S::rows / 2];
      score(s, count);
      if (base + count * S::block > first_end || (p.window > 0 && base < item.end - p.window)) {
#pragma unroll
        for (int b = 0; b < blocks; ++b) hide(s[b], base + b * S::block);
      }
      soften(s);
      add_values(count, first);
      add_totals(count);
      base += count * S::block;
      first = base >= stretch.last || (S::folds && unit_begin(base) == base);
      if (first) close(min(base, stretch.last) - 1);
    }
  }

  __device__ void finish() {
    if (item.chunks > 1) {
      if (!S::folds && side_by_side) {
        chunks_meet<S>(p, item);
        join_units<S>(p, item, item.chunk, item.chunks);
        chunks_part<S>(p, item);
      } else if (arrives_last<S>(p, item, verdict)) {
        join_units<S>(p, item);
      }
      return;
    }
    if constexpr (S::gates)
      if (p.gates.data != nullptr) gate();
    store();
  }

  // Number i of a panel.
  __device__ float& sum(int h, int i) { return S::folds ? all[S::folds ? h : 0][i] : own[h][i]; }

  __device__ void gate() {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const int packed = packed_of(c);
      if (packed >= item.rows) continue;
      const int token = token_of(p, packed);
      const float* const gates = gates_of(p.gates, item.first_row + token, head_of(packed, token));
#pragma unroll
      for (int h = 0; h < panels; ++h) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float& at = sum(h, 4 * (c / 2) + c % 2 + 2 * r);
          at = gated(__ldg(gates + value_column(h, r)), at);
        }
      }
    }
  }

  __device__ void store() {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const int packed = packed_of(c);
      if (packed >= item.rows) continue;
      const int token = token_of(p, packed);
      const std::int64_t at =
          (item.first_row + token) * p.out_stride + head_of(packed, token) * p.out_head_stride;
      const float inverse = final_factor<S>(p, all_seen[c].total);
#pragma unroll
      for (int h = 0; h < panels; ++h) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float value = __fmul_rn(sum(h, 4 * (c / 2) + c % 2 + 2 * r), inverse);
          const std::int64_t to = at + value_column(h, r);
          if (p.out_f32) {
            static_cast<float*>(p.out)[to] = value;
          } else {
            static_cast<Bf16*>(p.out)[to] = __float2bfloat16_rn(value);
          }
        }
      }
    }
  }
};

}  // namespace motley::kernels::cuda::tiles
