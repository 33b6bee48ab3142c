// Steps of a few rows: a block holds its warps' columns of a state, and its warps relate the page
// themselves, or two more do it meanwhile.
#pragma once

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrence/fast_page.cuh"

namespace motley::kernels::cuda::fast {

template <int warp_groups, int warps_at_once, bool with_helpers = false>
struct Decode {
  static constexpr int groups = warp_groups;  // of columns, a warp each
  static constexpr bool helped = with_helpers;
  static constexpr int threads = (groups + (helped ? 2 : 0)) * 32;
  static constexpr int parts = width / (warp_columns * groups);  // of a head
  // On a multiprocessor, which has 64 Ki registers.
  static constexpr int blocks = warps_at_once * 32 / threads;
  // Errors of old rows, then values of new ones.
  using Errors = float[page_rows][warp_columns * groups + 4];
};

// Begin to copy a warp's columns of a page's errors and values; `columns` is where they stand in
// the block's.
template <class Errors>
__device__ inline void load_errors(const Head& at, const Page& page, int column, int columns,
                                   int lane, Errors& errors) {
  for (int i = lane; i < page.old * 4; i += 32)
    copy_16(smem_addr(&errors[i / 4][columns + i % 4 * 4]),
            at.logged_error(page.first + i / 4) + column + i % 4 * 4);
}
template <class Errors>
__device__ inline void load_values(const Head& at, const Page& page, int column, int columns,
                                   int lane, Errors& errors) {
  for (int i = page.old * 4 + lane; i < page.rows * 4; i += 32)
    copy_16(smem_addr(&errors[i / 4][columns + i % 4 * 4]),
            at.value(page.first + i / 4) + column + i % 4 * 4);
}

// What the log keeps of a page's new rows, by one block of each head.
template <int threads>
__device__ inline void store_page(const Head& at, const Page& page, const Stage& stage,
                                  int thread) {
  constexpr int chunks = width / 8;
  const int from = max(page.old, at.s.next_anchor - page.first);
  if (at.stores_keys()) {
    for (int i = from * chunks + thread; i < page.rows * chunks; i += threads) {
      const int t = i / chunks, column = i % chunks * 8;
      *reinterpret_cast<uint4*>(at.logged_key(page.first + t) + column) =
          *reinterpret_cast<const uint4*>(&stage.k[t][column]);
    }
  }
  if (thread >= from && thread < page.rows) {
    *at.logged_decay(page.first + thread) = stage.g[thread];
    *at.logged_beta(page.first + thread) = stage.beta[thread];
  }
}

template <class Form>
__global__ void __launch_bounds__(Form::threads, Form::blocks)
    recur_decode(const __grid_constant__ Recur p, int max_rows) {
  constexpr int threads = Form::threads, groups = Form::groups;
  constexpr bool helped = Form::helped;
  __shared__ __align__(16) Stage stage;
  __shared__ __align__(16) RelateScratch scratch;
  __shared__ __align__(16) typename Form::Errors all_errors;
  launch_dependents();
  // Earlier steps have written the states and the log, and the step's arrays are as old.
  const SequenceStep s = sequence_step(p.steps, static_cast<int>(blockIdx.y));
  if (s.count <= 0 || s.count > max_rows) {
    wait_for_previous_grid();
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int part = static_cast<int>(blockIdx.x) % Form::parts;
  const Head at(p, s, static_cast<int>(blockIdx.x) / Form::parts);
  const bool holds = warp < groups;
  const int columns = warp * warp_columns;  // of the block's
  const int column = part * groups * warp_columns + columns;
  const int relates = helped ? warp - groups : warp;
  const int pages = pages_of(s);
  Page page(s, 0);
  State<all_tiles> state;
  if (holds) {
    state.read(at, column, 0, lane);
    load_errors(at, page, column, columns, lane, all_errors);
  }
  load_log<threads>(at, page, stage, thread);
  wait_for_previous_grid();
  for (int i = 0;;) {
    if (holds) load_values(at, page, column, columns, lane, all_errors);
    FetchedRows<threads> rows;
    rows.fetch(at, page, thread);
    rows.store(page, stage, thread);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    if (relates >= 0 && relates < 2) relate(page, stage, scratch, relates, lane);
    float keys[2][4] = {}, outs[2][4] = {};
    if (holds) {
      // Seldom both tiles of eight rows have new ones; there are registers for one at a time.
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        if (page.old < 8 * n + 8 && page.rows > 8 * n)
          state.template multiply<1>(stage, 0, n, lane, &keys[n], &outs[n]);
      }
    }
    __syncthreads();
    if (holds) {
      float errors[2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t = 8 * n + lane % 4 * 2 + e % 2;
          errors[n][e] = t < page.rows ? all_errors[t][columns + lane / 4 + e / 2 * 8] : 0.0F;
        }
      }
      finish_page(at, page, stage, column, 0, lane, state, keys, outs, errors);
    }
    if (part == 0 && max_rows <= most_short_rows) store_page<threads>(at, page, stage, thread);
    if (++i == pages) break;
    page = Page(s, i);
    __syncthreads();
    if (holds) load_errors(at, page, column, columns, lane, all_errors);
    load_log<threads>(at, page, stage, thread);
  }
}

}  // namespace motley::kernels::cuda::fast
