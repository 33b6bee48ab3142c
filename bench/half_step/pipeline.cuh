// The ring of slots that bulk copies fill, waits that end, and words that multiprocessors exchange.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/ptx.cuh"
#include "shape.h"

namespace motley::bench::half_step {

__device__ inline std::uint64_t clock_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
__device__ inline std::uint32_t load_relaxed(const std::uint32_t* p) {
  std::uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
// What the launch before wrote is read past the L1 cache, which a programmatic launch need not find
// empty.
__device__ inline uint2 load_relaxed(const uint2* p) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p)
               : "memory");
  return v;
}

__device__ inline bool try_wait(std::uint32_t bar, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
}

// Records a wait that expired, if it is the first of the grid.
__device__ inline void report(const HalfStep& p, Place place) {
  const std::uint32_t word = static_cast<std::uint32_t>(place) | blockIdx.x << 8;
  if (atomicCAS(p.failure, 0U, word) != 0) return;
  *const_cast<volatile std::uint32_t*>(p.host_failure) = word;
  __threadfence_system();
}
// Not inlined: code that runs once must be fetched from memory, so the usual path is kept short.
__device__ __noinline__ inline bool is_over(const HalfStep& p, std::uint64_t begin, Place place) {
  if (load_relaxed(p.failure) != 0) return true;
  if (clock_ns() - begin < p.limit_ns) return false;
  report(p, place);
  return true;
}
// Nothing that a slot waits for takes twice the limit.
__device__ __noinline__ inline void wait_slowly(const HalfStep& p, std::uint64_t begin,
                                                std::uint32_t bar, std::uint32_t parity,
                                                Place place) {
  while (!try_wait(bar, parity)) {
    if (clock_ns() - begin < 2 * p.limit_ns + 100'000'000) continue;
    report(p, place);
    __trap();
  }
}

// Bounds the waits of a thread. When one of the grid expires, all others end too.
class Watch {
 public:
  __device__ explicit Watch(const HalfStep& p) : p_(p), begin_(clock_ns()) {}

  // Called in each round of a wait for other multiprocessors.
  __device__ bool expired(Place place) {
    if (over_) return true;
    if (++rounds_ % 64 == 0) over_ = is_over(p_, begin_, place);
    return over_;
  }
  __device__ void wait(std::uint32_t bar, std::uint32_t parity, Place place) const {
    if (!try_wait(bar, parity)) wait_slowly(p_, begin_, bar, parity, place);
  }

 private:
  const HalfStep& p_;
  std::uint64_t begin_;
  std::uint32_t rounds_ = 0;
  bool over_ = false;
};

// ---- words between multiprocessors ----
// Each word says by itself whether it was written, so no order between words is needed, and no
// fence. Bulk copies read none of them: they are read by threads, and only weights, which are
// constant, are read through the asynchronous proxy.
__device__ inline uint4 load_cells(const uint4* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ inline void store_cell(std::uint32_t* p, std::uint32_t v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ inline bool is_written(const uint4& v) {
  return v.x != no_value && v.y != no_value && v.z != no_value && v.w != no_value;
}
// Waits for cells[i * stride], i < count.
template <int count>
__device__ void read_cells(uint4 (&v)[count], const uint4* cells, int stride, Watch& watch,
                           Place place) {
#pragma unroll
  for (int i = 0; i < count; ++i) v[i] = load_cells(cells + i * stride);
  for (;;) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < count; ++i) all = all && is_written(v[i]);
    if (all || watch.expired(place)) return;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!is_written(v[i])) v[i] = load_cells(cells + i * stride);
    }
  }
}

// ---- slots ----
struct Barriers {
  std::uint64_t full[max_slots];
  std::uint64_t empty[max_slots];
};

// The order in which stages take slots; the producer and the consumers count alike. The output
// projection has the first slots, the stages ahead those after them, which they keep until the end;
// the others go round the rest.
class Slots {
 public:
  __device__ Slots(unsigned char* memory, Barriers& barriers, int bytes, const HalfStep& p)
      : memory_(memory),
        barriers_(barriers),
        bytes_(bytes),
        count_(p.slots),
        ahead_(p.rung.ahead) {}

  __device__ int ahead(int i) const { return wrapped(output_stages + i); }
  __device__ int next() {
    const int slot = wrapped(wrapped(output_stages + ahead_) + at_);
    if (++at_ == count_ - ahead_) at_ = 0;
    return slot;
  }

  // By a whole warp: waits until the slot is full.
  __device__ const unsigned char* take(int slot, Watch& watch) {
    wait(barriers_.full + slot, parity_ >> slot & 1, watch, Place::full_slot);
    parity_ ^= 1U << slot;
    return memory_ + slot * bytes_;
  }
  __device__ void release(int slot, int lane) {
    __syncwarp();
    if (lane == 0) kernels::cuda::bar_arrive(kernels::cuda::smem_addr(barriers_.empty + slot));
  }
  // By one thread: copies `bytes` into the slot when it is empty.
  __device__ void fill(int slot, const unsigned char* from, int bytes, Watch& watch) {
    wait(barriers_.empty + slot, ~parity_ >> slot & 1, watch, Place::empty_slot);
    parity_ ^= 1U << slot;
    const std::uint32_t full = kernels::cuda::smem_addr(barriers_.full + slot);
    kernels::cuda::bar_expect(full, static_cast<std::uint32_t>(bytes));
    kernels::cuda::bulk_copy(kernels::cuda::smem_addr(memory_ + slot * bytes_), from,
                             static_cast<std::uint32_t>(bytes), full);
  }

 private:
  __device__ int wrapped(int slot) const { return slot >= count_ ? slot - count_ : slot; }
  __device__ static void wait(const std::uint64_t* barrier, std::uint32_t parity, Watch& watch,
                              Place place) {
    watch.wait(kernels::cuda::smem_addr(barrier), parity, place);
  }

  unsigned char* memory_;
  Barriers& barriers_;
  int bytes_;
  int count_;
  int ahead_;
  int at_ = 0;
  std::uint32_t parity_ = 0;
};

}  // namespace motley::bench::half_step
