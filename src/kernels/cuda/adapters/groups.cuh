// Groups the rows of a step by label, wherever they are in the step.
#pragma once

#include "kernels/cuda/adapters/adapters.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int threads = 256;
inline constexpr int warps = threads / 32;
// Where no list of groups is given, blocks search stretches of this many rows, one row per thread.
inline constexpr int stretch_rows = threads;

// The number of blocks, or clusters, that work on groups concurrently.
struct Slots {
  int count;
  int of_stretch;  // of a stretch, where blocks search for groups themselves
};

struct alignas(16) GroupMemory {
  // The rows of a stretch, where blocks search for groups themselves.
  std::int32_t labels[stretch_rows];
  std::int16_t before[stretch_rows];  // rows of the same label before this one
  std::int16_t leads[stretch_rows];   // the group of which it is the first row; or -1
  int leaders[warps];                 // rows of each warp that begin a group
  int chosen[2];                      // label and piece of the current group
  std::int32_t rows[max_group_rows(few_adapted_rows + 1)];
};

// Some rows of one label: the first `rows` entries of GroupMemory::rows.
struct Group {
  TermRange terms;
  int rows;
};

// The groups of a slot: rows of one label, max_rows at a time. Base rows form groups only if
// `with_base`. All threads of a block call every function together.
template <int max_rows>
class Groups {
 public:
  __device__ Groups(const AdapterRows& adapters, const Slots& slots, int slot, bool with_base,
                    GroupMemory& memory)
      : adapters_(adapters), memory_(memory) {
    static_assert(max_rows <= 32);
    if (adapters.groups.counts != nullptr) {
      count_ = adapters.groups.counts[with_base ? 1 : 0];
      begin_ = slot;
      step_ = slots.count;
      return;
    }
    begin_ = slot % slots.of_stretch;
    step_ = slots.of_stretch;
    first_row_ = slot / slots.of_stretch * stretch_rows;
    if (adapters.labels_in_step) wait_for_previous_grid();
    look_through(with_base);
  }

  // The slot's groups are begin(), begin() + step(), ... below end().
  __device__ int begin() const { return begin_; }
  __device__ int step() const { return step_; }
  __device__ int end() const { return count_; }

  // Call when all threads are done with the previous group.
  __device__ Group take(int number) {
    if (adapters_.groups.counts == nullptr) return take_found(number);
    const RowGroup group = adapters_.groups.groups[number];
    const int t = static_cast<int>(threadIdx.x);
    if (t < group.rows) memory_.rows[t] = adapters_.groups.order[group.first + t];
    __syncthreads();
    return {.terms = {group.term_begin, group.term_end}, .rows = group.rows};
  }

 private:
  // Finds a stretch's groups, in the order of their first rows.
  __device__ void look_through(bool with_base) {
    const int t = static_cast<int>(threadIdx.x);
    const bool there = first_row_ + t < adapters_.rows;
    const int label = there ? adapters_.labels[first_row_ + t] : -1;
    memory_.labels[t] = label;
    __syncthreads();
    const bool alike = __syncthreads_and(!there || label == memory_.labels[0]) != 0;
    const int before = alike ? t : rows_before(t, label);
    const bool leads = there && (with_base || label >= 0) && before % max_rows == 0;
    const unsigned leaders = __ballot_sync(0xFFFFFFFF, leads);
    if (t % 32 == 0) memory_.leaders[t / 32] = __popc(leaders);
    __syncthreads();
    int number = __popc(leaders & ((1U << (t % 32)) - 1));
    for (int w = 0; w < warps; ++w) {
      if (w < t / 32) number += memory_.leaders[w];
      count_ += memory_.leaders[w];
    }
    memory_.before[t] = static_cast<std::int16_t>(before);
    memory_.leads[t] = static_cast<std::int16_t>(leads ? number : -1);
  }
  // Counts the rows of this thread's label before its own.
  __device__ int rows_before(int t, int label) const {
    int before = 0;
    const int end = t / 32 * 32;
    for (int i = 0; i < end; i += 4) {
      const int4 vec4 = *reinterpret_cast<const int4*>(memory_.labels + i);
      before += (vec4.x == label) + (vec4.y == label) + (vec4.z == label) + (vec4.w == label);
    }
    const unsigned alike = __match_any_sync(0xFFFFFFFF, label);
    return before + __popc(alike & ((1U << (t % 32)) - 1));
  }
  __device__ Group take_found(int number) {
    const int t = static_cast<int>(threadIdx.x);
    const int before = memory_.before[t];
    if (memory_.leads[t] == number) {
      memory_.chosen[0] = memory_.labels[t];
      memory_.chosen[1] = before / max_rows;
    }
    __syncthreads();
    const int label = memory_.chosen[0];
    const bool inside = first_row_ + t < adapters_.rows && memory_.labels[t] == label &&
                        before / max_rows == memory_.chosen[1];
    if (inside) memory_.rows[before % max_rows] = first_row_ + t;
    const int rows = __syncthreads_count(inside);
    return {.terms = terms_of(adapters_, label), .rows = rows};
  }

  const AdapterRows& adapters_;
  GroupMemory& memory_;
  int begin_ = 0;
  int step_ = 1;
  int count_ = 0;
  int first_row_ = 0;  // of the stretch
};

}  // namespace motley::kernels::cuda::adapter_tiles
