// The warp that copies a block's weights into the ring, in the order in which they are used, and
// what it and the consumers have to know about the block's share.
#pragma once

#include "choose.cuh"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::bench::HALF_STEP_NAMESPACE {

constexpr int choice_barrier = 1;
constexpr int consumer_barrier = 2;

// The stages of the projections that a block has, in the order of their use.
class ProjectionStages {
 public:
  __device__ explicit ProjectionStages(const Weights& w)
      : w_(w), share_(static_cast<int>(gridDim.x)) {
    units_ = (share_.units - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
             static_cast<int>(gridDim.x);
    tiles_end_ = share_.tiles * projection_stages;
  }
  __device__ int tiles() const { return share_.tiles; }
  __device__ int units() const { return units_; }
  __device__ int count() const { return tiles_end_ + units_ * unit_stages; }
  __device__ int tile_of(int i) const {
    return static_cast<int>(blockIdx.x) + i * static_cast<int>(gridDim.x);
  }
  // The first output of the block's row tile or unit i, which count on from the tiles.
  __device__ int first_row(int i) const {
    if (i < tiles()) return tile * tile_of(i);
    return tile * tiles() * static_cast<int>(gridDim.x) + 8 * tile_of(i - tiles());
  }
  __device__ const unsigned char* at(int i) const {
    if (i < tiles_end_) {
      const int stage = tile_of(i / projection_stages) * projection_stages + i % projection_stages;
      return w_.projection_tiles + static_cast<std::size_t>(stage) * stage_bytes;
    }
    i -= tiles_end_;
    const int stage = tile_of(i / unit_stages) * unit_stages + i % unit_stages;
    return w_.projection_units + static_cast<std::size_t>(stage) * stage_bytes;
  }

 private:
  const Weights& w_;
  ProjectionShare share_;
  int units_;
  int tiles_end_;
};

template <class Format, int rows, Design design>
class Producer {
 public:
  __device__ Producer(const HalfStep& p, Slots slots, const Choice<rows>& choice, bool issues)
      : p_(p),
        slots_(slots),
        choice_(choice),
        issues_(issues),
        watch_(p),
        block_(static_cast<int>(blockIdx.x)),
        blocks_(static_cast<int>(gridDim.x)) {}

  __device__ void run() {
    const ProjectionStages projection(p_.weights);
    const int ahead = min(p_.rung.ahead, projection.count());
    if (block_ < output_tiles)
      fill_stages(p_.weights.output, block_ * output_stages, output_stages, stage_bytes);
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) fill(i, projection.at(i), stage_bytes);
    // The shared expert is known beforehand. Until the choice, no stage of it is released.
    const bool has_shared = shared_experts != 0 && design != Design::whole && block_ < slices;
    const int early = has_shared ? min(slice_stages, p_.slots - p_.rung.ahead) : 0;
    gate_up_slice(experts, block_, 0, early);
    const bool routes = p_.rung.routes;
    __syncwarp();
    if (routes) kernels::cuda::named_barrier(choice_barrier, threads);
    const int* const list = routes ? choice_.list : p_.expert_list + 1;
    const int count = routes ? choice_.count : p_.expert_list[0];
    if constexpr (design == Design::whole) {
      whole(list, count);
    } else {
      split(list, count, early);
    }
#pragma unroll 1
    for (int i = ahead; i < projection.count(); ++i)
      fill(slots_.next(), projection.at(i), stage_bytes);
  }

 private:
  __device__ void whole(const int* list, int count) {
    const int items = count * gate_up_tiles;
#pragma unroll 1
    for (int item = block_; item < items; item += blocks_) {
      const int first = (list[item / gate_up_tiles] * gate_up_tiles + item % gate_up_tiles) *
                        Format::gate_up_stages;
      fill_stages(p_.weights.gate_up, first, Format::gate_up_stages, Format::gate_up_bytes);
    }
    if (block_ >= down_tiles) return;
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const int first = (list[n] * down_tiles + block_) * Format::down_stages;
      fill_stages(p_.weights.down, first, Format::down_stages, Format::down_bytes);
    }
  }
  // gate_up of each slice one slice ahead of down.
  __device__ void split(const int* list, int count, int early) {
    const int items = count * slices;
#pragma unroll 1
    for (int item = block_ - blocks_; item < items; item += blocks_) {
      const int next = item + blocks_;
      if (next < items)
        gate_up_slice(list[next / slices], next % slices, item < 0 ? early : 0, slice_stages);
      if (item >= 0)
        fill_stages(p_.weights.slices,
                    (list[item / slices] * slices + item % slices) * Format::slice_stages,
                    Format::slice_stages, Format::slice_bytes);
    }
  }
  static constexpr int slice_stages = 2 * Format::gate_up_stages;  // of gate_up
  __device__ void gate_up_slice(int expert, int slice, int begin, int end) {
    fill_stages(p_.weights.gate_up, (expert * slices + slice) * slice_stages + begin, end - begin,
                Format::gate_up_bytes);
  }
  __device__ void fill_stages(const unsigned char* weights, int first, int count, int bytes) {
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      fill(slots_.next(), weights + static_cast<std::size_t>(first + i) * bytes, bytes);
  }
  __device__ void fill(int slot, const unsigned char* from, int bytes) {
    if (issues_) slots_.fill(slot, from, bytes, watch_);
  }

  const HalfStep& p_;
  Slots slots_;
  const Choice<rows>& choice_;
  bool issues_;
  Watch watch_;
  int block_;
  int blocks_;
};

}  // namespace motley::bench::HALF_STEP_NAMESPACE
