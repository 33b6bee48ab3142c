// Steps of many rows. A warp holds sixteen columns of a state for half of its keys; pairs of helper
// warps load and relate the pages ahead, each pair for one stage of a ring.
#pragma once

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrence/fast_page.cuh"

namespace motley::kernels::cuda::fast {

template <int of_columns>
struct Prompt {
  static constexpr int groups = of_columns;  // two warps each
  static constexpr int pairs = 4;            // of helpers, and stages
  static constexpr int warps = 2 * groups;
  static constexpr int threads = (warps + 2 * pairs) * 32;
  static constexpr int columns = groups * warp_columns;
  static constexpr int parts = width / columns;
  static constexpr int value_pitch = columns + 4;

  // Every lane arrives for itself.
  struct Barriers {
    std::uint64_t full[pairs];    // a stage holds a page
    std::uint64_t empty[pairs];   // its page has been read
    std::uint64_t loaded[pairs];  // by both warps of a pair
    std::uint64_t keys[groups];   // both halves have written their sums with keys
    std::uint64_t queries[groups];
  };
  struct Shared {
    Stage stage[pairs];
    RelateScratch scratch[pairs];
    float values[pairs][page_rows][value_pitch];
    // What the warps of two halves give each other, alternating: sums with keys, and with the
    // queries of the other one's rows.
    float4 sums[2][groups][2][3][32];
    Barriers barriers;
  };
};

// Two warps meet.
__device__ inline void meet(std::uint64_t& bar, std::uint32_t parity) {
  bar_arrive(smem_addr(&bar));
  bar_wait(smem_addr(&bar), parity);
}

// Values of a page's new rows, in the block's columns.
template <class Form>
__device__ inline void load_values(const Head& at, const Page& page, int first_column,
                                   float (&values)[page_rows][Form::value_pitch], int thread) {
  constexpr int chunks = Form::columns / 4;
  constexpr int rows_at_once = 64 / chunks;
  const int column = thread % chunks * 4;
  const float* const from = at.value(page.first) + first_column + column;
#pragma unroll
  for (int n = 0; n < page_rows / rows_at_once; ++n) {
    const int t = thread / chunks + n * rows_at_once;
    if (t >= page.old && t < page.rows)
      copy_16(smem_addr(&values[t][column]), from + t * at.p.v_stride);
  }
}

// A pair's pages. The rows of its next page are on their way while it relates one; values are
// copied, and arrive by themselves.
template <class Form>
__device__ inline void help_pages(const Head& at, int pages, int first_column,
                                  typename Form::Shared& shared, int pair, int warp, int lane) {
  Stage& stage = shared.stage[pair];
  auto& barriers = shared.barriers;
  const int thread = warp * 32 + lane;
  if (pair >= pages) return;
  FetchedRows<64> rows;
  rows.fetch(at, Page(at.s, pair), thread);
  std::uint32_t parity = 0;
  for (int i = pair; i < pages; i += Form::pairs, parity ^= 1) {
    const Page page(at.s, i);
    if (i != pair) bar_wait(smem_addr(&barriers.empty[pair]), parity ^ 1);
    load_values<Form>(at, page, first_column, shared.values[pair], thread);
    bar_arrive_after_copies(smem_addr(&barriers.full[pair]));
    if (page.old > 0) {
      load_log<64>(at, page, stage, thread);
      copies_commit();
      copies_wait<0>();
    }
    rows.store(page, stage, thread);
    meet(barriers.loaded[pair], parity);
    if (i + Form::pairs < pages) rows.fetch(at, Page(at.s, i + Form::pairs), thread);
    relate(page, stage, shared.scratch[pair], warp, lane);
    bar_arrive(smem_addr(&barriers.full[pair]));
  }
}

using HalfState = State<all_tiles / 2>;

// Two tiles of eight rows times half of the keys: sums of high and of low parts, as
// State::multiply makes them.
__device__ inline void multiply_half(const Parts (&a)[4][4],
                                     const Bf16 (&rows)[page_rows][key_pitch], int half, int lane,
                                     float (&to)[2][4]) {
  const std::uint32_t from = columns_at(rows, lane) + half * (width / 2) * 2;
  float high[2][4] = {}, low[2][4] = {};
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    std::uint32_t b[4];
    load_matrix_x4(b, from + d * 32);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      multiply_add(high[n], a[d][0].high, a[d][1].high, a[d][2].high, a[d][3].high, b[2 * n],
                   b[2 * n + 1]);
      multiply_add(low[n], a[d][0].low, a[d][1].low, a[d][2].low, a[d][3].low, b[2 * n],
                   b[2 * n + 1]);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) to[n][e] = high[n][e] + low[n][e];
  }
}

__device__ inline float4 four(const float (&x)[4]) { return {x[0], x[1], x[2], x[3]}; }
__device__ inline void add_four(float (&to)[4], const float4& x) {
  to[0] += x.x;
  to[1] += x.y;
  to[2] += x.z;
  to[3] += x.w;
}

// What a warp of two knows where it works on a page.
template <class Form>
struct HalfWarps {
  typename Form::Shared& shared;
  int group;
  int half;
  int lane;
  int stage;
  std::uint32_t parity;  // alternates from page to page

  __device__ const float4* sums(int of_half, int number) const {
    return shared.sums[parity][group][of_half][number];
  }
  // Of the values of row t.
  __device__ float value(int t, int e) const {
    return shared.values[stage][t][group * warp_columns + lane / 4 + e / 2 * 8];
  }
  __device__ void publish(int number, const float (&x)[4]) const {
    shared.sums[parity][group][half][number][lane] = four(x);
  }
  __device__ void add_keys(float (&keys)[2][4]) const {
    bar_wait(smem_addr(&shared.barriers.keys[group]), parity);
    add_four(keys[0], sums(1 - half, 0)[lane]);
    add_four(keys[1], sums(1 - half, 1)[lane]);
  }
  // To the sums of this half's rows.
  __device__ void add_queries(float (&outs)[4]) const {
    bar_wait(smem_addr(&shared.barriers.queries[group]), parity);
    add_four(outs, sums(1 - half, 2)[lane]);
  }
};

// Calls rest(lost, updates, their operand). Seldom is anything lost: one question of all errors and
// updates says so, and `rest` is compiled for both answers.
struct NothingLost {
  static constexpr bool any = false;
  __device__ void fill(float (&)[2][4], int, float) const {}
  __device__ bool has(int, int) const { return false; }
};
template <class Solve, class Rest>
__device__ inline void solve_page(const Solve& solve, int t2, float (&errors)[2][4],
                                  const Rest& rest) {
  float updates[2][4];
  Parts by_query[4], a[4];
  operand(errors, a);
  multiply_errors(solve, a, updates, by_query);
  if (__any_sync(0xFFFFFFFFU, (lost_parts(a) | lost_parts(by_query)) != 0) == 0) {
    rest(NothingLost{}, updates, by_query);
    return;
  }
  const FirstLost lost = multiply_lost(solve, t2, errors, updates, by_query);
  rest(lost, updates, by_query);
}

// finish_page() of a page in the middle of a prompt, which is wholly new and certain: nothing of it
// is in the log. What does not wait for the other half stands where the warp would wait.
template <class Form>
__device__ inline void finish_middle(const Head& at, const Page& page, const HalfWarps<Form>& warps,
                                     int column, HalfState& state, float (&keys)[2][4],
                                     float (&outs)[4]) {
  const Stage& stage = warps.shared.stage[warps.stage];
  const int lane = warps.lane, half = warps.half, g = lane / 4, t2 = lane % 4 * 2;
  float errors[2][4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) errors[n][e] = warps.value(8 * n + t2 + e % 2, e);
  }
  const RowParts solve[2] = {load_parts(stage.solve, 0, lane), load_parts(stage.solve, 1, lane)};
  const RowParts query = load_parts(stage.query, half, lane);
  state.decay(stage);
  state.hold();
  warps.add_keys(keys);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = 8 * n + t2 + e % 2;
      errors[n][e] = stage.beta[t] * __fmaf_rn(-stage.near[t], keys[n][e], errors[n][e]);
    }
  }
  solve_page([&](int n) { return solve[n]; }, t2, errors,
             [&](const auto& lost, float(&updates)[2][4], const Parts(&by_query)[4]) {
               lost.fill(updates, t2, NAN);
               Parts by_fold[4];
               fold_operand(stage, lane, updates, by_fold);
               warps.add_queries(outs);
#pragma unroll
               for (int e = 0; e < 4; ++e) outs[e] = stage.near[8 * half + t2 + e % 2] * outs[e];
               multiply_parts(outs, by_query, query.at);
               state.add(stage, half, lane, by_fold);
#pragma unroll
               for (int e = 0; e < 4; ++e) {
                 const int t = 8 * half + t2 + e % 2;
                 at.out(page.first + t)[column + g + e / 2 * 8] =
                     lost.has(e / 2, t) ? NAN : outs[e];
               }
             });
  if (page.first + page_rows == at.s.next_anchor) state.write(at, column, half, lane);
}

template <class Form>
__global__ void __launch_bounds__(Form::threads, 1)
    recur_prompt(const __grid_constant__ Recur p, int min_rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Form::Shared*>(memory);
  auto& barriers = shared.barriers;
  launch_dependents();
  const SequenceStep s = sequence_step(p.steps, static_cast<int>(blockIdx.y));
  if (s.count < min_rows) {
    wait_for_previous_grid();
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  if (thread == 0) {
    for (int i = 0; i < Form::pairs; ++i) {
      // Both helpers, and their copies.
      bar_init(smem_addr(&barriers.full[i]), 64 + 64);
      bar_init(smem_addr(&barriers.empty[i]), Form::warps * 32);
      bar_init(smem_addr(&barriers.loaded[i]), 64);
    }
    for (int i = 0; i < Form::groups; ++i) {
      bar_init(smem_addr(&barriers.keys[i]), 64);
      bar_init(smem_addr(&barriers.queries[i]), 64);
    }
    fence_bar_init();
  }
  __syncthreads();
  const int part = static_cast<int>(blockIdx.x) % Form::parts;
  const Head at(p, s, static_cast<int>(blockIdx.x) / Form::parts);
  const int pages = pages_of(s);
  if (warp >= Form::warps) {
    wait_for_previous_grid();
    const int helper = warp - Form::warps;
    help_pages<Form>(at, pages, part * Form::columns, shared, helper / 2, helper % 2, lane);
    return;
  }

  const int group = warp / 2, half = warp % 2;
  const int column = part * Form::columns + group * warp_columns;
  State<all_tiles / 2> state;
  state.read(at, column, half, lane);
  wait_for_previous_grid();
  std::uint32_t full_parity = 0;
  for (int i = 0; i < pages; ++i) {
    const Page page(s, i);
    const int number = i % Form::pairs;
    const bool middle =
        page.old == 0 && page.rows == page_rows && page.first + page_rows <= s.next_anchor;
    Parts a[4][4];
#pragma unroll
    for (int d = 0; d < 4; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&tile)[4] = state.at[2 * d + i / 2];
        a[d][i] = split(tile[i % 2 * 2], tile[i % 2 * 2 + 1]);
      }
    }
    bar_wait(smem_addr(&barriers.full[number]), full_parity);
    if (number == Form::pairs - 1) full_parity ^= 1;
    const Stage& stage = shared.stage[number];
    const HalfWarps<Form> warps{.shared = shared,
                                .group = group,
                                .half = half,
                                .lane = lane,
                                .stage = number,
                                .parity = static_cast<std::uint32_t>(i % 2)};
    float keys[2][4], outs[2][4];
    multiply_half(a, stage.k, half, lane, keys);
    warps.publish(0, keys[0]);
    warps.publish(1, keys[1]);
    bar_arrive(smem_addr(&barriers.keys[group]));
    multiply_half(a, stage.q, half, lane, outs);
    // Each finishes eight rows: `mine` are those of this half.
    float mine[4];
    float theirs[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      mine[e] = half == 0 ? outs[0][e] : outs[1][e];
      theirs[e] = half == 0 ? outs[1][e] : outs[0][e];
    }
    warps.publish(2, theirs);
    bar_arrive(smem_addr(&barriers.queries[group]));
    if (middle) {
      finish_middle(at, page, warps, column, state, keys, mine);
    } else {
      float errors[2][4];
      read_logged(at, page, column, lane, errors);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t = 8 * n + lane % 4 * 2 + e % 2;
          if (t >= page.old && t < page.rows) errors[n][e] = warps.value(t, e);
        }
      }
      warps.add_keys(keys);
      warps.add_queries(mine);
#pragma unroll
      for (int e = 0; e < 4; ++e) (half == 0 ? outs[0][e] : outs[1][e]) = mine[e];
      finish_page(at, page, stage, column, half, lane, state, keys, outs, errors);
    }
    bar_arrive(smem_addr(&barriers.empty[number]));
  }
}

}  // namespace motley::kernels::cuda::fast
