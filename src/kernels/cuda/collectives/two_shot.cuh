// Sums over ranks in two steps: what a rank has of another's part, and sums, are written to the
// other's memory, so nothing waits for a read that crosses.
#pragma once

#include "kernels/cuda/collectives/peers.cuh"

namespace motley::kernels::cuda {

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

// Part `part` of `parts` of [begin, end).
struct Slice {
  std::int64_t begin;
  std::int64_t end;

  __device__ Slice cut(std::int64_t part, std::int64_t parts) const {
    const std::int64_t size = end - begin;
    return {begin + size * part / parts, begin + size * (part + 1) / parts};
  }
};

// Calls store(i, load(i)) for each i of a slice, by all threads of a block. Of a thread four loads
// are in flight together.
template <class Load, class Store>
__device__ void move_slice(const Slice& slice, const Load& load, const Store& store) {
  constexpr int together = 4;
  const auto threads = static_cast<std::int64_t>(blockDim.x);
  for (std::int64_t first = slice.begin + threadIdx.x; first < slice.end;
       first += together * threads) {
    decltype(load(first)) loaded[together];
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (first + i * threads < slice.end) loaded[i] = load(first + i * threads);
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (first + i * threads < slice.end) store(first + i * threads, loaded[i]);
  }
}

// A sum of which each block has a slice of packs, `longest` at most, and of that each rank a part.
// own(i) gives this rank's pack i as it crosses. Sums come to the staging memory of all other
// ranks, and to made(i, sum) of the rank that has added them up.
template <class Wire, class Own, class Made>
__device__ void sum_parts(const Peers& peers, PeerTurn& turn, std::int64_t longest,
                          const Slice& slice, const Own& own, const Made& made) {
  // Of a rank's part of a slice, with what rounding adds.
  const std::int64_t room = longest / peers.ranks + 1;
  const auto parts = [&](int of, int from) {
    return turn.parts(of) + (std::int64_t{from} * gridDim.x + blockIdx.x) * room;
  };
  for (int k = 1; k < peers.ranks; ++k) {
    const int other = (peers.rank + k) % peers.ranks;
    const Slice theirs = slice.cut(other, peers.ranks);
    uint4* const to = parts(other, peers.rank) - theirs.begin;
    move_slice(theirs, own, [&](std::int64_t i, const uint4& pack) { to[i] = pack; });
  }
  turn.meet(0);
  const Slice part = slice.cut(peers.rank, peers.ranks);
  const auto sum_pack = [&](std::int64_t i) {
    Pack<Wire> sum{};
    for (int from = 0; from < peers.ranks; ++from) {
      const Pack<Wire> pack = decoded<Wire>(
          from == peers.rank ? own(i) : load_shared(parts(peers.rank, from) + (i - part.begin)));
#pragma unroll
      for (int j = 0; j < Pack<Wire>::size / 4; ++j)
#pragma unroll
        for (int n = 0; n < 4; ++n)
          sum.vec4s[j].at[n] =
              from == 0 ? pack.vec4s[j].at[n] : sum.vec4s[j].at[n] + pack.vec4s[j].at[n];
    }
    return coded(sum);
  };
  move_slice(part, sum_pack, [&](std::int64_t i, const uint4& sum) {
    for (int k = 1; k < peers.ranks; ++k) turn.staging((peers.rank + k) % peers.ranks)[i] = sum;
    made(i, sum);
  });
  turn.meet(1);
}

}  // namespace motley::kernels::cuda
