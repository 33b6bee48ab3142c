// The warps that multiply: half a layer from their side.
#pragma once

#include "choose.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "products.cuh"

namespace motley::bench::half_step {

constexpr int x_pitch = hidden + 16;  // lanes of four rows are in other banks
constexpr int inner_pitch = inner + 16;

// Shared memory after the slots.
template <int rows>
struct Buffers {
  static constexpr int batch = rows == 1 ? 8 : 4;  // row tiles whose sums are joined at once
  Bf16 x[rows][x_pitch];
  Bf16 inner_values[rows * chosen][inner_pitch];
  float sums[2][batch][consumer_warps][rows][tile];
};
template <int rows>
struct Shared {
  Barriers barriers;
  Choice<rows> choice;
  float squares[2][rows][consumer_warps];
  float router[rows][consumer_warps];
};

// Two numbers in bf16, and number i of four.
__device__ inline std::uint32_t rounded(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}
__device__ inline float number(const uint2& four, int i) {
  const std::uint32_t word = i < 2 ? four.x : four.y;
  return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000);
}

template <class Format, int rows, bool computes>
class Consumer {
 public:
  using Products = ExpertProducts<Format>;
  static constexpr int x_tiles = hidden / tile / consumer_warps;  // of a warp

  __device__ Consumer(const HalfStep& p, Slots slots, Shared<rows>& shared, Buffers<rows>& buffers)
      : p_(p),
        slots_(slots),
        shared_(shared),
        buffers_(buffers),
        watch_(p),
        thread_(static_cast<int>(threadIdx.x)),
        block_(static_cast<int>(blockIdx.x)),
        blocks_(static_cast<int>(gridDim.x)),
        l_{thread_ / 32, thread_ % 32} {}

  __device__ void run() {
    stamp(0);
    read_constants();
    kernels::cuda::wait_for_previous_grid();
    stamp(1);
    open_cells();
    output();
    stamp(2);
    uint2 x[x_tiles];
    if (p_.rung.hands_over) {
      gather<true>(Cells{rows}.x(), expert_norm_, 0, Place::x);
      stamp(3);
      send_logits();
      read_inputs(x, [&](int i) { return Products::gate_up_tile(l_.warp, i); });
      choose();
    }
    stamp(5);
    count_ = p_.rung.routes ? shared_.choice.count : p_.expert_list[0];
    list_ = p_.rung.routes ? shared_.choice.list : p_.expert_list + 1;
    gate_up(x);
    stamp(6);
    if (p_.rung.hands_over) gather_inner();
    stamp(7);
    down();
    stamp(8);
    if (p_.rung.hands_over) {
      gather<false>(Cells{rows}.sum(), projection_norm_, 1, Place::sum);
      read_inputs(x, [&](int i) { return ExpertProducts<Bf16Experts>::gate_up_tile(l_.warp, i); });
    }
    stamp(9);
    project(x);
    stamp(10);
    if (block_ == 0 && thread_ == 0) {
      *p_.epoch = epoch_ + 1;
      *p_.live = count_;
    }
  }

 private:
  __device__ void stamp(int i) const {
    if (p_.stamps != nullptr && thread_ == 0) p_.stamps[block_ * stamps + i] = clock64();
  }
  __device__ static void join() {
    __syncwarp();
    kernels::cuda::named_barrier(consumer_barrier, consumers);
  }
  // Inputs 4 (thread + consumers i) and the next three.
  __device__ uint2 own_inputs(const Bf16* row, int i) const {
    return reinterpret_cast<const uint2*>(row)[thread_ + consumers * i];
  }

  // What no other kernel writes.
  __device__ void read_constants() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      expert_norm_[i] = own_inputs(p_.weights.expert_norm, i);
      projection_norm_[i] = own_inputs(p_.weights.projection_norm, i);
      if (block_ < experts)
        router_[i] = own_inputs(p_.weights.router + std::size_t{blockIdx.x} * hidden, i);
    }
  }
  // Clears the other set of cells, which the launch before used.
  __device__ void open_cells() {
    epoch_ = load_relaxed(p_.epoch);
    const int words = Cells{rows}.words();
    cells_ = p_.cells + (epoch_ % 2) * words;
    std::uint32_t* const other = p_.cells + ((epoch_ + 1) % 2) * words;
#pragma unroll 1
    for (int i = block_ * consumers + thread_; i < words; i += blocks_ * consumers)
      other[i] = no_value;
    if (block_ < output_tiles && thread_ < tile * rows)
      own_x_ = __uint_as_float(load_relaxed(reinterpret_cast<const std::uint32_t*>(
          p_.residual + thread_ / tile * hidden + tile * block_ + thread_ % tile)));
  }

  // ---- products ----
  template <class Multiply>
  __device__ void use(int slot, const Multiply& multiply) {
    const unsigned char* const stage = slots_.take(slot, watch_);
    if constexpr (computes) multiply(stage);
    slots_.release(slot, l_.lane);
  }
  // The warp's inputs of a product; zeros in the columns that have no row.
  template <class TileOf>
  __device__ void read_inputs(uint2 (&x)[x_tiles], const TileOf& tile_of) const {
    if constexpr (computes) {
#pragma unroll
      for (int i = 0; i < x_tiles; ++i) {
        x[i] = {};
        if (l_.group() < rows)
          x[i] = *reinterpret_cast<const uint2*>(buffers_.x[l_.group()] + tile * tile_of(i) +
                                                 4 * l_.quad());
      }
    }
  }
  __device__ void store_sums(int buffer, int item, const Sums& sums) {
    if constexpr (computes) {
      auto& to = buffers_.sums[buffer][item][l_.warp];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * l_.quad() + i % 2;
        if (row < rows) to[row][l_.group() + i / 2 * 8] = sums.at(i);
      }
    }
  }
  // The sum of the warps, in their order.
  __device__ float joined(int buffer, int item, int row, int at) const {
    if constexpr (!computes) return 0;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < consumer_warps; ++warp)
      sum += buffers_.sums[buffer][item][warp][row][at];
    return sum;
  }

  __device__ void output() {
    if (block_ >= output_tiles) return;
    constexpr int step = stage_tiles / consumer_warps;
    uint2 x[output_stages * step];
    if constexpr (computes) {
#pragma unroll
      for (int i = 0; i < output_stages * step; ++i) {
        const int at = i / step * stage_tiles + l_.warp * step + i % step;
        x[i] = {};
        if (l_.group() < rows)
          x[i] = load_relaxed(reinterpret_cast<const uint2*>(
              p_.projections + l_.group() * projected + tile * at + 4 * l_.quad()));
      }
    }
    Sums sums;
#pragma unroll
    for (int i = 0; i < output_stages; ++i)
      use(i,
          [&](const unsigned char* stage) { multiply_bf16<step>(stage, x + step * i, l_, sums); });
    send_rows(Cells{rows}.x(), sums, false);
  }
  // Adds the block's outputs to x and writes x for all blocks.
  __device__ void send_rows(int cells, const Sums& sums, bool keep) {
    if (!p_.rung.hands_over) return;
    store_sums(0, 0, sums);
    join();
    if (thread_ >= tile * rows) return;
    const int row = thread_ / tile;
    const int column = tile * block_ + thread_ % tile;
    own_x_ += joined(0, 0, row, thread_ % tile);
    store_cell(cells_ + cells + row * hidden + column, __float_as_uint(own_x_));
    if (keep) p_.residual[row * hidden + column] = own_x_;
  }

  __device__ void gate_up(const uint2 (&x)[x_tiles]) {
    const int items = count_ * gate_up_tiles;
    int in_batch = 0;
    int buffer = 0;
    int first = block_;
#pragma unroll 1
    for (int item = block_; item < items; item += blocks_) {
      Sums sums;
#pragma unroll
      for (int i = 0; i < Format::gate_up_stages; ++i)
        use(slots_.next(), [&](const unsigned char* stage) {
          Products::gate_up(stage, x + Products::gate_up_step * i, l_, sums);
        });
      store_sums(buffer, in_batch, sums);
      if (++in_batch < Buffers<rows>::batch && item + blocks_ < items) continue;
      if (p_.rung.hands_over) {
        join();
        send_inner(buffer, first, in_batch);
      }
      in_batch = 0;
      buffer ^= 1;
      first = item + blocks_;
    }
  }
  // silu(gate) * up of a batch of row tiles, for the rows that chose the expert. Two values a
  // thread.
  __device__ void send_inner(int buffer, int first, int in_batch) {
    const int n = thread_ / (4 * rows);
    if (n >= in_batch) return;
    const int row = thread_ / 4 % rows;
    const int pair = thread_ % 4;
    const int item = first + n * blocks_;
    const int slot = shared_.choice.slots[row][list_[item / gate_up_tiles]];
    if (slot < 0) return;
    const float scale = scale_of(0, row);
    float h[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float gate = scale * joined(buffer, n, row, 2 * pair + i);
      const float up = scale * joined(buffer, n, row, 8 + 2 * pair + i);
      h[i] = gate / (1.0F + __expf(-gate)) * up;
    }
    store_cell(cells_ + Cells{rows}.inner_values() + (row * chosen + slot) * (inner / 2) +
                   item % gate_up_tiles * 4 + pair,
               rounded(h[0], h[1]));
  }

  // Experts in ascending order; a row that did not choose one adds zero.
  __device__ void down() {
    if (block_ >= down_tiles) return;
    constexpr int step = Products::down_step;
    constexpr int tiles = step * Format::down_stages;
    Sums all;
#pragma unroll 1
    for (int n = 0; n < count_; ++n) {
      uint2 x[tiles];
      float weights[2] = {};
      if constexpr (computes) inner_inputs(x, weights, list_[n]);
      Sums sums;
#pragma unroll
      for (int i = 0; i < Format::down_stages; ++i)
        use(slots_.next(),
            [&](const unsigned char* stage) { Products::down(stage, x + step * i, l_, sums); });
#pragma unroll
      for (int i = 0; i < 4; ++i) all.even[i] = fmaf(weights[i % 2], sums.at(i), all.even[i]);
    }
    send_rows(Cells{rows}.sum(), all, computes);
  }
  template <int tiles>
  __device__ void inner_inputs(uint2 (&x)[tiles], float (&weights)[2], int expert) const {
    const int slot = l_.group() < rows ? shared_.choice.slots[l_.group()][expert] : -1;
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      x[i] = {};
      if (slot >= 0)
        x[i] =
            *reinterpret_cast<const uint2*>(buffers_.inner_values[l_.group() * chosen + slot] +
                                            tile * Products::down_tile(l_.warp, i) + 4 * l_.quad());
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * l_.quad() + i;
      const int of_row = row < rows ? shared_.choice.slots[row][expert] : -1;
      weights[i] = of_row >= 0 ? shared_.choice.weights[row][of_row] : 0.0F;
    }
  }

  __device__ void project(const uint2 (&x)[x_tiles]) {
    const ProjectionStages stages(p_.weights);
    constexpr int step = stage_tiles / consumer_warps;
    int at = 0;
    const auto next_slot = [&] {
      const int i = at++;
      return i < p_.rung.ahead ? slots_.ahead(i) : slots_.next();
    };
    const int tiles = stages.tiles();
    const int items = tiles + stages.units();
#pragma unroll 1
    for (int item = 0; item < items; ++item) {
      Sums sums;
      if (item < tiles) {
#pragma unroll
        for (int i = 0; i < projection_stages; ++i)
          use(next_slot(), [&](const unsigned char* stage) {
            multiply_bf16<step>(stage, x + step * i, l_, sums);
          });
      } else {
#pragma unroll
        for (int i = 0; i < unit_stages; ++i)
          use(next_slot(), [&](const unsigned char* stage) {
            multiply_unit(stage, x + 2 * step * i, l_, sums);
          });
      }
      store_sums(0, item, sums);
    }
    if constexpr (!computes) return;
    join();
#pragma unroll 1
    for (int i = thread_; i < items * rows * tile; i += consumers) {
      const int item = i / (rows * tile);
      const int row = i / tile % rows;
      if (item >= tiles && i % tile >= 8) continue;
      p_.projections[row * projected + stages.first_row(item) + i % tile] =
          __float2bfloat16_rn(scale_of(1, row) * joined(0, item, row, i % tile));
    }
  }

  // ---- hand-overs ----
  __device__ float scale_of(int which, int row) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < consumer_warps; ++warp) sum += shared_.squares[which][row][warp];
    return rsqrtf(sum / hidden + norm_eps);
  }
  // Waits for x and puts x times the norm's weight into shared memory in bf16; the norm's scale
  // multiplies the products. `routes`: also this block's expert's logit.
  template <bool routes>
  __device__ void gather(int cells, const uint2 (&norm)[2], int which, Place place) {
    uint4 v[2 * rows];
    read_cells(v, reinterpret_cast<const uint4*>(cells_ + cells) + thread_, consumers, watch_,
               place);
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      float square = 0;
      float dot = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4& words = v[2 * row + i];
        const float values[] = {__uint_as_float(words.x), __uint_as_float(words.y),
                                __uint_as_float(words.z), __uint_as_float(words.w)};
        const uint2 out = {rounded(values[0] * number(norm[i], 0), values[1] * number(norm[i], 1)),
                           rounded(values[2] * number(norm[i], 2), values[3] * number(norm[i], 3))};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          square = fmaf(values[k], values[k], square);
          if constexpr (routes) dot = fmaf(number(out, k), number(router_[i], k), dot);
        }
        *reinterpret_cast<uint2*>(buffers_.x[row] + 4 * (thread_ + consumers * i)) = out;
      }
      square = kernels::cuda::warp_sum(square);
      if constexpr (routes) dot = kernels::cuda::warp_sum(dot);
      if (l_.lane == 0) {
        shared_.squares[which][row][l_.warp] = square;
        if constexpr (routes) shared_.router[row][l_.warp] = dot;
      }
    }
    join();
  }
  // By the last warp; the first ones choose.
  __device__ void send_logits() {
    if (block_ >= experts || l_.warp != consumer_warps - 1 || l_.lane >= rows) return;
    float sum = 0;
    if constexpr (computes) {
#pragma unroll
      for (int warp = 0; warp < consumer_warps; ++warp) sum += shared_.router[l_.lane][warp];
      sum *= scale_of(0, l_.lane);
    } else {
      sum = p_.logits[l_.lane * experts + block_];
    }
    store_cell(cells_ + Cells{rows}.logits() + l_.lane * experts + block_, __float_as_uint(sum));
  }
  __device__ void choose() {
    if (l_.warp < rows) {
      uint4 logits[1];
      read_cells(logits,
                 reinterpret_cast<const uint4*>(cells_ + Cells{rows}.logits()) +
                     l_.warp * (experts / 4) + l_.lane,
                 0, watch_, Place::logits);
      stamp(4);
      write_choice(shared_.choice, take_best(logits[0], l_.lane), l_.warp, l_.lane);
    }
    if constexpr (rows > 1) {
      join();
      write_list(shared_.choice, thread_);
    }
    __syncwarp();
    if (p_.rung.routes) {
      kernels::cuda::named_barrier(choice_barrier, threads);
    } else {
      join();
    }
  }
  __device__ void gather_inner() {
    constexpr int vectors = inner * static_cast<int>(sizeof(Bf16)) / 16;  // of a row's expert
    constexpr int own = rows * chosen * vectors / consumers;
    uint4 v[own];
    read_cells(v, reinterpret_cast<const uint4*>(cells_ + Cells{rows}.inner_values()) + thread_,
               consumers, watch_, Place::inner_values);
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int at = thread_ + consumers * i;
      reinterpret_cast<uint4*>(buffers_.inner_values[at / vectors])[at % vectors] = v[i];
    }
    join();
  }

  const HalfStep& p_;
  Slots slots_;
  Shared<rows>& shared_;
  Buffers<rows>& buffers_;
  Watch watch_;
  int thread_;
  int block_;
  int blocks_;
  Lane l_;
  std::uint32_t epoch_ = 0;
  std::uint32_t* cells_ = nullptr;
  float own_x_ = 0;  // of the block's rows of x
  uint2 expert_norm_[2];
  uint2 projection_norm_[2];
  uint2 router_[2] = {};
  const int* list_ = nullptr;
  int count_ = 0;
};

}  // namespace motley::bench::half_step
