#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/elementary/expert_of_place.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "kernels/input_rounding.h"

// Inputs in the order of a weight's columns, rounded with the operations of the CPU's products and
// so to their codes.
namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;

// A row of x, and how it is taken.
template <class X, class Out>
struct Row {
  const X* x;
  Out* out;
  std::int64_t width;
  const std::int32_t* order;
  InputRounding rounding;
  const float* maxima;  // of this row, or null: it is whole

  template <bool whole>
  __device__ Vec4 load(std::int64_t at, std::int64_t end) const {
    if (order == nullptr) return load_vec4<whole>(x, at, end);
    Vec4 vec4{};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (whole || at + i < end) vec4.at[i] = widen(x[order[at + i]]);
    return vec4;
  }
};

// The same operations for one part of a row by `count` threads, of which this is number `t`.
template <bool whole, class X, class Out>
__device__ float largest_of(const Row<X, Out>& row, std::int64_t begin, std::int64_t end, int t,
                            int count) {
  float largest = 0;
  for (std::int64_t at = begin + 4 * t; at < end; at += 4 * count) {
    const Vec4 x = row.template load<whole>(at, end);
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(x.at[i]));
  }
  return warp_max(largest);
}
template <bool whole, class X, class Out>
__device__ void take_part(const Row<X, Out>& row, std::int64_t begin, std::int64_t end, int t,
                          int count, float scale) {
  for (std::int64_t at = begin + 4 * t; at < end; at += 4 * count) {
    Vec4 x = row.template load<whole>(at, end);
    if (row.rounding.scales != InputRounding::Scales::none) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x.at[i] = rounded_input(row.rounding, scale, x.at[i]);
    }
    store_vec4<whole>(row.out, at, end, x);
  }
}

// Inputs that share a scale, by a warp. Those of 128 stay in registers between finding the scale
// and using it.
template <bool whole, class X, class Out>
__device__ void take_block(const Row<X, Out>& row, std::int64_t begin, std::int64_t end, int lane) {
  if (row.maxima != nullptr) {
    const std::int64_t number = (row.rounding.first + begin) / row.rounding.columns;
    const float scale = input_scale(row.rounding, row.maxima[number]);
    return take_part<whole>(row, begin, end, lane, 32, scale);
  }
  if (end - begin > 4 * 32) {
    const float largest = largest_of<whole>(row, begin, end, lane, 32);
    return take_part<whole>(row, begin, end, lane, 32, input_scale(row.rounding, largest));
  }
  const std::int64_t at = begin + 4 * lane;
  Vec4 x{};
  if (at < end) x = row.template load<whole>(at, end);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(x.at[i]));
  const float scale = input_scale(row.rounding, warp_max(largest));
#pragma unroll
  for (int i = 0; i < 4; ++i) x.at[i] = rounded_input(row.rounding, scale, x.at[i]);
  if (at < end) store_vec4<whole>(row.out, at, end, x);
}

// All threads of a block call it. Blocks of inputs are spread over the grid's second dimension.
template <bool whole, class X, class Out>
__device__ void take_row(const Row<X, Out>& row) {
  using Scales = InputRounding::Scales;
  __shared__ float largest_of_warp[warps];
  const int t = static_cast<int>(threadIdx.x);
  if (row.rounding.scales == Scales::row_block) {
    const std::int64_t columns = row.rounding.columns;
    const std::int64_t number = std::int64_t{blockIdx.y} * warps + t / 32;
    const std::int64_t step = std::int64_t{gridDim.y} * warps * columns;
    for (std::int64_t begin = number * columns - row.rounding.first; begin < row.width;
         begin += step)
      take_block<whole>(row, max(begin, std::int64_t{0}), min(begin + columns, row.width), t % 32);
    return;
  }
  float largest = 0;
  if (row.rounding.scales == Scales::row && row.maxima != nullptr) {
    largest = row.maxima[0];
  } else if (row.rounding.scales == Scales::row) {
    largest_of_warp[t / 32] = largest_of<whole>(row, 0, row.width, t, threads);
    __syncthreads();
    for (const float other : largest_of_warp) largest = fmaxf(largest, other);
  }
  take_part<whole>(row, 0, row.width, t, threads, input_scale(row.rounding, largest));
}

__device__ const float* row_of(const InputMaxima& maxima, std::int64_t row) {
  return maxima.data != nullptr ? maxima.data + row * maxima.stride : nullptr;
}

template <bool whole, class T>
__global__ void __launch_bounds__(threads) arrange_rows(ArrangeInputs p) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t row = blockIdx.x;
  take_row<whole>(Row<T, T>{.x = static_cast<const T*>(p.x) + row * p.x_stride,
                            .out = static_cast<T*>(p.out) + row * p.out_stride,
                            .width = p.width,
                            .order = p.order,
                            .rounding = p.rounding,
                            .maxima = row_of(p.maxima, row)});
}

// Of expert e.
template <class T>
__device__ const T& of_expert(const T* first, std::size_t stride, int e) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(first);
  return *reinterpret_cast<const T*>(bytes + static_cast<std::size_t>(e) * stride);
}

template <bool whole, class X, class Out>
__global__ void __launch_bounds__(threads) arrange_places(ArrangeExpertInputs p) {
  launch_dependents();
  wait_for_previous_grid();
  const int place = static_cast<int>(blockIdx.x);
  if (place >= p.expert_begin[p.experts]) return;
  const std::int64_t from = p.tokens != nullptr ? p.tokens[place] : place;
  const int expert = expert_of_place(p.expert_begin, p.experts, place);
  const float* const maxima =
      p.maxima.data != nullptr ? row_of(p.maxima, p.pairs_of[place]) : nullptr;
  take_row<whole>(Row<X, Out>{.x = static_cast<const X*>(p.x) + from * p.x_stride,
                              .out = static_cast<Out*>(p.out) + std::int64_t{place} * p.width,
                              .width = p.width,
                              .order = of_expert(p.orders, p.stride, expert),
                              .rounding = of_expert(p.roundings, p.stride, expert),
                              .maxima = maxima});
}

// Blocks of a row's inputs: `columns` of them, of which the first block lacks `first`.
struct InputBlocks {
  std::int64_t columns;  // 0: inputs are not rounded by blocks
  std::int64_t first;
};

// A warp for each block of a row's inputs.
unsigned blocks_a_row(std::int64_t width, const InputBlocks& blocks) {
  if (blocks.columns <= 0) return 1;
  const std::int64_t each = warps * blocks.columns;
  return static_cast<unsigned>((blocks.first + width + each - 1) / each);
}

// Vec4s do not cross the end of a row or of a part of it.
bool parts_are_whole(std::int64_t width, const InputBlocks& blocks) {
  return width % 4 == 0 && blocks.columns % 4 == 0 && blocks.first % 4 == 0;
}

}  // namespace

void arrange_inputs(const ArrangeInputs& p, StreamHandle stream) {
  if (p.rows <= 0 || p.width <= 0) return;
  const InputBlocks blocks{p.rounding.columns, p.rounding.first};
  const bool whole = parts_are_whole(p.width, blocks) && vec4_aligned(p.x, p.x_type, p.x_stride) &&
                     vec4_aligned(p.out, p.x_type, p.out_stride);
  const bool by_block = p.rounding.scales == InputRounding::Scales::row_block;
  const LaunchShape shape{.grid = static_cast<unsigned>(p.rows),
                          .grid_y = by_block ? blocks_a_row(p.width, blocks) : 1,
                          .threads = threads};
  with_type(p.x_type, [&](auto number) {
    with_flag(whole, [&](auto flag) {
      launch("arrange_inputs", arrange_rows<flag.value, decltype(number)>, shape, stream, p);
    });
  });
}

void arrange_expert_inputs(const ArrangeExpertInputs& p, StreamHandle stream) {
  if (p.pairs <= 0 || p.width <= 0) return;
  const InputBlocks blocks{p.columns, p.first};
  const bool whole = parts_are_whole(p.width, blocks) && vec4_aligned(p.x, p.x_type, p.x_stride) &&
                     vec4_aligned(p.out, p.out_type, p.width);
  const LaunchShape shape{.grid = static_cast<unsigned>(p.pairs),
                          .grid_y = blocks_a_row(p.width, blocks),
                          .threads = threads};
  with_type(p.x_type, [&](auto x) {
    with_type(p.out_type, [&](auto out) {
      with_flag(whole, [&](auto flag) {
        launch("arrange_expert_inputs", arrange_places<flag.value, decltype(x), decltype(out)>,
               shape, stream, p);
      });
    });
  });
}

}  // namespace motley::kernels::cuda
