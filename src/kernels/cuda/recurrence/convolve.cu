#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/attention/find_sequence.cuh"
#include "kernels/cuda/primitives/exponential.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/recurrence/recurrence.h"
#include "kernels/cuda/recurrence/step.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int log_inputs = static_cast<int>(convolution_log_rows);
// Rows whose inputs a thread loads together.
constexpr int batch = 4;

// A channel of a sequence. `Kept` is the type of what the layer keeps: every input is rounded to
// it.
template <class Kept>
struct Channel {
  const Convolve& p;
  const SequenceStep& s;
  std::int64_t channel;

  __device__ Kept* kept(void* array, int row) const {
    auto* const of_slot =
        reinterpret_cast<Kept*>(static_cast<float*>(array) + s.slot * p.memory.slot_stride);
    return of_slot + row * p.channels + channel;
  }
  __device__ Kept* logged(int position) const {
    return kept(p.memory.inputs, position % log_inputs);
  }
  // So many rows before the anchor.
  __device__ Kept* before_anchor(int rows) const {
    return kept(p.memory.history, static_cast<int>(p.taps) - 1 - rows);
  }
  __device__ Kept fresh(int position) const {
    return narrow<Kept>(p.x[(s.row + position - s.start) * p.x_stride + channel]);
  }
  __device__ Kept input(int position) const {
    if (position >= s.start) return fresh(position);
    return position < s.anchor ? *before_anchor(s.anchor - position) : *logged(position);
  }
};

// A filter of up to `window` taps; those that there are stand at its end.
template <class Kept, int window>
struct Filter {
  float weights[window];
  float bias;

  __device__ Filter(const Convolve& p, std::int64_t channel) {
    const int first = window - static_cast<int>(p.taps);
#pragma unroll
    for (int i = 0; i < window; ++i)
      weights[i] = i < first ? 0.0F : p.weight[channel * p.taps + i - first];
    bias = p.bias != nullptr ? p.bias[channel] : 0.0F;
  }

  // Rows [from, to) of a sequence's step. Positions before the first count as zeros, and so do taps
  // that are not there: sums begin with 0, so their bits are as without those terms.
  __device__ void run(const Channel<Kept>& channel, int from, int to) const {
    if (from >= to) return;
    const Convolve& p = channel.p;
    const SequenceStep& s = channel.s;
    const auto taps = static_cast<int>(p.taps);
    float inputs[window - 1 + batch];
#pragma unroll
    for (int i = 0; i < window - 1; ++i) {
      const int position = s.start + from - (window - 1) + i;
      const bool there = i >= window - taps && position >= 0;
      inputs[i] = there ? widen(channel.input(position)) : 0.0F;
    }
    float* out = p.out + (s.row + from) * p.out_stride + channel.channel;
    for (int r = from; r < to; r += batch) {
#pragma unroll
      for (int b = 0; b < batch; ++b)
        inputs[window - 1 + b] = r + b < to ? widen(channel.fresh(s.start + r + b)) : 0.0F;
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        if (r + b >= to) break;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < window; ++i) sum += inputs[b + i] * weights[i];
        if (p.bias != nullptr) sum += bias;
        if (p.silu) sum *= sigmoid(sum);
        *out = sum;
        out += p.out_stride;
      }
#pragma unroll
      for (int i = 0; i < window - 1; ++i) inputs[i] = inputs[batch + i];
    }
  }
};

// What the next steps of a sequence read, after its first rows have read what the last one left.
// The rows before the new anchor are in the log or in the step: a page is longer than a filter.
template <class Kept>
__device__ void keep_inputs(const Channel<Kept>& channel) {
  const SequenceStep& s = channel.s;
  if (s.next_anchor > s.anchor) {
    for (int back = static_cast<int>(channel.p.taps) - 1; back > 0; --back)
      *channel.before_anchor(back) = channel.input(s.next_anchor - back);
  }
  for (int position = max(s.start, s.end() - log_inputs); position < s.end(); ++position)
    *channel.logged(position) = channel.fresh(position);
}

// A thread has a channel, and a block some rows of the step, of one sequence or several. The block
// in which a sequence begins computes all of its rows that read what the last step left, and then
// writes what the next one reads.
template <class Kept, int window>
__global__ void __launch_bounds__(threads)
    convolve_rows(const __grid_constant__ Convolve p, int channel_blocks, int rows_a_block) {
  launch_dependents();
  const std::int64_t channel =
      std::int64_t{blockIdx.x % static_cast<unsigned>(channel_blocks)} * threads + threadIdx.x;
  const int low =
      static_cast<int>(blockIdx.x / static_cast<unsigned>(channel_blocks)) * rows_a_block;
  const auto count = static_cast<int>(p.steps.rows.count);
  const int high = min(low + rows_a_block, p.steps.rows.seq_begin[count]);
  if (low >= high || channel >= p.channels) return wait_for_previous_grid();
  const Filter<Kept, window> filter(p, channel);
  wait_for_previous_grid();
  const int first_readers = static_cast<int>(p.taps) - 1;
  for (int sequence = find_sequence(p.steps.rows.seq_begin, count, low); sequence < count;
       ++sequence) {
    const SequenceStep s = sequence_step(p.steps, sequence);
    if (s.row >= high) return;
    if (s.count <= 0) continue;
    const Channel<Kept> channel_of{.p = p, .s = s, .channel = channel};
    const int begin = low - static_cast<int>(s.row);  // rows before it are those of other blocks
    const int end = min(high - static_cast<int>(s.row), s.count);
    if (begin > 0) {
      filter.run(channel_of, max(begin, first_readers), end);
    } else {
      filter.run(channel_of, 0, max(end, min(first_readers, s.count)));
      keep_inputs(channel_of);
    }
  }
}

}  // namespace

void convolve(const Convolve& p, StreamHandle stream) {
  MOTLEY_CHECK(p.taps >= 1 && p.taps <= max_taps, "taps that a log can have");
  if (p.steps.rows.rows <= 0 || p.channels <= 0) return;
  const std::int64_t channel_blocks = (p.channels + threads - 1) / threads;
  // More rows a block read less twice; fewer fill the device when rows are few.
  constexpr std::int64_t many_rows = 1024;
  const std::int64_t rows_a_block = p.steps.rows.rows >= many_rows ? 32 : 4;
  const std::int64_t row_blocks = (p.steps.rows.rows + rows_a_block - 1) / rows_a_block;
  with_type(p.memory.type, [&](auto kept) {
    with_flag(p.taps <= 4, [&](auto is_short) {
      constexpr int window = is_short.value ? 4 : static_cast<int>(max_taps);
      launch("convolve", convolve_rows<decltype(kept), window>,
             {.grid = static_cast<unsigned>(channel_blocks * row_blocks), .threads = threads},
             stream, p, static_cast<int>(channel_blocks), static_cast<int>(rows_a_block));
    });
  });
}

}  // namespace motley::kernels::cuda
