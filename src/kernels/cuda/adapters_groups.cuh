// Rows of one label together, wherever in a window of rows they stand.
#pragma once

#include "kernels/cuda/adapters.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int threads = 256;
inline constexpr int warps = threads / 32;
// Rows are looked through in windows of this many: a thread has one of them.
inline constexpr int window_rows = threads;

struct alignas(16) GroupMemory {
  std::int32_t labels[window_rows];
  int leaders[warps];  // rows of the warp that begin a group
  int chosen[2];       // label and piece of the group that is worked on
  std::int64_t rows[64];
};

// Some rows with one label: GroupMemory::rows, as many as `rows` says.
struct Group {
  int label;
  int rows;
};

// The groups of a window: rows of one label, most_rows at a time, in the order of their first rows.
// The base's rows have groups only if they are asked for. Every thread of the block makes one.
template <int most_rows>
class Groups {
 public:
  __device__ Groups(const AdapterRows& adapters, std::int64_t window, bool with_base,
                    GroupMemory& memory)
      : memory_(memory) {
    static_assert(most_rows <= 64);
    const int t = static_cast<int>(threadIdx.x);
    row_ = window * window_rows + t;
    const bool there = row_ < adapters.rows;
    label_ = there ? adapters.labels[row_] : -1;
    memory.labels[t] = label_;
    __syncthreads();
    const bool alike = __syncthreads_and(!there || label_ == memory.labels[0]) != 0;
    before_ = alike ? t : rows_before(t);
    member_ = there && (with_base || label_ >= 0);
    const bool leads = member_ && before_ % most_rows == 0;
    const unsigned leaders = __ballot_sync(0xFFFFFFFF, leads);
    if (t % 32 == 0) memory.leaders[t / 32] = __popc(leaders);
    __syncthreads();
    int number = __popc(leaders & ((1U << (t % 32)) - 1));
    for (int w = 0; w < warps; ++w) {
      if (w < t / 32) number += memory.leaders[w];
      count_ += memory.leaders[w];
    }
    leads_ = leads ? number : -1;
  }

  __device__ int count() const { return count_; }

  // All threads call it, when nobody needs the group before any more.
  __device__ Group take(int number) const {
    if (leads_ == number) {
      memory_.chosen[0] = label_;
      memory_.chosen[1] = before_ / most_rows;
    }
    __syncthreads();
    const Group group{.label = memory_.chosen[0], .rows = 0};
    const bool inside =
        member_ && label_ == group.label && before_ / most_rows == memory_.chosen[1];
    if (inside) memory_.rows[before_ % most_rows] = row_;
    return {.label = group.label, .rows = __syncthreads_count(inside)};
  }

 private:
  // Rows of this thread's label before its own.
  __device__ int rows_before(int t) const {
    int before = 0;
    const int end = t / 32 * 32;
    for (int i = 0; i < end; i += 4) {
      const int4 four = *reinterpret_cast<const int4*>(memory_.labels + i);
      before += (four.x == label_) + (four.y == label_) + (four.z == label_) + (four.w == label_);
    }
    const unsigned alike = __match_any_sync(0xFFFFFFFF, label_);
    return before + __popc(alike & ((1U << (t % 32)) - 1));
  }

  GroupMemory& memory_;
  std::int64_t row_ = 0;
  int label_ = -1;
  int before_ = 0;
  bool member_ = false;
  int leads_ = -1;  // the group whose first row this thread has
  int count_ = 0;
};

}  // namespace motley::kernels::cuda::adapter_tiles
