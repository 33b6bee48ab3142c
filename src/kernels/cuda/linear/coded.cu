#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cuda/elementary/input_codes.cuh"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/cluster.cuh"
#include "kernels/cuda/primitives/code_mma.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/pair_cluster.cuh"
#include "kernels/cuda/primitives/pipeline.cuh"
#include "kernels/cuda/primitives/placed_number.cuh"
#include "kernels/cuda/primitives/weight_decode.cuh"

// Products of rows whose inputs are rounded to the type of the weights' codes: codes times codes on
// the tensor core. A warpgroup multiplies 64 rows; the tensor core sums 128 inputs, and the sums
// are added in float32 times their scales. Of many rows, two blocks of a cluster have tiles below
// each other and the same outputs, and each loads half of the weights for both; of few, tiles have
// few outputs, so that there is one for each multiprocessor.
namespace motley::kernels::cuda {
namespace {

constexpr int step_inputs = static_cast<int>(coded_tile.k);

template <int consumers_, int outputs_, int blocks_, int resident_, int stages_>
struct TileShape {
  static constexpr int consumers = consumers_;  // warpgroups
  static constexpr int outputs = outputs_;
  static constexpr int blocks = blocks_;      // of a cluster
  static constexpr int resident = resident_;  // blocks of a multiprocessor
  static constexpr int stages = stages_;
  static constexpr int rows = 64 * consumers;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int row_bytes = rows * step_inputs;
  static constexpr int weight_bytes = outputs * step_inputs;
  static constexpr int stage_bytes = row_bytes + weight_bytes;
  static constexpr int barriers_at = stages * stage_bytes;
  static constexpr int output_scales_at = barriers_at + 2 * stages * 8;  // of each warpgroup's tile
  static constexpr int shared_bytes =
      output_scales_at + consumers * outputs * 4 + 1024;  // stages begin at 1024 bytes
};
using ManyRows = TileShape<2, static_cast<int>(coded_tile.outputs), 2, 1, 6>;
using FewRows = TileShape<1, 32, 1, 2, 8>;
static_assert(ManyRows::rows == static_cast<int>(coded_tile.rows));
// With more, tiles of ManyRows occupy the multiprocessors.
constexpr int few_rows = 256;

// Pairs of row tiles that run beside each other, so that weights are read from L2.
constexpr int pairs_together = 8;

// Whether the outputs of a tile share a scale at each step; otherwise scales are of whole rows.
__host__ __device__ bool has_blocks(const WeightView& w) {
  const bool of_rows = w.block_columns >= w.in && (w.block_rows == 1 || w.block_rows >= w.out);
  return w.scales != nullptr && !of_rows;
}

struct CodedProduct {
  CUtensorMap codes{};
  WeightView w{};
  float* y = nullptr;
  std::int64_t y_stride = 0;
  int out = 0;
  int first_tile = 0;  // of all products' outputs
};
struct CodedParams {
  CUtensorMap rows_of_codes{};
  CodedProduct products[coded_max_products]{};
  const float* row_scales = nullptr;  // [steps, pitch]
  int count = 0;
  int pitch = 0;
  int rows = 0;
  int steps = 0;
  int pairs = 0;         // of row tiles: those of a cluster
  int output_tiles = 0;  // of all products
};

// Synchronises the threads of a warpgroup.
__device__ void consumer_barrier(int warpgroup) {
  if (warpgroup == 0)
    named_barrier(1, 128);
  else
    named_barrier(2, 128);
}

struct TilePlace {
  int pair;
  int output_tile;
};
__device__ TilePlace place_of(const CodedParams& p, int tile) {
  const int group = tile / (pairs_together * p.output_tiles);
  const int within = tile - group * pairs_together * p.output_tiles;
  const int pairs = min(pairs_together, p.pairs - group * pairs_together);
  return {.pair = group * pairs_together + within % pairs, .output_tile = within / pairs};
}
__device__ const CodedProduct& product_of(const CodedParams& p, int output_tile) {
  int number = 0;
  for (int i = 1; i < p.count; ++i)
    if (output_tile >= p.products[i].first_tile) number = i;
  return p.products[number];
}

// The barriers of a slot: full (of both operands), and empty (an arrival of each consumer warp of
// all blocks).
template <class Tile>
struct Slots : PipelineState {
  std::uint32_t base;

  __device__ std::uint32_t rows() const { return base + slot * Tile::stage_bytes; }
  __device__ std::uint32_t weights() const { return rows() + Tile::row_bytes; }
  __device__ std::uint32_t full() const { return base + Tile::barriers_at + 8 * slot; }
  __device__ std::uint32_t empty() const { return full() + 8 * Tile::stages; }
  __device__ void next() { advance(Tile::stages); }
};

template <class Tile>
__device__ void load_tiles(const CodedParams& p, Slots<Tile> at, int rank) {
  for (int tile = static_cast<int>(blockIdx.x); tile < p.pairs * p.output_tiles;
       tile += static_cast<int>(gridDim.x)) {
    const TilePlace place = place_of(p, tile);
    const CodedProduct& product = product_of(p, place.output_tile);
    const int row = (place.pair * Tile::blocks + rank) * Tile::rows;
    constexpr int part = Tile::outputs / Tile::blocks;
    const int output = (place.output_tile - product.first_tile) * Tile::outputs + rank * part;
    for (int step = 0; step < p.steps; ++step, at.next()) {
      bar_wait(at.empty(), at.parity ^ 1);
      bar_expect(at.full(), Tile::stage_bytes);
      tma_2d(at.rows(), &p.rows_of_codes, step * step_inputs, row, at.full());
      const std::uint32_t weights = at.weights() + rank * part * step_inputs;
      if constexpr (Tile::blocks == 2)
        tma_2d_for_both(weights, &product.codes, step * step_inputs, output, at.full());
      else
        tma_2d(weights, &product.codes, step * step_inputs, output, at.full());
    }
  }
}

// A thread's part of a tile: accumulators lie as those of Mma.
template <class Tile>
struct TilePart {
  const CodedParams& p;
  const CodedProduct& product;
  int row;     // and the 8th after it
  int output;  // the tile's first
  int thread;  // of the warpgroup
  float* output_scales;

  __device__ bool scaled_by_blocks() const { return has_blocks(product.w); }
  __device__ bool scaled_by_outputs() const {
    return product.w.scales != nullptr && !scaled_by_blocks();
  }
  // Threads share out what the tile's outputs are multiplied by at the end.
  __device__ void keep_output_scales(int warpgroup) const {
    const WeightView& w = product.w;
    const int at = min(output + thread, product.out - 1);
    const float scale = scale_at(w, w.block_rows == 1 ? at : 0) * w.scale_factor;
    consumer_barrier(warpgroup);  // the last tile's have been read
    if (thread < Tile::outputs) output_scales[thread] = scale;
  }
  template <class Numbers>
  __device__ void store(const Numbers& numbers, bool scaled, const float (&row_scales)[2]) const {
    const int column = 2 * (thread % 4);
#pragma unroll
    for (int i = 0; i < Tile::outputs / 8; ++i) {
      const int at = output + column + 8 * i;
      const float2 scales =
          scaled ? *reinterpret_cast<const float2*>(output_scales + column + 8 * i) : float2{1, 1};
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        if (row + 8 * below >= p.rows) continue;
        float* const y = product.y + (row + 8 * below) * product.y_stride + at;
        const float2 two{numbers(4 * i + 2 * below) * (row_scales[below] * scales.x),
                         numbers(4 * i + 2 * below + 1) * (row_scales[below] * scales.y)};
        if (at + 1 < product.out)
          *reinterpret_cast<float2*>(y) = two;
        else if (at < product.out)
          *y = two.x;
      }
    }
  }
};

// The scales of a thread's two rows times those of its tile's weights, step by step. The four lanes
// of a row load four steps' together, four steps ahead.
class StepScales {
 public:
  template <class Tile>
  __device__ explicit StepScales(const TilePart<Tile>& tile)
      : rows_(tile.p.row_scales),
        pitch_(tile.p.pitch),
        last_step_(tile.p.steps - 1),
        upper_row_(min(tile.row, tile.p.rows - 1)),
        lower_row_(min(tile.row + 8, tile.p.rows - 1)),
        lane_(tile.thread % 32),
        type_(tile.product.w.scale_type),
        factor_(tile.product.w.scale_factor) {
    if (tile.scaled_by_blocks()) {
      const WeightView& w = tile.product.w;
      bytes_ = scale_bytes(type_);
      blocks_ = static_cast<const unsigned char*>(w.scales) +
                tile.output / w.block_rows * w.groups() * bytes_;
    }
    load(0);
  }
  // Of the rows, upper and lower, at the next step.
  __device__ float2 next(int step) {
    if (step % 4 == 0) {
      float block = 1;
      if (blocks_ != nullptr) block = widen_scale(next_word_, next_shift_, type_) * factor_;
      upper_ = next_upper_ * block;
      lower_ = next_lower_ * block;
      load(step + 4);
    }
    const int from = (lane_ & ~3) | (step & 3);
    return {__shfl_sync(0xFFFFFFFF, upper_, from), __shfl_sync(0xFFFFFFFF, lower_, from)};
  }

 private:
  __device__ void load(int first) {
    const int step = min(first + lane_ % 4, last_step_);
    const float* const scales = rows_ + static_cast<std::size_t>(step) * pitch_;
    next_upper_ = __ldg(scales + upper_row_);
    next_lower_ = __ldg(scales + lower_row_);
    if (blocks_ == nullptr) return;
    const PlacedNumber place(blocks_ + step * bytes_);
    next_word_ = __ldg(reinterpret_cast<const std::uint32_t*>(place.word));
    next_shift_ = place.shift;
  }

  const float* rows_;
  int pitch_, last_step_, upper_row_, lower_row_, lane_;
  DType type_;
  float factor_;
  const unsigned char* blocks_ = nullptr;
  int bytes_ = 0;
  float upper_ = 0, lower_ = 0;
  float next_upper_ = 0, next_lower_ = 0;
  std::uint32_t next_word_ = 0;
  unsigned next_shift_ = 0;
};

// `by_step`: scales differ from step to step, so each step's sums are multiplied by theirs; scales
// of whole rows and outputs multiply at the end. A step's sums are added beside the products of the
// next one.
template <class Tile, DType type, bool by_step>
__device__ void multiply_tile(const TilePart<Tile>& tile, Slots<Tile>& at, int warpgroup,
                              int other) {
  using Mma = CodeMma<type, Tile::outputs>;
  using Sum = std::conditional_t<type == DType::i8, int, float>;
  constexpr int numbers = Tile::outputs / 2;
  // Integers are exact over all inputs.
  constexpr bool sums_all = type == DType::i8 && !by_step;
  const CodedParams& p = tile.p;
  const bool scales_outputs = tile.scaled_by_outputs();
  if (scales_outputs) tile.keep_output_scales(warpgroup);
  Sum sums[sums_all ? 1 : 2][numbers];
  float total[sums_all ? 1 : numbers] = {};
  auto& even = sums[0];
  auto& odd = sums[sums_all ? 0 : 1];
  StepScales scales(tile);
  float2 scale{1, 1};  // of the step that was begun last
  float2 scale_before{1, 1};
  std::uint32_t empty = 0;
  std::uint32_t empty_before = 0;
  const auto begin = [&](Sum(&own)[numbers], int step) {
    bar_wait(at.full(), at.parity);
    const std::uint32_t a = descriptor_low(at.rows() + warpgroup * 64 * step_inputs);
    const std::uint32_t b = descriptor_low(at.weights());
    mma_fence();
#pragma unroll
    for (int k = 0; k < step_inputs / 32; ++k)
      Mma::template ss<swizzle_128>(own, a + 2 * k, b + 2 * k, (sums_all && step > 0) || k > 0);
    mma_commit();
    scale_before = scale;
    if constexpr (by_step) scale = scales.next(step);
    empty_before = empty;
    empty = at.empty();
    at.next();
  };
  const auto end = [&](const Sum(&own)[numbers], float2 its, std::uint32_t slot) {
    if (threadIdx.x % 32 == 0) {
      bar_arrive(slot);
      if constexpr (Tile::blocks == 2) arrive_in_cluster(address_in_rank(slot, other));
    }
    if constexpr (!sums_all) {
#pragma unroll
      for (int i = 0; i < numbers; ++i) {
        const auto sum = static_cast<float>(own[i]);
        if constexpr (by_step)
          total[i] = fmaf(sum, i % 4 < 2 ? its.x : its.y, total[i]);
        else
          total[i] += sum;
      }
    }
  };
  begin(even, 0);
  int step = 1;
#pragma unroll 1
  for (; step + 1 < p.steps; step += 2) {
    begin(odd, step);
    mma_wait<1>();
    end(even, scale_before, empty_before);
    begin(even, step + 1);
    mma_wait<1>();
    end(odd, scale_before, empty_before);
  }
  if (step < p.steps) {
    begin(odd, step);
    mma_wait<1>();
    end(even, scale_before, empty_before);
    mma_wait<0>();
    end(odd, scale, empty);
  } else {
    mma_wait<0>();
    end(even, scale, empty);
  }
  float row_scales[2] = {1, 1};
  if constexpr (!by_step) {
    const float2 of_rows = scales.next(0);
    row_scales[0] = of_rows.x;
    row_scales[1] = of_rows.y;
  }
  if (scales_outputs) consumer_barrier(warpgroup);
  const auto number = [&](int i) {
    if constexpr (sums_all)
      return static_cast<float>(sums[0][i]);
    else
      return total[i];
  };
  tile.store(number, scales_outputs, row_scales);
}

template <class Tile, DType type, bool by_step>
__global__ void __launch_bounds__(Tile::threads, Tile::resident)
    multiply_coded(const __grid_constant__ CodedParams p) {
  extern __shared__ unsigned char shared[];
  launch_dependents();
  Slots<Tile> at{{}, (smem_addr(shared) + 1023) / 1024 * 1024};
  const int rank = static_cast<int>(blockIdx.y);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  auto* const output_scales =
      reinterpret_cast<float*>(shared + (at.base - smem_addr(shared)) + Tile::output_scales_at);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::stages; ++i) {
      bar_init(at.base + Tile::barriers_at + 8 * i, 1);
      bar_init(at.base + Tile::barriers_at + 8 * (Tile::stages + i),
               4 * Tile::consumers * Tile::blocks);
    }
    fence_bar_init();
  }
  __syncthreads();
  if constexpr (Tile::blocks == 2) cluster_sync();
  wait_for_previous_grid();
  if (warpgroup == Tile::consumers) {
    if constexpr (Tile::resident == 1) shrink_registers<40>();
    if (threadIdx.x % 128 == 0) load_tiles(p, at, rank);
  } else {
    if constexpr (Tile::resident == 1) grow_registers<232>();
    const int lane = static_cast<int>(threadIdx.x) % 128;
    for (int tile = static_cast<int>(blockIdx.x); tile < p.pairs * p.output_tiles;
         tile += static_cast<int>(gridDim.x)) {
      const TilePlace place = place_of(p, tile);
      const CodedProduct& product = product_of(p, place.output_tile);
      const TilePart<Tile> part{.p = p,
                                .product = product,
                                .row = (place.pair * Tile::blocks + rank) * Tile::rows +
                                       warpgroup * 64 + 16 * (lane / 32) + lane % 32 / 4,
                                .output = (place.output_tile - product.first_tile) * Tile::outputs,
                                .thread = lane,
                                .output_scales = output_scales + warpgroup * Tile::outputs};
      multiply_tile<Tile, type, by_step>(part, at, warpgroup, rank ^ 1);
    }
  }
  // The other block may still arrive here.
  if constexpr (Tile::blocks == 2) cluster_sync();
}

// A warp has a row.
template <DType type>
__global__ void __launch_bounds__(input_codes::threads) code_rows(ArrangeInputs p, RowCodes to) {
  using Scales = InputRounding::Scales;
  using namespace input_codes;
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Bf16* const x = static_cast<const Bf16*>(p.x) + row * p.x_stride;
  const int pieces = static_cast<int>(p.width) / piece;
  const bool by_row = p.rounding.scales == Scales::row;
  // Of rows that ranks cut.
  const float* const maxima =
      p.maxima.data != nullptr ? p.maxima.data + row * p.maxima.stride : nullptr;
  RowTraits traits{};
  if ((by_row && maxima == nullptr) || type == DType::i8) traits = traits_of<32>(x, pieces, lane);
  if (by_row && maxima != nullptr) traits.largest = maxima[0];
  float scale = by_row ? input_scale(p.rounding, traits.largest) : p.rounding.scale;
  // A piece is loaded while the one before it becomes codes.
  const auto load = [&](int at) {
    return at < pieces ? PieceBits::load(x + at * piece) : PieceBits{};
  };
  PieceBits next = load(lane);
#pragma unroll 1
  for (int first = 0; first < pieces; first += 32) {
    const int at = first + lane;
    const Piece inputs(next);
    next = load(at + 32);
    if (p.rounding.scales == Scales::row_block) {
      const float largest = largest_of_block(inputs.largest());
      const int number = min(at, pieces - 1) / block_pieces;
      scale = input_scale(p.rounding, maxima != nullptr ? maxima[number] : largest);
    }
    if (at >= pieces) continue;
    *reinterpret_cast<uint4*>(to.codes + row * p.width + at * piece) =
        codes_of<type>(inputs, scale);
    if (at % block_pieces == 0)
      to.scales[std::int64_t{at / block_pieces} * to.pitch + row] =
          traits.has_nan && type == DType::i8 ? NAN : scale;
  }
}

bool by_step(const Linear& product, const InputRounding& rounding) {
  return rounding.scales == InputRounding::Scales::row_block || has_blocks(product.w);
}

Result<CUtensorMap> map_of(StreamHandle stream, const void* codes, std::int64_t rows,
                           std::int64_t width, int box_rows) {
  return encode(device_of(stream).encode_tensor_map(),
                TensorBoxes<2>{.data = codes,
                               .sizes = {width, rows},
                               .strides = {width},
                               .box = {step_inputs, static_cast<std::uint32_t>(box_rows)},
                               .element = BoxElement::byte});
}

template <class Tile>
Result<void> launch_coded(std::span<const Linear> products, const ArrangeInputs& inputs,
                          StreamHandle stream) {
  const Linear& first = products[0];
  const InputRounding& rounding = inputs.rounding;
  const RowCodes rows = row_codes_in(inputs.out, inputs.rows, inputs.width);
  CodedParams p{.row_scales = rows.scales,
                .count = static_cast<int>(products.size()),
                .pitch = static_cast<int>(rows.pitch),
                .rows = static_cast<int>(first.rows),
                .steps = static_cast<int>((first.w.in + step_inputs - 1) / step_inputs)};
  MOTLEY_TRY(p.rows_of_codes, map_of(stream, rows.codes, first.rows, first.w.in, Tile::rows));
  p.pairs = (p.rows + Tile::blocks * Tile::rows - 1) / (Tile::blocks * Tile::rows);
  bool scaled_by_step = false;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Linear& product = products[i];
    CodedProduct& to = p.products[i];
    to = {.w = product.w,
          .y = product.y,
          .y_stride = product.y_stride,
          .out = static_cast<int>(product.out),
          .first_tile = p.output_tiles};
    MOTLEY_TRY(to.codes, map_of(stream, product.w.data, product.out, product.w.in,
                                Tile::outputs / Tile::blocks));
    p.output_tiles += static_cast<int>((product.out + Tile::outputs - 1) / Tile::outputs);
    scaled_by_step = scaled_by_step || by_step(product, rounding);
  }
  const int clusters = std::min(device_of(stream).multiprocessors() * Tile::resident / Tile::blocks,
                                p.pairs * p.output_tiles);
  const LaunchShape shape{.grid = static_cast<unsigned>(clusters),
                          .grid_y = Tile::blocks,
                          .threads = Tile::threads,
                          .shared_bytes = Tile::shared_bytes,
                          .cluster_y = Tile::blocks};
  const auto of_type = [&](auto type) {
    if (scaled_by_step)
      return try_launch("coded", multiply_coded<Tile, type.value, true>, shape, stream, p);
    return try_launch("coded", multiply_coded<Tile, type.value, false>, shape, stream, p);
  };
  if (rounding.type == DType::i8) return of_type(std::integral_constant<DType, DType::i8>());
  return of_type(std::integral_constant<DType, DType::f8_e4m3>());
}

template <class Tile, DType type>
Result<void> prepare() {
  MOTLEY_TRY_VOID(
      allow_shared_memory("coded", multiply_coded<Tile, type, true>, Tile::shared_bytes));
  return allow_shared_memory("coded", multiply_coded<Tile, type, false>, Tile::shared_bytes);
}

}  // namespace

void code_inputs(const ArrangeInputs& inputs, StreamHandle stream) {
  if (inputs.rows <= 0) return;
  const LaunchShape shape{
      .grid = static_cast<unsigned>((inputs.rows + input_codes::warps - 1) / input_codes::warps),
      .threads = input_codes::threads};
  const RowCodes to = row_codes_in(inputs.out, inputs.rows, inputs.width);
  if (inputs.rounding.type == DType::i8)
    launch("code_rows", code_rows<DType::i8>, shape, stream, inputs, to);
  else
    launch("code_rows", code_rows<DType::f8_e4m3>, shape, stream, inputs, to);
}

void linear_coded(std::span<const Linear> products, const ArrangeInputs& inputs,
                  StreamHandle stream) {
  if (inputs.rows <= 0 || products.empty()) return;
  device_of(stream).keep(inputs.rows <= few_rows
                             ? launch_coded<FewRows>(products, inputs, stream)
                             : launch_coded<ManyRows>(products, inputs, stream));
}

Result<void> prepare_coded() {
  MOTLEY_TRY_VOID((prepare<ManyRows, DType::f8_e4m3>()));
  MOTLEY_TRY_VOID((prepare<ManyRows, DType::i8>()));
  MOTLEY_TRY_VOID((prepare<FewRows, DType::f8_e4m3>()));
  return prepare<FewRows, DType::i8>();
}

}  // namespace motley::kernels::cuda
