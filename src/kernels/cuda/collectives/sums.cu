// Sums over ranks that address each other's memory. One-shot: each rank sends its numbers to all
// others, which add them up. Two-shot: each rank sends the others their parts of its numbers, and
// sends them the sums of its own part.
#include "base/check.h"
#include "kernels/cuda/collectives/prepare.h"
#include "kernels/cuda/collectives/two_shot.cuh"

namespace motley::kernels::cuda {
namespace {

template <class Wire, bool whole>
__device__ Vec4 own_vec4(const float* x, std::int64_t at, std::int64_t count, bool has_part) {
  return has_part ? as_it_crosses<Wire>(load_vec4<whole>(x, at, count)) : nothing();
}

template <class Wire, bool whole>
__global__ void __launch_bounds__(peer_threads, peer_blocks_per_sm)
    one_shot(const __grid_constant__ Peers peers, float* x, std::int64_t count, bool has_part) {
  begin_peer_call(peers);
  PeerTurn turn(peers, PeerCall::sum);
  const std::int64_t vec4s = (count + 3) / 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * peer_threads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * peer_threads;
  for (std::int64_t i = first; i < vec4s; i += step)
    send_to_all<Wire>(peers, turn, i, own_vec4<Wire, whole>(x, 4 * i, count, has_part));
  for (std::int64_t i = first; i < vec4s; i += step) {
    const Vec4 own = own_vec4<Wire, whole>(x, 4 * i, count, has_part);
    store_vec4<whole>(x, 4 * i, count, sum_of_slots<Wire>(peers, turn, i, own));
  }
  turn.finish();
}

// Adds up what all ranks have staged at a place, in order of ranks. All are read before any is
// added: they cross at the same time.
template <class Wire>
__device__ Pack<Wire> sum_of_staged(const Peers& peers, const PeerTurn& turn, std::int64_t place) {
  uint4 parts[max_peers];
#pragma unroll
  for (int from = 0; from < max_peers; ++from)
    if (from < peers.ranks) parts[from] = load_shared(turn.staging(from) + place);
  Pack<Wire> sum = decoded<Wire>(parts[0]);
#pragma unroll
  for (int from = 1; from < max_peers; ++from) {
    if (from >= peers.ranks) continue;
    const Pack<Wire> part = decoded<Wire>(parts[from]);
#pragma unroll
    for (int i = 0; i < Pack<Wire>::size / 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum.vec4s[i].at[j] += part.vec4s[i].at[j];
  }
  return sum;
}

// A block has a slice of the numbers, in packs.
template <class Wire, bool whole>
__global__ void __launch_bounds__(peer_threads, peer_blocks_per_sm)
    two_shot(const __grid_constant__ Peers peers, float* x, std::int64_t count, bool has_part) {
  begin_peer_call(peers);
  PeerTurn turn(peers, PeerCall::sum);
  constexpr std::int64_t size = Pack<Wire>::size;
  const std::int64_t packs = (count + size - 1) / size;
  const Slice slice = Slice{0, packs}.cut(blockIdx.x, gridDim.x);
  const auto store = [&](std::int64_t i, const uint4& sum) {
    store_pack<Wire, whole>(x, size * i, count, decoded<Wire>(sum));
  };
  sum_parts<Wire>(
      peers, turn, packs / gridDim.x + 1, slice,
      [&](std::int64_t i) {
        return coded(has_part ? load_pack<Wire, whole>(x, size * i, count)
                              : nothing_packed<Wire>());
      },
      store);
  const uint4* const sums = turn.staging(peers.rank);
  for (int k = 1; k < peers.ranks; ++k)
    move_slice(
        slice.cut((peers.rank + k) % peers.ranks, peers.ranks),
        [&](std::int64_t i) { return load_shared(sums + i); }, store);
  turn.finish();
}

// Every rank has `each` places for the numbers of each rank, from the `first` of its part on.
struct ScatteredPiece {
  std::int64_t first;
  std::int64_t each;  // packs
};

__global__ void __launch_bounds__(peer_threads, peer_blocks_per_sm)
    scattered_sum(const __grid_constant__ Peers peers, const __grid_constant__ PeerScatteredSum p,
                  ScatteredPiece piece) {
  begin_peer_call(peers);
  PeerTurn turn(peers, PeerCall::scattered_sum);
  constexpr std::int64_t size = Pack<float>::size;
  const Slice slice = Slice{0, piece.each}.cut(blockIdx.x, gridDim.x);
  const auto thread = static_cast<std::int64_t>(threadIdx.x);
  for (int to = 0; to < peers.ranks; ++to) {
    const float* const part = p.x + p.begin[to];
    const std::int64_t count = p.begin[to + 1] - p.begin[to];
    for (std::int64_t i = slice.begin + thread; i < slice.end; i += peer_threads)
      turn.staging(peers.rank)[to * piece.each + i] =
          coded(load_pack<float, false>(part, piece.first + size * i, count));
  }
  turn.meet(0);
  const std::int64_t count = p.begin[peers.rank + 1] - p.begin[peers.rank];
  for (std::int64_t i = slice.begin + thread; i < slice.end; i += peer_threads)
    store_pack<float, false>(p.out, piece.first + size * i, count,
                             sum_of_staged<float>(peers, turn, peers.rank * piece.each + i));
  turn.finish();
}

template <class Wire>
Result<void> prepare() {
  MOTLEY_TRY_VOID(load_kernel("sum_over_peers_one_shot", one_shot<Wire, true>));
  MOTLEY_TRY_VOID(load_kernel("sum_over_peers_one_shot", one_shot<Wire, false>));
  MOTLEY_TRY_VOID(load_kernel("sum_over_peers_two_shot", two_shot<Wire, true>));
  return load_kernel("sum_over_peers_two_shot", two_shot<Wire, false>);
}

template <class Wire>
void launch_sum(const Peers& peers, const PeerSum& p, StreamHandle stream) {
  const bool whole = p.count % 4 == 0 && vec4_aligned(p.x, DType::f32, 0);
  const auto bytes = static_cast<std::int64_t>(sizeof(Wire));
  with_flag(whole, [&](auto flag) {
    if (p.count * bytes <= max_one_shot_bytes) {
      launch("sum_over_peers_one_shot", one_shot<Wire, flag.value>,
             {.grid = peer_blocks(peers, (p.count + 3) / 4), .threads = peer_threads}, stream,
             peers, p.x, p.count, p.has_part);
      return;
    }
    // More than there is staging memory for in pieces.
    const std::int64_t at_once = PeerLayout::staging_bytes / bytes;
    for (std::int64_t begin = 0; begin < p.count; begin += at_once) {
      const std::int64_t count = std::min(at_once, p.count - begin);
      launch("sum_over_peers_two_shot", two_shot<Wire, flag.value>,
             {.grid = peer_blocks(peers, count / Pack<Wire>::size), .threads = peer_threads},
             stream, peers, p.x + begin, count, p.has_part);
    }
  });
}

}  // namespace

Result<void> prepare_peer_sums() {
  MOTLEY_TRY_VOID(prepare<float>());
  MOTLEY_TRY_VOID(prepare<bf16>());
  return load_kernel("scattered_sum_over_peers", scattered_sum);
}

void sum_over_peers(const Peers& peers, const PeerSum& p, StreamHandle stream) {
  if (p.count <= 0 || peers.ranks == 1) return;
  MOTLEY_CHECK(p.crosses == DType::f32 || p.crosses == DType::bf16, "numbers cross in f32 or bf16");
  if (p.crosses == DType::bf16) {
    launch_sum<bf16>(peers, p, stream);
  } else {
    launch_sum<float>(peers, p, stream);
  }
}

void scattered_sum_over_peers(const Peers& peers, const PeerScatteredSum& p, StreamHandle stream) {
  std::int64_t longest = 0;
  for (int rank = 0; rank < peers.ranks; ++rank)
    longest = std::max(longest, p.begin[rank + 1] - p.begin[rank]);
  constexpr std::int64_t size = Pack<float>::size;
  const std::int64_t at_once = PeerLayout::staging_bytes / 16 / peers.ranks;
  for (std::int64_t first = 0; first < longest; first += at_once * size) {
    const std::int64_t each = std::min(at_once, (longest - first + size - 1) / size);
    launch("scattered_sum_over_peers", scattered_sum,
           {.grid = peer_blocks(peers, each), .threads = peer_threads}, stream, peers, p,
           ScatteredPiece{first, each});
  }
}

}  // namespace motley::kernels::cuda
