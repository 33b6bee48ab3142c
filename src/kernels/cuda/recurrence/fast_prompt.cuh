// Steps of many rows. A warp holds sixteen columns of a state for half of its keys; pairs of helper
// warps load and relate the pages ahead, each pair for one stage of a ring.
#pragma once

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrence/fast_page.cuh"

namespace motley::kernels::cuda::fast {

struct Prompt {
  static constexpr int groups = 2;  // of columns, two warps each
  static constexpr int pairs = 4;   // of helpers, and stages
  static constexpr int warps = 2 * groups;
  static constexpr int threads = (warps + 2 * pairs) * 32;
  static constexpr int columns = groups * warp_columns;
  static constexpr int parts = width / columns;
  static constexpr int value_pitch = columns + 4;

  struct Barriers {
    std::uint64_t full[pairs];    // a stage holds a page
    std::uint64_t empty[pairs];   // its page has been read
    std::uint64_t loaded[pairs];  // by both warps of a pair
    std::uint64_t halves[groups];
  };
  struct Shared {
    Stage stage[pairs];
    RelateScratch scratch[pairs];
    float values[pairs][page_rows][value_pitch];
    // What the warps of two halves tell each other, alternating: sums with keys, and with the
    // queries of the other one's rows.
    float4 sums[2][groups][2][3][32];
    Barriers barriers;
  };
};

// One arrival of a warp.
__device__ inline void arrive_warp(std::uint64_t& bar, int lane) {
  __syncwarp();
  if (lane == 0) bar_arrive(smem_addr(&bar));
}
// Two warps meet.
__device__ inline void meet(std::uint64_t& bar, int lane, std::uint32_t parity) {
  arrive_warp(bar, lane);
  bar_wait(smem_addr(&bar), parity);
}

// Values of a page's new rows, in the block's columns.
__device__ inline void load_values(const Head& at, const Page& page, int first_column,
                                   float (&values)[page_rows][Prompt::value_pitch], int thread) {
  constexpr int chunks = Prompt::columns / 4;
  for (int i = thread; i < page_rows * chunks; i += 64) {
    const int t = i / chunks, column = i % chunks * 4;
    if (t >= page.old && t < page.rows)
      copy_16(smem_addr(&values[t][column]), at.value(page.first + t) + first_column + column);
  }
}

__device__ inline void help_pages(const Head& at, int pages, int first_column,
                                  Prompt::Shared& shared, int pair, int warp, int lane) {
  Stage& stage = shared.stage[pair];
  Prompt::Barriers& barriers = shared.barriers;
  std::uint32_t parity = 0;
  for (int i = pair; i < pages; i += Prompt::pairs, parity ^= 1) {
    const Page page(at.s, i);
    if (i != pair) bar_wait(smem_addr(&barriers.empty[pair]), parity ^ 1);
    const int thread = warp * 32 + lane;
    load_log<64>(at, page, stage, thread);
    load_values(at, page, first_column, shared.values[pair], thread);
    load_rows<64>(at, page, stage, thread);
    copies_commit();
    copies_wait<0>();
    meet(barriers.loaded[pair], lane, parity);
    relate(page, stage, shared.scratch[pair], warp, lane);
    arrive_warp(barriers.full[pair], lane);
  }
}

// The sums of the other half, to those of this one.
__device__ inline void exchange(float4 (&sums)[2][3][32], std::uint64_t& bar, std::uint32_t parity,
                                int half, int lane, float (&keys)[2][4], float (&outs)[2][4]) {
  const auto four = [](const float(&x)[4]) { return float4{x[0], x[1], x[2], x[3]}; };
  const auto add = [](float(&to)[4], const float4& x) {
    to[0] += x.x;
    to[1] += x.y;
    to[2] += x.z;
    to[3] += x.w;
  };
  auto& mine = sums[half];
  mine[0][lane] = four(keys[0]);
  mine[1][lane] = four(keys[1]);
  mine[2][lane] = half == 0 ? four(outs[1]) : four(outs[0]);
  meet(bar, lane, parity);
  const auto& theirs = sums[1 - half];
  add(keys[0], theirs[0][lane]);
  add(keys[1], theirs[1][lane]);
  if (half == 0) {
    add(outs[0], theirs[2][lane]);
  } else {
    add(outs[1], theirs[2][lane]);
  }
}

__global__ void __launch_bounds__(Prompt::threads, 1)
    recur_prompt(const __grid_constant__ Recur p, int min_rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Prompt::Shared*>(memory);
  Prompt::Barriers& barriers = shared.barriers;
  launch_dependents();
  const SequenceStep s = sequence_step(p.steps, static_cast<int>(blockIdx.y));
  if (s.count < min_rows) {
    wait_for_previous_grid();
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  if (thread == 0) {
    for (int i = 0; i < Prompt::pairs; ++i) {
      bar_init(smem_addr(&barriers.full[i]), 2);
      bar_init(smem_addr(&barriers.empty[i]), Prompt::warps);
      bar_init(smem_addr(&barriers.loaded[i]), 2);
    }
    for (std::uint64_t& bar : barriers.halves) bar_init(smem_addr(&bar), 2);
    fence_bar_init();
  }
  __syncthreads();
  const int part = static_cast<int>(blockIdx.x) % Prompt::parts;
  const Head at(p, s, static_cast<int>(blockIdx.x) / Prompt::parts);
  const int pages = pages_of(s);
  if (warp >= Prompt::warps) {
    wait_for_previous_grid();
    const int helper = warp - Prompt::warps;
    help_pages(at, pages, part * Prompt::columns, shared, helper / 2, helper % 2, lane);
    return;
  }

  const int group = warp / 2, half = warp % 2;
  const int column = part * Prompt::columns + group * warp_columns;
  State<all_tiles / 2> state;
  state.read(at, column, half, lane);
  wait_for_previous_grid();
  std::uint32_t full_parity = 0;
  for (int i = 0; i < pages; ++i) {
    const Page page(s, i);
    const int number = i % Prompt::pairs;
    const bool middle =
        page.old == 0 && page.rows == page_rows && page.first + page_rows <= s.next_anchor;
    float errors[2][4] = {};
    if (!middle) read_logged(at, page, column, lane, errors);
    bar_wait(smem_addr(&barriers.full[number]), full_parity);
    if (number == Prompt::pairs - 1) full_parity ^= 1;
    const Stage& stage = shared.stage[number];
    float keys[2][4], outs[2][4];
    state.multiply<2>(stage, half, 0, lane, keys, outs);
    exchange(shared.sums[i % 2][group], barriers.halves[group], static_cast<std::uint32_t>(i % 2),
             half, lane, keys, outs);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = 8 * n + lane % 4 * 2 + e % 2;
        if (middle || (t >= page.old && t < page.rows))
          errors[n][e] = shared.values[number][t][group * warp_columns + lane / 4 + e / 2 * 8];
      }
    }
    if (middle) {
      finish_page<true>(at, page, stage, column, half, lane, state, keys, outs, errors);
    } else {
      finish_page<false>(at, page, stage, column, half, lane, state, keys, outs, errors);
    }
    arrive_warp(barriers.empty[number], lane);
  }
}

}  // namespace motley::kernels::cuda::fast
