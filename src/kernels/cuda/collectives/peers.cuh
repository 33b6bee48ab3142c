// How ranks on GPUs meet: the layout of a rank's memory, epochs, flags and bounded waits.
//
// Every call has a number, its epoch, which is counted in the rank's own memory: a graph that is
// launched again gets new ones. There are two buffers of each kind, used by even and odd epochs. A
// rank writes a buffer again at epoch e + 2, and only after it has seen all others at e + 1, which
// they reach when they are done with e.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kernels/collectives.h"
#include "kernels/cuda/collectives/peer_layout.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vec4.cuh"

namespace motley::kernels::cuda {

__device__ inline std::uint32_t load_acquire(const std::uint32_t* p) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
__device__ inline void store_release(std::uint32_t* p, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
__device__ inline uint4 load_shared(const uint4* p) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(p)
               : "memory");
  return value;
}
__device__ inline void store_shared(uint4* p, const uint4& value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ inline std::uint32_t load_now(const std::uint32_t* p) {
  return *const_cast<const volatile std::uint32_t*>(p);
}
__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// A call as one thread of it sees it. To be made when the previous grid's work is there.
class PeerTurn {
 public:
  __device__ PeerTurn(const Peers& peers, PeerCall call) : peers_(peers), call_(call) {
    PeerState* const own = state();
    epoch_ = following(load_now(&own->epoch));
    lost_ = load_now(&own->failed) != 0;
  }

  __device__ std::uint32_t epoch() const { return epoch_; }

  // Where rank `to` gets what rank `from` sends.
  __device__ uint4* slots(int to, int from) const {
    const std::int64_t number = std::int64_t{epoch_ % 2} * peers_.ranks + from;
    return reinterpret_cast<uint4*>(peers_.memory[to] + PeerLayout::slots +
                                    number * PeerLayout::slot_bytes);
  }
  __device__ uint4* staging(int of) const {
    return reinterpret_cast<uint4*>(peers_.memory[of] + PeerLayout::staging(peers_.ranks) +
                                    std::int64_t{epoch_ % 2} * PeerLayout::staging_bytes);
  }

  // Where a rank gets what others have of its part of a sum.
  __device__ uint4* parts(int of) const {
    return reinterpret_cast<uint4*>(peers_.memory[of] + PeerLayout::parts(peers_.ranks) +
                                    std::int64_t{epoch_ % 2} * PeerLayout::part_bytes);
  }

  // After a look at what a rank sends that has found nothing: whether to look again.
  __device__ bool goes_on(int rank) {
    if (lost_) return false;
    if (++looks_ % looks_between_checks != 0) return true;
    const std::uint64_t now = nanoseconds();
    if (begin_ == 0) begin_ = now;
    if (load_now(peers_.ended) != 0 || load_now(&state()->failed) != 0) {
      lost_ = true;
    } else if (now - begin_ > peers_.max_wait_ns) {
      report(rank);
      lost_ = true;
    }
    if (lost_) *const_cast<volatile std::uint32_t*>(&state()->failed) = 1;
    return !lost_;
  }

  // Waits until this block of every rank is here; it then sees what those blocks have written. For
  // all threads.
  __device__ void meet(int phase) {
    __syncthreads();
    const int other = static_cast<int>(threadIdx.x);
    if (other < peers_.ranks && other != peers_.rank) {
      store_release(flag(other, phase, peers_.rank), epoch_);
      const std::uint32_t* const theirs = flag(peers_.rank, phase, other);
      // Another rank may be one call ahead. Any other number is old, or of no call yet.
      const std::uint32_t next = following(epoch_);
      for (;;) {
        const std::uint32_t flag = load_acquire(theirs);
        if (flag == epoch_ || flag == next || !goes_on(other)) break;
      }
    }
    __syncthreads();
  }

  // The call's last block counts it. For all threads.
  __device__ void finish() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    PeerState* const own = state();
    if (atomicAdd(&own->finished, 1U) + 1 != gridDim.x) return;
    own->finished = 0;
    own->epoch = epoch_;
  }

 private:
  // A few milliseconds.
  static constexpr std::uint32_t looks_between_checks = 4096;

  // 0 is what memory holds at first; even and odd numbers take turns.
  static __device__ std::uint32_t following(std::uint32_t epoch) {
    return epoch + 1 == 0 ? 2 : epoch + 1;
  }
  __device__ PeerState* state() const {
    return reinterpret_cast<PeerState*>(peers_.memory[peers_.rank]);
  }
  __device__ std::uint32_t* flag(int of, int phase, int from) const {
    const int number = (phase * max_peer_blocks + static_cast<int>(blockIdx.x)) * max_peers + from;
    return reinterpret_cast<std::uint32_t*>(peers_.memory[of] + PeerLayout::flags) + number;
  }
  __device__ void report(int rank) const {
    const std::uint32_t lost =
        (static_cast<std::uint32_t>(call_) << 8) | static_cast<std::uint32_t>(rank + 1);
    if (atomicCAS(&state()->failed, 0U, 1U) == 0)
      *const_cast<volatile std::uint32_t*>(peers_.report) = lost;
    __threadfence_system();
    *const_cast<volatile std::uint32_t*>(peers_.ended) = 1;
  }

  const Peers& peers_;
  PeerCall call_;
  std::uint32_t epoch_;
  bool lost_;
  std::uint32_t looks_ = 0;
  std::uint64_t begin_ = 0;
};

// Blocks that wait for another rank's leave room for it where it has the same GPU.
__device__ inline void begin_peer_call(const Peers& peers) {
  if (!peers.share_gpu) launch_dependents();
  wait_for_previous_grid();
}

// As numbers cross.
template <class Wire>
__device__ Vec4 as_it_crosses(Vec4 vec4) {
#pragma unroll
  for (int i = 0; i < 4; ++i) vec4.at[i] = widen(narrow<Wire>(vec4.at[i]));
  return vec4;
}

// What a rank without a part adds: x + -0 = x, also for x = -0.
__device__ inline Vec4 nothing() { return {-0.0F, -0.0F, -0.0F, -0.0F}; }

__device__ inline std::uint32_t bits_of(float value) { return __float_as_uint(value); }
__device__ inline std::uint32_t bits_of(bf16 low, bf16 high) {
  return std::uint32_t{low.bits} | std::uint32_t{high.bits} << 16;
}
__device__ inline float low_of(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_of(std::uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000U); }

// A vec4 in slots: a flag stands beside every 4 bytes and comes with them, so there is nothing else
// to wait for.
template <class Wire>
__device__ void send_vec4(uint4* slots, std::int64_t number, const Vec4& vec4,
                          std::uint32_t epoch) {
  if constexpr (sizeof(Wire) == 4) {
    store_shared(slots + 2 * number, {bits_of(vec4.at[0]), epoch, bits_of(vec4.at[1]), epoch});
    store_shared(slots + 2 * number + 1, {bits_of(vec4.at[2]), epoch, bits_of(vec4.at[3]), epoch});
  } else {
    const std::uint32_t low = bits_of(narrow<Wire>(vec4.at[0]), narrow<Wire>(vec4.at[1]));
    const std::uint32_t high = bits_of(narrow<Wire>(vec4.at[2]), narrow<Wire>(vec4.at[3]));
    store_shared(slots + number, {low, epoch, high, epoch});
  }
}

__device__ inline uint4 wait_for_slot(const uint4* slot, int from, PeerTurn& turn) {
  uint4 value = load_shared(slot);
  while ((value.y != turn.epoch() || value.w != turn.epoch()) && turn.goes_on(from))
    value = load_shared(slot);
  return value;
}

template <class Wire>
__device__ Vec4 receive_vec4(const uint4* slots, std::int64_t number, int from, PeerTurn& turn) {
  if constexpr (sizeof(Wire) == 4) {
    const uint4 low = wait_for_slot(slots + 2 * number, from, turn);
    const uint4 high = wait_for_slot(slots + 2 * number + 1, from, turn);
    return {__uint_as_float(low.x), __uint_as_float(low.z), __uint_as_float(high.x),
            __uint_as_float(high.z)};
  } else {
    const uint4 value = wait_for_slot(slots + number, from, turn);
    return {low_of(value.x), high_of(value.x), low_of(value.z), high_of(value.z)};
  }
}

// One vec4 of all ranks, in their order: own is this rank's.
template <class Wire>
__device__ Vec4 sum_of_slots(const Peers& peers, PeerTurn& turn, std::int64_t number,
                             const Vec4& own) {
  Vec4 sum{};
  for (int from = 0; from < peers.ranks; ++from) {
    const Vec4 part = from == peers.rank
                          ? own
                          : receive_vec4<Wire>(turn.slots(peers.rank, from), number, from, turn);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.at[i] = from == 0 ? part.at[i] : sum.at[i] + part.at[i];
  }
  return as_it_crosses<Wire>(sum);
}

template <class Wire>
__device__ void send_to_all(const Peers& peers, const PeerTurn& turn, std::int64_t number,
                            const Vec4& own) {
  for (int i = 1; i < peers.ranks; ++i) {
    const int to = (peers.rank + i) % peers.ranks;
    send_vec4<Wire>(turn.slots(to, peers.rank), number, own, turn.epoch());
  }
}

template <class... Parameters>
Result<void> load_kernel(std::string_view name, void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  return launched(cudaFuncGetAttributes(&attributes, kernel), name);
}

// Blocks for this many units of work, each a thread's.
inline unsigned peer_blocks(const Peers& peers, std::int64_t units) {
  const std::int64_t blocks = (units + peer_threads - 1) / peer_threads;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, peers.blocks));
}

}  // namespace motley::kernels::cuda
