// The layout of the memory through which ranks on GPUs meet.
#pragma once

#include <cstdint>

#include "base/number_types.h"
#include "kernels/collectives.h"

namespace motley::kernels::cuda {

// What a rank waits for, as it reports it.
enum class PeerCall : std::uint32_t { sum, scattered_sum, gather, maxima };

struct PeerState {
  std::uint32_t epoch;     // of the last call
  std::uint32_t finished;  // blocks of this call
  std::uint32_t failed;    // not 0: no call waits any more
};

inline constexpr int max_peer_blocks = 256;
// Kernels that wait are compiled for as many blocks on a multiprocessor.
inline constexpr int peer_blocks_per_sm = 2;
inline constexpr int peer_threads = 512;
inline constexpr int max_phases = 2;

// A rank's memory: its state, flags that others raise, slots and parts that others fill, and
// numbers that others read or fill.
struct PeerLayout {
  static constexpr std::int64_t flags = 256;
  static constexpr std::int64_t slots =
      flags + std::int64_t{max_phases} * max_peer_blocks * max_peers * 4;
  // Of each sender: a flag beside every 4 bytes.
  static constexpr std::int64_t slot_bytes = 2 * max_one_shot_bytes;
  static constexpr std::int64_t staging_bytes = std::int64_t{32} << 20;

  static constexpr MOTLEY_HOST_DEVICE std::int64_t staging(int ranks) {
    return slots + 2 * std::int64_t{ranks} * slot_bytes;
  }
  // As many bytes as are staged, and what rounding adds: two packs for each block and sender.
  static constexpr std::int64_t part_bytes =
      staging_bytes + std::int64_t{2} * 16 * max_peers * max_peer_blocks;
  static constexpr MOTLEY_HOST_DEVICE std::int64_t parts(int ranks) {
    return staging(ranks) + 2 * staging_bytes;
  }
  static constexpr MOTLEY_HOST_DEVICE std::int64_t bytes(int ranks) {
    return parts(ranks) + 2 * part_bytes;
  }
};
static_assert(PeerLayout::slots % 256 == 0);

}  // namespace motley::kernels::cuda
