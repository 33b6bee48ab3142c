// The first design: the row tiles of gate_up over all blocks, h to all blocks, then each block has
// a row tile of down for all experts.
#pragma once

#include "consumer.cuh"

namespace motley::bench::HALF_STEP_NAMESPACE {

template <class Format, int rows, bool computes>
class WholeConsumer : public Consumer<Format, rows, computes> {
  using Base = Consumer<Format, rows, computes>;
  using typename Base::Products;

 public:
  __device__ WholeConsumer(const HalfStep& p, Slots slots, Shared<rows>& shared,
                           WholeBuffers<rows>& buffers)
      : Base(p, slots, shared, buffers), inner_(buffers.inner_values) {}

  __device__ void run() {
    this->begin();
    gate_up();
    this->stamp(6);
    if (this->p_.rung.hands_over) gather_inner();
    this->stamp(7);
    down();
    this->stamp(8);
    this->end();
  }

 private:
  static constexpr int batch = Buffers<rows>::items / 2;  // row tiles whose sums are joined at once

  __device__ void gate_up() {
    const int items = this->count_ * gate_up_tiles;
    int in_batch = 0;
    int buffer = 0;
    int first = this->block_;
#pragma unroll 1
    for (int item = this->block_; item < items; item += this->blocks_) {
      Sums sums[1];
      this->template multiply_gate_up<1>(sums);
      this->store_sums(buffer * batch + in_batch, sums[0]);
      if (++in_batch < batch && item + this->blocks_ < items) continue;
      if (this->p_.rung.hands_over) {
        this->join();
        send_inner(buffer, first, in_batch);
      }
      in_batch = 0;
      buffer ^= 1;
      first = item + this->blocks_;
    }
  }
  // silu(gate) * up of a batch of row tiles, for the rows that chose the expert. Two values a
  // thread.
  __device__ void send_inner(int buffer, int first, int in_batch) {
    const int n = this->thread_ / (4 * rows);
    if (n >= in_batch) return;
    const int row = this->thread_ / 4 % rows;
    const int pair = this->thread_ % 4;
    const int item = first + n * this->blocks_;
    const int slot = this->shared_.choice.slots[row][this->list_[item / gate_up_tiles]];
    if (slot < 0) return;
    const float scale = this->scale_of(0, row);
    float h[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = buffer * batch + n;
      h[i] = silu(scale * this->joined(at, row, 2 * pair + i)) *
             (scale * this->joined(at, row, 8 + 2 * pair + i));
      this->log(Log{rows}.inner_values() + (row * taken + slot) * inner + item % gate_up_tiles * 8 +
                    2 * pair + i,
                rounded(h[i], 0));
    }
    store_cell(this->cells_ + Cells{rows}.inner_values() + (row * taken + slot) * (inner / 2) +
                   item % gate_up_tiles * 4 + pair,
               rounded(h[0], h[1]));
  }
  __device__ void gather_inner() {
    constexpr int vectors = inner * static_cast<int>(sizeof(Bf16)) / 16;  // of a row's expert
    constexpr int own = rows * taken * vectors / consumers;
    static_assert(rows * taken * vectors % consumers == 0);
    uint4 v[own];
    read_cells(
        v,
        reinterpret_cast<const uint4*>(this->cells_ + Cells{rows}.inner_values()) + this->thread_,
        consumers, this->p_.rung.pause_ns, this->watch_, Place::inner_values,
        [](int, const uint4& words) { return is_written(words); });
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int at = this->thread_ + consumers * i;
      reinterpret_cast<uint4*>(inner_[at / vectors])[at % vectors] = v[i];
    }
    this->join();
  }

  // Experts in ascending order; a row that did not choose one adds zero.
  __device__ void down() {
    if (this->block_ >= down_tiles) return;
    constexpr int tiles = slices / consumer_warps;
    Sums all;
#pragma unroll 1
    for (int n = 0; n < this->count_; ++n) {
      uint2 x[tiles];
      float weights[2] = {};
      if constexpr (computes) inner_inputs(x, weights, this->list_[n]);
      Sums sums;
      this->template use<Format::down_stages>([&](const Stages<Format::down_stages>& stages) {
        Products::down(stages, x, this->l_, sums);
      });
#pragma unroll
      for (int i = 0; i < 4; ++i) all.even[i] = fmaf(weights[i % 2], sums.at(i), all.even[i]);
    }
    if (!this->p_.rung.hands_over) return;
    this->store_sums(0, all);
    this->join();
    const int thread = this->thread_;
    if (thread < tile * rows)
      this->send_own(Cells{rows}.sum(), Log{rows}.sum(),
                     this->joined(0, thread / tile, thread % tile), computes);
  }
  template <int tiles>
  __device__ void inner_inputs(uint2 (&x)[tiles], float (&weights)[2], int expert) const {
    const auto& choice = this->shared_.choice;
    const Lane& l = this->l_;
    const int slot = l.group() < rows ? choice.slots[l.group()][expert] : -1;
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      x[i] = {};
      if (slot >= 0)
        x[i] =
            *reinterpret_cast<const uint2*>(inner_[l.group() * taken + slot] +
                                            tile * Products::down_tile(l.warp, i) + 4 * l.quad());
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * l.quad() + i;
      const int of_row = row < rows ? choice.slots[row][expert] : -1;
      weights[i] = of_row >= 0 ? choice.weights[row][of_row] : 0.0F;
    }
  }

  Bf16 (&inner_)[rows * taken][inner_pitch];
};

}  // namespace motley::bench::HALF_STEP_NAMESPACE
