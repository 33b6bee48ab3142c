// Finds the cut of a row's tokens, ordered by falling share, without sorting them.
#pragma once

#include "kernels/cuda/sampling/part.cuh"

namespace motley::kernels::sampling {
namespace {

__device__ void add_to_bin(Shared& shared, std::uint32_t bin, std::uint64_t amount) {
  const auto low = static_cast<std::uint32_t>(amount);
  const std::uint32_t old = atomicAdd(&shared.bins_low[bin], low);
  const std::uint32_t high = static_cast<std::uint32_t>(amount >> 32) + (old + low < old ? 1U : 0U);
  if (high > 0) atomicAdd(&shared.bins_high[bin], high);
}

// The bin of a range at which the sum over greater bins, and over `before`, reaches `wanted`. Every
// block gets it in its `shared`.
__device__ void find_bin(Part& part, Amount amount, const KeyRange& range, std::uint64_t before,
                         std::uint64_t wanted) {
  Shared& shared = part.shared;
  for (int bin = part.thread; bin < static_cast<int>(max_bins); bin += threads) {
    shared.bins_low[bin] = 0;
    shared.bins_high[bin] = 0;
  }
  if (part.thread == 0) shared.found_bin = no_bin;
  __syncthreads();
  // Consecutive keys in one bin are added together: many equal keys would serialise otherwise.
  std::uint32_t held_bin = no_bin;
  std::uint64_t held = 0;
  part.read([&](float share, int) {
    const std::uint32_t key = key_of(share);
    if (!range.holds(key)) return;
    const std::uint32_t bin = range.bin_of(key);
    if (bin != held_bin) {
      if (held > 0) add_to_bin(shared, held_bin, held);
      held_bin = bin;
      held = 0;
    }
    held += amount_of(share, amount);
  });
  if (held > 0) add_to_bin(shared, held_bin, held);
  part.cluster.sync();

  // From the highest bin down, each block has a run of bins, which it sums over all blocks.
  const int bins_of_block = static_cast<int>(max_bins) / part.blocks();
  const int each = max(bins_of_block / threads, 1);
  const int first = part.rank() * bins_of_block + part.thread * each;
  const bool idle = part.thread * each >= bins_of_block;
  std::uint64_t mine[bins_per_thread]{};
#pragma unroll
  for (int i = 0; i < bins_per_thread; ++i) {
    if (idle || i >= each) continue;
    const int bin = static_cast<int>(max_bins) - 1 - (first + i);
#pragma unroll
    for (int block = 0; block < max_blocks; ++block) {
      if (block >= part.blocks()) continue;
      const Shared& other = *part.cluster.map_shared_rank(&shared, static_cast<unsigned>(block));
      mine[i] += other.bins_low[bin] + (std::uint64_t{other.bins_high[bin]} << 32);
    }
  }
  std::uint64_t at = before + sum_before_in_cluster(part, mine[0] + mine[1]);
#pragma unroll
  for (int i = 0; i < bins_per_thread; ++i) {
    if (at < wanted && at + mine[i] >= wanted) {
      for (int block = 0; block < part.blocks(); ++block) {
        Shared& other = *part.cluster.map_shared_rank(&shared, static_cast<unsigned>(block));
        other.found_bin = max_bins - 1 - static_cast<std::uint32_t>(first + i);
        other.found_before = at;
      }
    }
    at += mine[i];
  }
  part.cluster.sync();
}

// Finds the cut among the keys of a range if they are few enough to be listed; false otherwise.
// Every block gets the same result.
__device__ bool cut_among_listed(Part& part, Amount amount, const KeyRange& range,
                                 std::uint64_t before, std::uint64_t wanted) {
  Shared& shared = part.shared;
  if (part.thread == 0) shared.listed = 0;
  __syncthreads();
  part.read([&](float share, int) {
    const std::uint32_t key = key_of(share);
    if (!range.holds(key)) return;
    const int place = atomicAdd(&shared.listed, 1);
    if (place < max_listed) shared.list[place] = key;
  });
  part.cluster.sync();
  const int block = part.thread / max_listed;
  const int place = part.thread % max_listed;
  std::uint32_t key = 0;
  bool fits = true;
  if (block < part.blocks()) {
    const Shared& other = *part.cluster.map_shared_rank(&shared, static_cast<unsigned>(block));
    const int listed = other.listed;
    fits = listed <= max_listed;
    if (place < listed) key = other.list[place];
  }
  // Compacted, in any order.
  const std::uint64_t at = sum_before(part, key > 0 ? 1 : 0);
  if (key > 0) {
    shared.all_listed[at] = key;
    shared.amounts[at] = amount_of(share_of_key(key), amount);
  }
  const bool all_fit = __syncthreads_and(fits ? 1 : 0) != 0;
  const auto listed = static_cast<int>(shared.sum_of_scan);
  if (all_fit && part.thread < listed) {
    const std::uint32_t own = shared.all_listed[part.thread];
    std::uint64_t same = 0;
#pragma unroll 8
    for (int i = 0; i < listed; ++i) {
      const std::uint32_t other = shared.all_listed[i];
      if (other > own) before += shared.amounts[i];
      if (other == own) same += shared.amounts[i];
    }
    if (before < wanted && before + same >= wanted) {
      shared.found_key = own;
      shared.found_before = before;
      shared.found_all_ties = before + same - amount_of(share_of_key(own), amount) < wanted;
    }
  }
  part.cluster.sync();  // the lists may be overwritten
  return all_fit;
}

// A cut, the amount before its first token, and whether all tokens of its key are certainly kept.
struct Found {
  Cut cut;
  std::uint64_t before = 0;
  bool all_ties = false;
};

// The cut after `wanted` tokens, or units of weight, as on the CPU; the lowest cut if there are not
// as many. Shares below `floor`, which is positive, are certainly behind the cut.
__device__ Found find_cut(Part& part, Amount amount, std::uint64_t wanted, float floor) {
  Shared& shared = part.shared;
  std::uint64_t before = 0;
  bool all_ties = false;
  KeyRange range;
  range.low = max(key_of(floor), range.low);
  range.bits = lanes - __clz(static_cast<int>(max_key - range.low));
  while (range.bits > 0) {
    find_bin(part, amount, range, before, wanted);
    if (shared.found_bin == no_bin) return {};
    range = range.bin(shared.found_bin);
    before = shared.found_before;
    __syncthreads();
    if (range.bits > 0 && cut_among_listed(part, amount, range, before, wanted)) {
      range.low = shared.found_key;
      before = shared.found_before;
      all_ties = shared.found_all_ties;
      break;
    }
  }
  return {.cut = cut_at(range.low, before, amount, wanted), .before = before, .all_ties = all_ties};
}

}  // namespace
}  // namespace motley::kernels::sampling
