// The second design: a block multiplies slices of experts, gate_up and the columns of down that
// read its own h, without waiting for other blocks. Its sums for all outputs go to the outputs'
// owners.
#pragma once

#include "consumer.cuh"

namespace motley::bench::HALF_STEP_NAMESPACE {

template <class Format, int rows, bool computes>
class SplitConsumer : public Consumer<Format, rows, computes> {
  using Base = Consumer<Format, rows, computes>;
  using typename Base::Products;

 public:
  __device__ SplitConsumer(const HalfStep& p, Slots slots, Shared<rows>& shared,
                           Buffers<rows>& buffers)
      : Base(p, slots, shared, buffers) {}

  __device__ void run() {
    this->begin();
    Parts<rows> parts;
    multiply(parts);
    this->stamp(6);
    if (this->p_.rung.hands_over) {
      send_parts(parts);
      this->stamp(7);
      add_parts();
    }
    this->stamp(8);
    this->end();
  }

 private:
  // gate_up of a slice is one slice ahead of down, so that one barrier serves both.
  __device__ void multiply(Parts<rows>& parts) {
    const int items = this->count_ * slices;
    const float scale =
        computes && this->thread_ < tile * rows ? this->scale_of(0, this->thread_ / tile) : 0;
    int buffer = 0;
#pragma unroll 1
    for (int item = this->block_ - this->blocks_; item < items; item += this->blocks_) {
      if (item >= 0 && this->thread_ < tile * rows) make_inner(item, buffer, scale);
      if (item + this->blocks_ < items) {
        Sums sums[2];
        this->template multiply_gate_up<2>(sums);
        this->store_sums(2 * (buffer ^ 1), sums[0]);
        this->store_sums(2 * (buffer ^ 1) + 1, sums[1]);
      }
      if constexpr (computes) this->join();
      if (item >= 0) multiply_down(item, buffer, parts);
      buffer ^= 1;
    }
  }
  // silu(gate) * up of a slice, a value a thread; zero of a row that did not choose the expert.
  __device__ void make_inner(int item, int buffer, float scale) {
    if constexpr (computes) {
      const int row = this->thread_ / tile;
      const int at = this->thread_ % tile;
      const int slot = this->shared_.choice.slots[row][this->list_[item / slices]];
      const int from = 2 * buffer + at / 8;
      const float h = silu(scale * this->joined(from, row, at % 8)) *
                      (scale * this->joined(from, row, 8 + at % 8));
      const std::uint32_t word = slot >= 0 ? rounded(h, 0) : 0;
      this->buffers_.slice[buffer][row][at] =
          __ushort_as_bfloat16(static_cast<unsigned short>(word));
      if (slot >= 0)
        this->log(
            Log{rows}.inner_values() + (row * taken + slot) * inner + item % slices * tile + at,
            word);
    }
  }
  __device__ void multiply_down(int item, int buffer, Parts<rows>& parts) {
    const Lane& l = this->l_;
    uint2 x = {};
    float weights[2] = {};
    if constexpr (computes) {
      const auto& choice = this->shared_.choice;
      if (l.group() < rows)
        x = *reinterpret_cast<const uint2*>(this->buffers_.slice[buffer][l.group()] + 4 * l.quad());
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 2 * l.quad() + i;
        const int slot = row < rows ? choice.slots[row][this->list_[item / slices]] : -1;
        weights[i] = slot >= 0 ? choice.weights[row][slot] : 0.0F;
      }
    }
#pragma unroll
    for (int i = 0; i < Format::slice_stages; i += 2)
      this->template use<2>([&](const Stages<2>& stages) {
        Products::slice(stages[0], i, x, weights, l, parts);
        Products::slice(stages[1], i + 1, x, weights, l, parts);
      });
  }

  // ---- sums of slices ----
  __device__ std::uint32_t parity() const { return this->epoch_ % 2; }

  // Every block writes all of its sums, also zeros.
  __device__ void send_parts(const Parts<rows>& parts) {
    const Lane& l = this->l_;
#pragma unroll
    for (int at = 0; at < warp_tiles; ++at) {
      std::uint32_t* const to =
          this->p_.parts + static_cast<std::size_t>(
                               Products::slice_tile(l.warp, at) * this->blocks_ + this->block_) *
                               rows * tile;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * l.quad() + i % 2;
        if (row >= rows || (rows == 1 && i % 2 == 1)) continue;
        const float value = parts.v[at][rows == 1 ? i / 2 : i];
        store_cell(to + row * tile + l.group() + i / 2 * 8,
                   (__float_as_uint(value) & ~1U) | parity());
      }
    }
  }
  // Adds all blocks' sums for this block's outputs, in a fixed order, and sends the outputs.
  __device__ void add_parts() {
    if (this->block_ >= output_tiles) return;
    constexpr int step = rows * tile / 4;  // vectors of a block
    constexpr int own = (max_blocks * step + consumers - 1) / consumers;
    const int vectors = this->blocks_ * step;
    const auto* const from =
        reinterpret_cast<const uint4*>(this->p_.parts) + this->block_ * vectors;
    const int thread = this->thread_;
    const std::uint32_t wanted = parity();
    uint4 v[own];
    // Past the end the vector before is read again, and left out below.
    read_parts(v, from, vectors, wanted);
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < own; ++i) {
      if (thread + consumers * i >= vectors) continue;
      sums[0] += __uint_as_float(v[i].x & ~1U);
      sums[1] += __uint_as_float(v[i].y & ~1U);
      sums[2] += __uint_as_float(v[i].z & ~1U);
      sums[3] += __uint_as_float(v[i].w & ~1U);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int offset = step; offset < 32; offset *= 2)
        sums[i] += __shfl_xor_sync(all_lanes, sums[i], offset);
    }
    auto& to = this->buffers_.parts[this->l_.warp];
    if (this->l_.lane < step)
      *reinterpret_cast<float4*>(&to[0][0] + 4 * this->l_.lane) =
          make_float4(sums[0], sums[1], sums[2], sums[3]);
    this->join();
    if (thread >= tile * rows) return;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < consumer_warps; ++warp)
      sum += this->buffers_.parts[warp][thread / tile][thread % tile];
    this->send_own(Cells{rows}.sum(), Log{rows}.sum(), sum, computes);
  }
  template <int own>
  __device__ void read_parts(uint4 (&v)[own], const uint4* from, int vectors,
                             std::uint32_t wanted) {
    const int last = vectors - 1;
    const int thread = this->thread_;
#pragma unroll
    for (int i = 0; i < own; ++i) v[i] = load_cells(from + min(thread + consumers * i, last));
    const auto is_there = [&](const uint4& w) {
      return ((w.x ^ wanted) & 1) == 0 && ((w.y ^ wanted) & 1) == 0 && ((w.z ^ wanted) & 1) == 0 &&
             ((w.w ^ wanted) & 1) == 0;
    };
    for (;;) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < own; ++i) all = all && is_there(v[i]);
      if (all || this->watch_.expired(Place::parts)) return;
      if (this->p_.rung.pause_ns != 0) __nanosleep(static_cast<unsigned>(this->p_.rung.pause_ns));
#pragma unroll
      for (int i = 0; i < own; ++i) {
        if (!is_there(v[i])) v[i] = load_cells(from + min(thread + consumers * i, last));
      }
    }
  }
};

}  // namespace motley::bench::HALF_STEP_NAMESPACE
