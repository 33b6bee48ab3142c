// Rows of one label together, wherever they stand.
#pragma once

#include "kernels/cuda/adapters.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int threads = 256;
inline constexpr int warps = threads / 32;
// Where groups are not known, rows are looked through in windows of so many: a thread has one.
inline constexpr int window_rows = threads;

// As many blocks, or clusters, as work on groups of rows side by side.
struct Slots {
  int count;
  int of_window;  // where each looks for its groups itself
};

struct alignas(16) GroupMemory {
  std::int32_t labels[window_rows];
  int leaders[warps];  // rows of the warp that begin a group
  int chosen[2];       // label and piece of the group that is worked on
  std::int32_t rows[most_group_rows(few_adapted_rows + 1)];
};

// Some rows with one label: GroupMemory::rows, as many as `rows` says.
struct Group {
  TermRange terms;
  int rows;
};

// The groups of a slot: rows of one label, most_rows at a time. The base's rows have groups only if
// they are asked for. All threads of a block do everything here together.
template <int most_rows>
class Groups {
 public:
  __device__ Groups(const AdapterRows& adapters, const Slots& slots, int slot, bool with_base,
                    GroupMemory& memory)
      : adapters_(adapters), memory_(memory) {
    static_assert(most_rows <= 32);
    if (adapters.groups.count != nullptr) {
      listed_ = *adapters.groups.count;
      count_ =
          listed_ + (with_base ? static_cast<int>((adapters.rows + most_rows - 1) / most_rows) : 0);
      begin_ = slot;
      step_ = slots.count;
      return;
    }
    begin_ = slot % slots.of_window;
    step_ = slots.of_window;
    look_through(slot / slots.of_window, with_base);
  }

  // Groups begin(), begin() + step(), ... below end().
  __device__ int begin() const { return begin_; }
  __device__ int step() const { return step_; }
  __device__ int end() const { return count_; }

  // When nobody needs the group before any more.
  __device__ Group take(int number) {
    if (adapters_.groups.count == nullptr) return take_found(number);
    return number < listed_ ? take_listed(number) : take_base(number - listed_);
  }

 private:
  __device__ Group take_listed(int number) {
    const RowGroup group = adapters_.groups.groups[number];
    const int t = static_cast<int>(threadIdx.x);
    if (t < group.rows) memory_.rows[t] = adapters_.groups.order[group.first + t];
    __syncthreads();
    return {.terms = {group.term_begin, group.term_end}, .rows = group.rows};
  }
  // Those of some neighbouring rows that are the base's.
  __device__ Group take_base(int number) {
    const int t = static_cast<int>(threadIdx.x);
    if (t < 32) {
      const int row = number * most_rows + t;
      const bool inside = t < most_rows && row < adapters_.rows && adapters_.labels[row] < 0;
      const unsigned members = __ballot_sync(0xFFFFFFFF, inside);
      if (inside) memory_.rows[__popc(members & ((1U << t) - 1))] = row;
      if (t == 0) memory_.chosen[0] = __popc(members);
    }
    __syncthreads();
    return {.terms = {}, .rows = memory_.chosen[0]};
  }

  // A window's groups, in the order of their first rows.
  __device__ void look_through(int window, bool with_base) {
    const int t = static_cast<int>(threadIdx.x);
    row_ = window * window_rows + t;
    const bool there = row_ < adapters_.rows;
    label_ = there ? adapters_.labels[row_] : -1;
    memory_.labels[t] = label_;
    __syncthreads();
    const bool alike = __syncthreads_and(!there || label_ == memory_.labels[0]) != 0;
    before_ = alike ? t : rows_before(t);
    member_ = there && (with_base || label_ >= 0);
    const bool leads = member_ && before_ % most_rows == 0;
    const unsigned leaders = __ballot_sync(0xFFFFFFFF, leads);
    if (t % 32 == 0) memory_.leaders[t / 32] = __popc(leaders);
    __syncthreads();
    int number = __popc(leaders & ((1U << (t % 32)) - 1));
    for (int w = 0; w < warps; ++w) {
      if (w < t / 32) number += memory_.leaders[w];
      count_ += memory_.leaders[w];
    }
    leads_ = leads ? number : -1;
  }
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
  __device__ Group take_found(int number) {
    if (leads_ == number) {
      memory_.chosen[0] = label_;
      memory_.chosen[1] = before_ / most_rows;
    }
    __syncthreads();
    const int label = memory_.chosen[0];
    const bool inside = member_ && label_ == label && before_ / most_rows == memory_.chosen[1];
    if (inside) memory_.rows[before_ % most_rows] = row_;
    const int rows = __syncthreads_count(inside);
    return {.terms = terms_of(adapters_, label), .rows = rows};
  }

  const AdapterRows& adapters_;
  GroupMemory& memory_;
  int begin_ = 0;
  int step_ = 1;
  int count_ = 0;
  int listed_ = 0;
  // This thread's row of the window.
  int row_ = 0;
  int label_ = -1;
  int before_ = 0;
  bool member_ = false;
  int leads_ = -1;  // the group whose first row it is
};

}  // namespace motley::kernels::cuda::adapter_tiles
