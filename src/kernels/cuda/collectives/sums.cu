// Sums over ranks that address each other's memory. One-shot: each rank sends its numbers to all
// others, which add them up. Two-shot: each rank sends the others their parts of its numbers, and
// sends them the sums of its own part.
#include "base/check.h"
#include "kernels/cuda/collectives/peers.cuh"
#include "kernels/cuda/collectives/prepare.h"

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

// Numbers that cross in 16 bytes.
template <class Wire>
struct Pack {
  static constexpr int size = 16 / static_cast<int>(sizeof(Wire));
  Vec4 vec4s[size / 4];
};

template <class Wire, bool whole>
__device__ Pack<Wire> load_pack(const float* x, std::int64_t at, std::int64_t count) {
  Pack<Wire> pack{};
#pragma unroll
  for (int i = 0; i < Pack<Wire>::size / 4; ++i)
    if (at + 4 * i < count) pack.vec4s[i] = load_vec4<whole>(x, at + 4 * i, count);
  return pack;
}
template <class Wire, bool whole>
__device__ void store_pack(float* x, std::int64_t at, std::int64_t count, const Pack<Wire>& pack) {
#pragma unroll
  for (int i = 0; i < Pack<Wire>::size / 4; ++i)
    if (at + 4 * i < count) store_vec4<whole>(x, at + 4 * i, count, pack.vec4s[i]);
}
template <class Wire>
__device__ Pack<Wire> nothing_packed() {
  Pack<Wire> pack;
#pragma unroll
  for (Vec4& vec4 : pack.vec4s) vec4 = nothing();
  return pack;
}

template <class Wire>
__device__ uint4 coded(const Pack<Wire>& pack) {
  if constexpr (sizeof(Wire) == 4) {
    const float* const at = pack.vec4s[0].at;
    return {bits_of(at[0]), bits_of(at[1]), bits_of(at[2]), bits_of(at[3])};
  } else {
    const auto pair = [](const Vec4& vec4, int first) {
      return bits_of(narrow<Wire>(vec4.at[first]), narrow<Wire>(vec4.at[first + 1]));
    };
    return {pair(pack.vec4s[0], 0), pair(pack.vec4s[0], 2), pair(pack.vec4s[1], 0),
            pair(pack.vec4s[1], 2)};
  }
}
template <class Wire>
__device__ Pack<Wire> decoded(const uint4& bits) {
  Pack<Wire> pack;
  if constexpr (sizeof(Wire) == 4) {
    pack.vec4s[0] = {__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                     __uint_as_float(bits.w)};
  } else {
    pack.vec4s[0] = {low_of(bits.x), high_of(bits.x), low_of(bits.y), high_of(bits.y)};
    pack.vec4s[1] = {low_of(bits.z), high_of(bits.z), low_of(bits.w), high_of(bits.w)};
  }
  return pack;
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

// Part `part` of `parts` of [begin, end).
struct Slice {
  std::int64_t begin;
  std::int64_t end;

  __device__ Slice cut(std::int64_t part, std::int64_t parts) const {
    const std::int64_t size = end - begin;
    return {begin + size * part / parts, begin + size * (part + 1) / parts};
  }
};

// Calls move(i) for all i of a slice that are this thread's, four at a time: what they load is in
// flight together.
template <class Load, class Store>
__device__ void move_slice(const Slice& slice, const Load& load, const Store& store) {
  constexpr int together = 4;
  const std::int64_t begin = slice.begin + threadIdx.x;
  for (std::int64_t first = begin; first < slice.end; first += together * peer_threads) {
    decltype(load(first)) loaded[together];
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (first + i * peer_threads < slice.end) loaded[i] = load(first + i * peer_threads);
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (first + i * peer_threads < slice.end) store(first + i * peer_threads, loaded[i]);
  }
}

// A block has a slice of the numbers, in packs, and every rank adds up a part of each slice. What a
// rank has of another's part, and sums, are written to the other's memory: nothing waits for a read
// that crosses.
template <class Wire, bool whole>
__global__ void __launch_bounds__(peer_threads, peer_blocks_per_sm)
    two_shot(const __grid_constant__ Peers peers, float* x, std::int64_t count, bool has_part) {
  begin_peer_call(peers);
  PeerTurn turn(peers, PeerCall::sum);
  constexpr std::int64_t size = Pack<Wire>::size;
  const std::int64_t packs = (count + size - 1) / size;
  const Slice slice = Slice{0, packs}.cut(blockIdx.x, gridDim.x);
  // Of a rank's part of a slice, with what rounding may add.
  const std::int64_t room = packs / gridDim.x / peers.ranks + 2;
  const auto parts = [&](int of, int from) {
    return turn.parts(of) + (std::int64_t{from} * gridDim.x + blockIdx.x) * room;
  };
  const auto own_pack = [&](std::int64_t i) {
    return coded(has_part ? load_pack<Wire, whole>(x, size * i, count) : nothing_packed<Wire>());
  };
  for (int k = 1; k < peers.ranks; ++k) {
    const int other = (peers.rank + k) % peers.ranks;
    const Slice theirs = slice.cut(other, peers.ranks);
    uint4* const to = parts(other, peers.rank) - theirs.begin;
    move_slice(theirs, own_pack, [&](std::int64_t i, const uint4& pack) { to[i] = pack; });
  }
  turn.meet(0);
  const Slice own = slice.cut(peers.rank, peers.ranks);
  const auto sum_pack = [&](std::int64_t i) {
    Pack<Wire> sum{};
    for (int from = 0; from < peers.ranks; ++from) {
      const Pack<Wire> part = decoded<Wire>(
          from == peers.rank ? own_pack(i)
                             : load_shared(parts(peers.rank, from) + (i - own.begin)));
#pragma unroll
      for (int j = 0; j < Pack<Wire>::size / 4; ++j)
#pragma unroll
        for (int n = 0; n < 4; ++n)
          sum.vec4s[j].at[n] =
              from == 0 ? part.vec4s[j].at[n] : sum.vec4s[j].at[n] + part.vec4s[j].at[n];
    }
    return coded(sum);
  };
  move_slice(own, sum_pack, [&](std::int64_t i, const uint4& sum) {
    for (int k = 1; k < peers.ranks; ++k) turn.staging((peers.rank + k) % peers.ranks)[i] = sum;
    store_pack<Wire, whole>(x, size * i, count, decoded<Wire>(sum));
  });
  turn.meet(1);
  const uint4* const sums = turn.staging(peers.rank);
  for (int k = 1; k < peers.ranks; ++k) {
    move_slice(
        slice.cut((peers.rank + k) % peers.ranks, peers.ranks),
        [&](std::int64_t i) { return load_shared(sums + i); },
        [&](std::int64_t i, const uint4& sum) {
          store_pack<Wire, whole>(x, size * i, count, decoded<Wire>(sum));
        });
  }
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
