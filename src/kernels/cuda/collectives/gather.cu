// Rows whose columns are cut over ranks, on the ranks that want all of them.
#include <cstdint>

#include "base/check.h"
#include "kernels/cuda/collectives/peers.cuh"
#include "kernels/cuda/collectives/prepare.h"

namespace motley::kernels::cuda {
namespace {

__device__ inline uint4 read_of_peer(const uint4* p) { return load_shared(p); }
template <class Unit>
__device__ Unit read_of_peer(const Unit* p) {
  return *const_cast<const volatile Unit*>(p);
}

// In units, which are what a thread moves at once. A rank's columns of all rows stand one after the
// other in its staging memory; a block has a slice of each rank's.
template <class Unit>
__global__ void __launch_bounds__(peer_threads, peer_blocks_per_sm)
    gather(const __grid_constant__ Peers peers, const __grid_constant__ PeerGather p) {
  begin_peer_call(peers);
  PeerTurn turn(peers, PeerCall::gather);
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(Unit));
  const auto width_of = [&](int rank) { return (p.begin[rank + 1] - p.begin[rank]) / bytes; };
  // Calls move(place in the rank's staging memory, row, column).
  const auto each_of = [&](int rank, const auto& move) {
    const std::int64_t width = width_of(rank);
    const std::int64_t count = p.rows * width;
    const std::int64_t end = count * (std::int64_t{blockIdx.x} + 1) / gridDim.x;
    for (std::int64_t i = count * blockIdx.x / gridDim.x + threadIdx.x; i < end; i += peer_threads)
      move(i, i / width, i % width);
  };
  Unit* const staged = reinterpret_cast<Unit*>(turn.staging(peers.rank));
  each_of(peers.rank, [&](std::int64_t place, std::int64_t row, std::int64_t column) {
    staged[place] = reinterpret_cast<const Unit*>(static_cast<const std::byte*>(p.own) +
                                                  row * p.own_stride)[column];
  });
  turn.meet(0);
  if (p.out != nullptr) {
    for (int from = 0; from < peers.ranks; ++from) {
      if (p.in_place && from == peers.rank) continue;
      const Unit* const theirs = reinterpret_cast<const Unit*>(turn.staging(from));
      each_of(from, [&](std::int64_t place, std::int64_t row, std::int64_t column) {
        std::byte* const out =
            static_cast<std::byte*>(p.out) + row * p.out_stride + p.begin[from] + from * p.apart;
        reinterpret_cast<Unit*>(out)[column] = read_of_peer(theirs + place);
      });
    }
  }
  turn.finish();
}

template <class Unit>
void launch_gather(const Peers& peers, const PeerGather& p, std::int64_t widest,
                   StreamHandle stream) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(Unit));
  launch("gather_over_peers", gather<Unit>,
         {.grid = peer_blocks(peers, p.rows * widest / bytes), .threads = peer_threads}, stream,
         peers, p);
}

// The widest unit that all columns and strides are multiples of. All ranks must take the same
// blocks, not the same unit: a rank's own addresses may differ.
int unit_of(const Peers& peers, const PeerGather& p) {
  auto all = static_cast<std::uint64_t>(p.apart);
  for (int rank = 0; rank <= peers.ranks; ++rank) all |= static_cast<std::uint64_t>(p.begin[rank]);
  if (all % 16 == 0) return 16;
  return all % 4 == 0 ? 4 : 1;
}

bool is_aligned(const PeerGather& p, int unit) {
  const auto bytes = static_cast<std::uint64_t>(unit);
  const auto fits = [&](const void* data, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0 &&
           (p.rows <= 1 || static_cast<std::uint64_t>(stride) % bytes == 0);
  };
  return fits(p.own, p.own_stride) && fits(p.out, p.out_stride);
}

}  // namespace

Result<void> prepare_peer_gather() {
  MOTLEY_TRY_VOID(load_kernel("gather_over_peers", gather<uint4>));
  MOTLEY_TRY_VOID(load_kernel("gather_over_peers", gather<std::uint32_t>));
  return load_kernel("gather_over_peers", gather<std::uint8_t>);
}

void gather_over_peers(const Peers& peers, const PeerGather& p, StreamHandle stream) {
  std::int64_t widest = 0;
  for (int rank = 0; rank < peers.ranks; ++rank)
    widest = std::max(widest, p.begin[rank + 1] - p.begin[rank]);
  const int unit = unit_of(peers, p);
  MOTLEY_CHECK(is_aligned(p, unit), "rows that are aligned as their columns are");
  MOTLEY_CHECK(widest <= PeerLayout::staging_bytes, "rows that fit the group's memory");
  const std::int64_t at_once = widest == 0 ? p.rows : PeerLayout::staging_bytes / widest;
  std::int64_t begin = 0;
  do {
    PeerGather piece = p;
    piece.rows = std::min(at_once, p.rows - begin);
    piece.own = static_cast<const std::byte*>(p.own) + begin * p.own_stride;
    if (p.out != nullptr) piece.out = static_cast<std::byte*>(p.out) + begin * p.out_stride;
    if (unit == 16) {
      launch_gather<uint4>(peers, piece, widest, stream);
    } else if (unit == 4) {
      launch_gather<std::uint32_t>(peers, piece, widest, stream);
    } else {
      launch_gather<std::uint8_t>(peers, piece, widest, stream);
    }
    begin += piece.rows;
  } while (begin < p.rows);
}

}  // namespace motley::kernels::cuda
