#include "base/check.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrence/convolution.cuh"
#include "kernels/cuda/recurrence/recurrence.h"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;

// A thread has a channel, and a block some rows of the step.
template <class Kept, int window>
__global__ void __launch_bounds__(threads)
    convolve_channels(const __grid_constant__ Convolve p, int channel_blocks, int rows_a_block) {
  launch_dependents();
  const std::int64_t channel =
      std::int64_t{blockIdx.x % static_cast<unsigned>(channel_blocks)} * threads + threadIdx.x;
  const int low =
      static_cast<int>(blockIdx.x / static_cast<unsigned>(channel_blocks)) * rows_a_block;
  const int sequence = sequence_of(p.steps.rows, low);
  if (channel >= p.channels) return wait_for_previous_grid();
  convolve_rows<Kept, window, 1>(p, channel, sequence, low, low + rows_a_block,
                                 [&](std::int64_t row, const Channels<1>& results) {
                                   store_channels(p.out + row * p.out_stride + channel, results);
                                 });
}

}  // namespace

void convolve(const Convolve& p, StreamHandle stream) {
  MOTLEY_CHECK(p.taps >= 1 && p.taps <= max_taps, "taps that a log can have");
  if (p.steps.rows.rows <= 0 || p.channels <= 0) return;
  const std::int64_t channel_blocks = (p.channels + threads - 1) / threads;
  const int rows_a_block = convolved_rows_a_block(p.steps);
  const std::int64_t row_blocks = (p.steps.rows.rows + rows_a_block - 1) / rows_a_block;
  with_type(p.memory.type, [&](auto kept) {
    with_flag(p.taps <= 4, [&](auto is_short) {
      constexpr int window = is_short.value ? 4 : static_cast<int>(max_taps);
      launch("convolve", convolve_channels<decltype(kept), window>,
             {.grid = static_cast<unsigned>(channel_blocks * row_blocks), .threads = threads},
             stream, p, static_cast<int>(channel_blocks), rows_a_block);
    });
  });
}

}  // namespace motley::kernels::cuda
