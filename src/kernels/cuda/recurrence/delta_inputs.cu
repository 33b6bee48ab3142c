#include "base/check.h"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrence/convolution.cuh"
#include "kernels/cuda/recurrence/gates.cuh"
#include "kernels/cuda/recurrence/recurrence.h"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int taps = 4;
constexpr int channels_a_thread = 4;
constexpr int channels_a_block = threads * channels_a_thread;
constexpr int head_width = 32 * channels_a_thread;  // a head is a warp's

struct Blocks {
  int of_channels;
  int rows;         // of a block
  unsigned filter;  // blocks that convolve; those after them make gates
};

// The norm of a warp's head, with the bits of rms_norm().
__device__ Vec4 normed_head(const RmsNorm& p, Vec4 head, const Vec4& weight) {
  Squares squares;
  squares.add(head);
  const float factor = Squares::factor_of(squares.of_warp(), head_width, p.eps);
  return normed<float>(head, weight, factor, p.weight_in_f32);
}

template <class Kept>
__global__ void __launch_bounds__(threads)
    make_delta_inputs(const __grid_constant__ DeltaInputs p, Blocks blocks) {
  launch_dependents();
  if (blockIdx.x >= blocks.filter) {
    wait_for_previous_grid();
    return gate_number(p.gates, std::int64_t{blockIdx.x - blocks.filter} * threads + threadIdx.x);
  }
  const Convolve& convolution = p.convolution;
  const int channel = static_cast<int>(blockIdx.x) % blocks.of_channels * channels_a_block +
                      static_cast<int>(threadIdx.x) * channels_a_thread;
  if (channel >= convolution.channels) return wait_for_previous_grid();  // a whole warp
  const int low = static_cast<int>(blockIdx.x) / blocks.of_channels * blocks.rows;
  const int head = channel / head_width;
  const auto queries = static_cast<int>(p.queries.size.parts);
  const RmsNorm* const norm = head < queries ? &p.queries : head < 2 * queries ? &p.keys : nullptr;
  const int at = channel % head_width;
  const Vec4 weight = norm != nullptr ? load_vec4<true>(norm->weight, at, head_width) : Vec4{};
  convolve_rows<Kept, taps, channels_a_thread>(
      convolution, channel, sequence_of(convolution.steps.rows, low), low, low + blocks.rows,
      [&](std::int64_t row, const Channels<channels_a_thread>& results) {
        Vec4 numbers;
#pragma unroll
        for (int i = 0; i < channels_a_thread; ++i) numbers.at[i] = results.at[i];
        if (norm != nullptr) numbers = normed_head(*norm, numbers, weight);
        store_vec4<true>(convolution.out + row * convolution.out_stride, channel,
                         convolution.channels, numbers);
      });
}

// Whether the heads that a norm changes in place are the convolution's channels from `first` on.
bool norms_channels(const RmsNorm& norm, const Convolve& p, std::int64_t first) {
  return norm.size.width == head_width && norm.x == p.out + first && norm.out == norm.x &&
         norm.x_type == DType::f32 && norm.out_type == DType::f32 &&
         norm.x_stride == p.out_stride && norm.out_stride == p.out_stride &&
         norm.x_part_stride == head_width && norm.out_part_stride == head_width &&
         vec4_aligned(norm.weight, DType::f32, 0);
}

bool keeps_whole_vec4s(const ConvolutionMemory& memory) {
  return vec4_aligned(memory.inputs, memory.type, memory.slot_stride) &&
         vec4_aligned(memory.history, memory.type, memory.slot_stride);
}

}  // namespace

bool takes_delta_inputs(const DeltaInputs& p) {
  const Convolve& convolution = p.convolution;
  const std::int64_t keys = p.queries.size.parts * head_width;
  return convolution.taps == taps && convolution.channels % head_width == 0 &&
         convolution.x != convolution.out && 2 * keys <= convolution.channels &&
         p.keys.size.parts == p.queries.size.parts && norms_channels(p.queries, convolution, 0) &&
         norms_channels(p.keys, convolution, keys) &&
         vec4_aligned(convolution.weight, DType::f32, convolution.taps) &&
         vec4_aligned(convolution.x, DType::f32, convolution.x_stride) &&
         vec4_aligned(convolution.out, DType::f32, convolution.out_stride) &&
         keeps_whole_vec4s(convolution.memory);
}

void delta_inputs(const DeltaInputs& p, StreamHandle stream) {
  MOTLEY_CHECK(takes_delta_inputs(p), "heads that a warp convolves and norms");
  const Convolve& convolution = p.convolution;
  if (convolution.steps.rows.rows <= 0) return;
  const std::int64_t channel_blocks =
      (convolution.channels + channels_a_block - 1) / channels_a_block;
  const int rows = convolved_rows_a_block(convolution.steps);
  const std::int64_t row_blocks = (convolution.steps.rows.rows + rows - 1) / rows;
  const std::int64_t gates = p.gates.rows * p.gates.heads;
  const Blocks blocks{.of_channels = static_cast<int>(channel_blocks),
                      .rows = rows,
                      .filter = static_cast<unsigned>(channel_blocks * row_blocks)};
  with_type(convolution.memory.type, [&](auto kept) {
    launch("delta_inputs", make_delta_inputs<decltype(kept)>,
           {.grid = blocks.filter + static_cast<unsigned>((gates + threads - 1) / threads),
            .threads = threads},
           stream, p, blocks);
  });
}

}  // namespace motley::kernels::cuda
