// Maxima over ranks that address each other's memory: few numbers, which each rank sends to all
// others, in float32.
#include "kernels/cuda/collectives/peers.cuh"
#include "kernels/cuda/collectives/prepare.h"

namespace motley::kernels::cuda {
namespace {

__device__ Vec4 own_vec4(const PeerMaxima& p, std::int64_t at) {
  return p.has_part ? load_vec4<false>(p.x, at, p.count) : Vec4{};
}

__global__ void __launch_bounds__(peer_threads, peer_blocks_per_sm)
    maxima(const __grid_constant__ Peers peers, PeerMaxima p) {
  begin_peer_call(peers);
  PeerTurn turn(peers, PeerCall::maxima);
  const std::int64_t vec4s = (p.count + 3) / 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * peer_threads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * peer_threads;
  for (std::int64_t i = first; i < vec4s; i += step)
    send_to_all<float>(peers, turn, i, own_vec4(p, 4 * i));
  for (std::int64_t i = first; i < vec4s; i += step) {
    Vec4 largest = own_vec4(p, 4 * i);
    for (int from = 0; from < peers.ranks; ++from) {
      if (from == peers.rank) continue;
      const Vec4 part = receive_vec4<float>(turn.slots(peers.rank, from), i, from, turn);
#pragma unroll
      for (int k = 0; k < 4; ++k) largest.at[k] = fmaxf(largest.at[k], part.at[k]);
    }
    store_vec4<false>(p.x, 4 * i, p.count, largest);
  }
  turn.finish();
}

}  // namespace

Result<void> prepare_peer_maxima() { return load_kernel("maxima_over_peers", maxima); }

void maxima_over_peers(const Peers& peers, const PeerMaxima& p, StreamHandle stream) {
  if (peers.ranks == 1) return;
  // As many as slots have room for.
  constexpr std::int64_t at_once = max_one_shot_bytes / std::int64_t{sizeof(float)};
  for (std::int64_t begin = 0; begin < p.count; begin += at_once) {
    const PeerMaxima piece{
        .x = p.x + begin, .count = std::min(at_once, p.count - begin), .has_part = p.has_part};
    launch("maxima_over_peers", maxima,
           {.grid = peer_blocks(peers, (piece.count + 3) / 4), .threads = peer_threads}, stream,
           peers, piece);
  }
}

}  // namespace motley::kernels::cuda
