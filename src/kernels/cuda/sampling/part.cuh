// A row of logits in the shared memory of a cluster, and sums over all threads of the cluster.
#pragma once

#include <cooperative_groups.h>
#include <cstdint>

#include "kernels/sampling_arithmetic.h"

namespace motley::kernels::sampling {
namespace {

namespace cg = cooperative_groups;

constexpr int threads = 512;
constexpr int lanes = 32;
constexpr int warps = threads / lanes;
constexpr int max_blocks = 8;  // of a cluster
constexpr int bins_per_thread = 2;
static_assert(bins_per_thread * threads == max_bins);
constexpr unsigned everyone = 0xFFFFFFFFU;

// A bin usually has few keys: then they are listed and compared instead of being counted again.
constexpr int max_listed = 64;  // of a block
static_assert(max_blocks * max_listed == threads);

// Shared memory of a block, besides its part of the row.
struct Shared {
  std::uint64_t of_warps[warps];
  std::uint64_t of_block[2];  // values that the blocks of a cluster exchange, alternating
  std::uint64_t sum_of_scan;
  std::uint32_t bins_low[max_bins];
  std::uint32_t bins_high[max_bins];
  std::uint32_t found_bin;
  std::uint64_t found_before;
  std::uint32_t found_key;
  bool found_all_ties;
  int listed;  // more than max_listed: the list is incomplete and not used
  std::uint32_t list[max_listed];
  std::uint32_t all_listed[threads];
  std::uint64_t amounts[threads];  // beside them
};
constexpr std::uint32_t no_bin = 0xFFFFFFFFU;

// A block's part of a row: numbers [begin, begin + count), padded to a multiple of four. Threads
// own vec4s of them, or one run each in the last phase.
struct Part {
  cg::cluster_group cluster;
  Shared& shared;
  float* values;  // logits first, then shares
  std::int64_t begin;
  int count;
  int thread;
  int turn = 0;

  __device__ int blocks() const { return static_cast<int>(cluster.num_blocks()); }
  __device__ int rank() const { return static_cast<int>(cluster.block_rank()); }

  // Calls f(value, place) for each number that this thread owns, in rising order.
  template <class F>
  __device__ void read(F f) const {
#pragma unroll 2
    for (int i = 4 * thread; i < count; i += 4 * threads) {
      const float4 vec4 = *reinterpret_cast<const float4*>(values + i);
      f(vec4.x, i);
      f(vec4.y, i + 1);
      f(vec4.z, i + 2);
      f(vec4.w, i + 3);
    }
  }
  // The same, and replaces the number by f's result.
  template <class F>
  __device__ void rewrite(F f) {
#pragma unroll 2
    for (int i = 4 * thread; i < count; i += 4 * threads) {
      auto* const place = reinterpret_cast<float4*>(values + i);
      const float4 vec4 = *place;
      *place = {f(vec4.x, i), f(vec4.y, i + 1), f(vec4.z, i + 2), f(vec4.w, i + 3)};
    }
  }
};

struct Largest {
  __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    return a > b ? a : b;
  }
};
struct Sum {
  __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a + b; }
};

// Publishes thread 0's number in the cluster, and folds the numbers of blocks [0, end).
template <class Fold>
__device__ std::uint64_t fold_blocks(Part& part, std::uint64_t mine, int end, Fold fold) {
  std::uint64_t* const place = &part.shared.of_block[part.turn];
  part.turn ^= 1;
  if (part.thread == 0) *place = mine;
  part.cluster.sync();
  std::uint64_t all = 0;
#pragma unroll
  for (int block = 0; block < max_blocks; ++block) {
    if (block < end)
      all = fold(all, *part.cluster.map_shared_rank(place, static_cast<unsigned>(block)));
  }
  return all;
}

template <class Fold>
__device__ std::uint64_t fold_warp(std::uint64_t mine, int width, Fold fold) {
  for (int step = width / 2; step > 0; step /= 2)
    mine = fold(mine, __shfl_xor_sync(everyone, mine, step));
  return mine;
}

// Folds over all threads of the cluster; every thread gets the result.
template <class Fold>
__device__ std::uint64_t fold_all(Part& part, std::uint64_t mine, Fold fold) {
  mine = fold_warp(mine, lanes, fold);
  if (part.thread % lanes == 0) part.shared.of_warps[part.thread / lanes] = mine;
  __syncthreads();
  if (part.thread < lanes) mine = fold_warp(part.shared.of_warps[part.thread % warps], warps, fold);
  return fold_blocks(part, mine, part.blocks(), fold);
}

// The sum over the block's threads before this one; `shared.sum_of_scan` is the sum over all.
__device__ std::uint64_t sum_before(Part& part, std::uint64_t mine) {
  const int lane = part.thread % lanes;
  const int warp = part.thread / lanes;
  std::uint64_t until = mine;
  for (int step = 1; step < lanes; step *= 2) {
    const std::uint64_t other = __shfl_up_sync(everyone, until, step);
    if (lane >= step) until += other;
  }
  __syncthreads();
  if (lane == lanes - 1) part.shared.of_warps[warp] = until;
  __syncthreads();
  std::uint64_t before = until - mine;
  std::uint64_t all = 0;
#pragma unroll
  for (int other = 0; other < warps; ++other) {
    const std::uint64_t sum = part.shared.of_warps[other];
    if (other < warp) before += sum;
    all += sum;
  }
  if (part.thread == 0) part.shared.sum_of_scan = all;
  return before;
}

// The same over the cluster's threads; in the order of ids if threads have runs.
__device__ std::uint64_t sum_before_in_cluster(Part& part, std::uint64_t mine) {
  const std::uint64_t in_block = sum_before(part, mine);
  return in_block + fold_blocks(part, part.shared.sum_of_scan, part.rank(), Sum{});
}

}  // namespace
}  // namespace motley::kernels::sampling
