// The warp that copies a block's weights into the ring, in the order in which they are used, and
// what it and the consumers have to know about the block's share.
#pragma once

#include "kernels/cuda/primitives/launch.cuh"
#include "pipeline.cuh"
#include "shape.h"

namespace motley::bench::half_step {

constexpr int choice_barrier = 1;
constexpr int consumer_barrier = 2;

// Which experts each row chose, and all of them in ascending order.
template <int rows>
struct Choice {
  static constexpr int max_live = rows * chosen;
  float weights[rows][chosen];
  signed char slots[rows][experts];  // of an expert among the row's, or -1
  std::uint32_t live[experts / 32];
  int count;
  int list[max_live];
};

// The stages of q, k and v that a block has, in the order of their use.
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

template <class Format, int rows>
class Producer {
 public:
  __device__ Producer(const HalfStep& p, Slots slots, const Choice<rows>& choice, bool issues)
      : p_(p), slots_(slots), choice_(choice), issues_(issues), watch_(p) {}

  __device__ void run() {
    const int block = static_cast<int>(blockIdx.x);
    const ProjectionStages projection(p_.weights);
    const int ahead = min(p_.rung.ahead, projection.count());
    if (block < output_tiles) {
#pragma unroll 1
      for (int i = 0; i < output_stages; ++i)
        fill(i, p_.weights.output, block * output_stages + i, stage_bytes);
    }
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) fill(slots_.ahead(i), projection.at(i), 0, stage_bytes);
    const bool routes = p_.rung.routes;
    __syncwarp();
    if (routes) kernels::cuda::named_barrier(choice_barrier, threads);
    experts_weights(routes ? choice_.list : p_.expert_list + 1,
                    routes ? choice_.count : p_.expert_list[0]);
#pragma unroll 1
    for (int i = ahead; i < projection.count(); ++i)
      fill(slots_.next(), projection.at(i), 0, stage_bytes);
  }

 private:
  __device__ void experts_weights(const int* list, int count) {
    const int items = count * gate_up_tiles;
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < items;
         item += static_cast<int>(gridDim.x)) {
      const int first = (list[item / gate_up_tiles] * gate_up_tiles + item % gate_up_tiles) *
                        Format::gate_up_stages;
#pragma unroll 1
      for (int i = 0; i < Format::gate_up_stages; ++i)
        fill(slots_.next(), p_.weights.gate_up, first + i, Format::gate_up_bytes);
    }
    if (blockIdx.x >= down_tiles) return;
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const int first = (list[n] * down_tiles + static_cast<int>(blockIdx.x)) * Format::down_stages;
#pragma unroll 1
      for (int i = 0; i < Format::down_stages; ++i)
        fill(slots_.next(), p_.weights.down, first + i, Format::down_bytes);
    }
  }
  __device__ void fill(int slot, const unsigned char* weights, int stage, int bytes) {
    if (issues_)
      slots_.fill(slot, weights + static_cast<std::size_t>(stage) * bytes, bytes, watch_);
  }

  const HalfStep& p_;
  Slots slots_;
  const Choice<rows>& choice_;
  bool issues_;
  Watch watch_;
};

}  // namespace motley::bench::half_step
