// The convolution over a sequence's rows, for kernels that convolve. Files that include this are
// compiled without fused multiply-add.
#pragma once

#include "kernels/cuda/primitives/exponential.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/recurrence/step.cuh"

namespace motley::kernels::cuda {

// Neighbouring channels of a thread.
template <int count>
struct Channels {
  float at[count];
};
template <class T, int count>
struct alignas(count * sizeof(T)) PackedChannels {
  T at[count];
};

template <int count, class T>
__device__ Channels<count> load_channels(const T* from) {
  const auto stored = *reinterpret_cast<const PackedChannels<T, count>*>(from);
  Channels<count> channels;
#pragma unroll
  for (int c = 0; c < count; ++c) channels.at[c] = widen(stored.at[c]);
  return channels;
}
template <int count, class T>
__device__ void store_channels(T* to, const Channels<count>& channels) {
  PackedChannels<T, count> stored;
#pragma unroll
  for (int c = 0; c < count; ++c) stored.at[c] = narrow<T>(channels.at[c]);
  *reinterpret_cast<PackedChannels<T, count>*>(to) = stored;
}

// A thread's channels of a sequence. `Kept` is the type of what the layer keeps: every input is
// rounded to it.
template <class Kept, int count>
struct SequenceChannels {
  const Convolve& p;
  const SequenceStep& s;
  std::int64_t channel;  // the first

  __device__ Kept* kept(void* array, int row) const {
    auto* const of_slot =
        reinterpret_cast<Kept*>(static_cast<float*>(array) + s.slot * p.memory.slot_stride);
    return of_slot + row * p.channels + channel;
  }
  __device__ Kept* logged(int position) const {
    return kept(p.memory.inputs, position % static_cast<int>(convolution_log_rows));
  }
  // So many rows before the anchor.
  __device__ Kept* before_anchor(int rows) const {
    return kept(p.memory.history, static_cast<int>(p.taps) - 1 - rows);
  }
  __device__ Channels<count> fresh(int position) const {
    auto inputs = load_channels<count>(p.x + (s.row + position - s.start) * p.x_stride + channel);
#pragma unroll
    for (float& input : inputs.at) input = widen(narrow<Kept>(input));
    return inputs;
  }
  __device__ Channels<count> input(int position) const {
    if (position >= s.start) return fresh(position);
    return load_channels<count>(position < s.anchor ? before_anchor(s.anchor - position)
                                                    : logged(position));
  }
};

// Of inputs in float32, the CPU's bits.
template <class Kept>
struct Arithmetic {
  __device__ static float add_product(float sum, float a, float b) { return sum + a * b; }
  __device__ static float silu(float x) { return x * sigmoid(x); }
};
// Of inputs that are rounded to bf16, far more bits than these have, in a third of the time.
template <>
struct Arithmetic<bf16> {
  __device__ static float add_product(float sum, float a, float b) { return __fmaf_rn(a, b, sum); }
  __device__ static float silu(float x) { return __fdividef(x, 1.0F + __expf(-x)); }
};

// A filter of up to `window` taps; those that there are stand at its end. That of several channels
// has them all.
template <class Kept, int window, int count>
struct Filter {
  // Rows whose inputs a thread loads together.
  static constexpr int batch = 4;

  Channels<count> weights[window];
  Channels<count> bias;

  __device__ Filter(const Convolve& p, std::int64_t channel) {
    const int first = window - static_cast<int>(p.taps);
#pragma unroll
    for (int c = 0; c < count; ++c) {
      const float* const taps = p.weight + (channel + c) * p.taps;
      Channels<window> of_channel;
      if constexpr (count > 1) {
        of_channel = load_channels<window>(taps);
      } else {
#pragma unroll
        for (int i = 0; i < window; ++i) of_channel.at[i] = i < first ? 0.0F : taps[i - first];
      }
#pragma unroll
      for (int i = 0; i < window; ++i) weights[i].at[c] = of_channel.at[i];
      bias.at[c] = p.bias != nullptr ? p.bias[channel + c] : 0.0F;
    }
  }

  // The inputs before a row, and room for those of a batch.
  using Inputs = Channels<count>[window - 1 + batch];

  // Those before row `from` of a sequence's step. Positions before the first count as zeros, and so
  // do taps that are not there: sums begin with 0, so their bits are as without those terms.
  __device__ static void load_before(const SequenceChannels<Kept, count>& channels, int from,
                                     Inputs& inputs) {
    const auto taps = static_cast<int>(channels.p.taps);
#pragma unroll
    for (int i = 0; i < window - 1; ++i) {
      const int position = channels.s.start + from - (window - 1) + i;
      const bool there = i >= window - taps && position >= 0;
      inputs[i] = there ? channels.input(position) : Channels<count>{};
    }
  }

  // Rows [from, to) of a sequence's step, after those before them. write(row, results) takes the
  // results of a row of the step.
  template <class Write>
  __device__ void run(const SequenceChannels<Kept, count>& channels, int from, int to,
                      Inputs& inputs, const Write& write) const {
    const Convolve& p = channels.p;
    const SequenceStep& s = channels.s;
    for (int r = from; r < to; r += batch) {
#pragma unroll
      for (int b = 0; b < batch; ++b)
        inputs[window - 1 + b] = r + b < to ? channels.fresh(s.start + r + b) : Channels<count>{};
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        if (r + b >= to) break;
        Channels<count> results;
#pragma unroll
        for (int c = 0; c < count; ++c) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < window; ++i)
            sum = Arithmetic<Kept>::add_product(sum, inputs[b + i].at[c], weights[i].at[c]);
          if (p.bias != nullptr) sum += bias.at[c];
          if (p.silu) sum = Arithmetic<Kept>::silu(sum);
          results.at[c] = sum;
        }
        write(s.row + r + b, results);
      }
#pragma unroll
      for (int i = 0; i < window - 1; ++i) inputs[i] = inputs[batch + i];
    }
  }
};

// What the next steps of a sequence read, after its first rows have read what the last one left.
// The rows before the new anchor are in the log or in the step: a page is longer than a filter.
template <class Kept, int count>
__device__ void keep_inputs(const SequenceChannels<Kept, count>& channels) {
  const SequenceStep& s = channels.s;
  if (s.next_anchor > s.anchor) {
    for (int back = static_cast<int>(channels.p.taps) - 1; back > 0; --back)
      store_channels(channels.before_anchor(back), channels.input(s.next_anchor - back));
  }
  for (int position = max(s.start, s.end() - static_cast<int>(convolution_log_rows));
       position < s.end(); ++position)
    store_channels(channels.logged(position), channels.fresh(position));
}

// The last sequence that begins at or before a row, which holds it. A whole warp calls it.
__device__ inline int sequence_of(const Sequences& rows, int row) {
  int before = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < static_cast<int>(rows.count); i += 32)
    before += rows.seq_begin[i] <= row ? 1 : 0;
  return static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, static_cast<unsigned>(before))) - 1;
}

// Rows [low, high) of the step that are there, for a thread's channels; sequence `first` holds row
// `low`. The block in which a sequence begins computes all of its rows that read what the last step
// left, and then writes what the next one reads. What earlier steps left is read before the
// previous grid ends; the call waits for it.
template <class Kept, int window, int count, class Write>
__device__ void convolve_rows(const Convolve& p, std::int64_t channel, int first, int low, int high,
                              const Write& write) {
  using Taps = Filter<Kept, window, count>;
  const auto sequences = static_cast<int>(p.steps.rows.count);
  high = min(high, p.steps.rows.seq_begin[sequences]);
  if (low >= high) return wait_for_previous_grid();
  const Taps filter(p, channel);
  const int first_readers = static_cast<int>(p.taps) - 1;
  bool waited = false;
  const auto wait = [&] {
    if (!waited) wait_for_previous_grid();
    waited = true;
  };
  int end = low;  // of the sequences so far
  for (int sequence = first; sequence < sequences && end < high; ++sequence) {
    const SequenceStep s = sequence_step(p.steps, sequence);
    if (s.count <= 0) continue;
    const auto row = static_cast<int>(s.row);
    end = row + s.count;
    const SequenceChannels<Kept, count> channels{.p = p, .s = s, .channel = channel};
    typename Taps::Inputs inputs;
    const int begin = low - row;  // rows before it are those of other blocks
    const int to = min(high, end) - row;
    if (begin > 0) {
      wait();
      const int from = max(begin, first_readers);
      if (from >= to) continue;
      Taps::load_before(channels, from, inputs);
      filter.run(channels, from, to, inputs, write);
    } else {
      Taps::load_before(channels, 0, inputs);
      wait();
      filter.run(channels, 0, max(to, min(first_readers, s.count)), inputs, write);
      keep_inputs(channels);
    }
  }
  wait();
}

// How rows are dealt to blocks. More rows a block read less twice; fewer fill the device when rows
// are few.
inline int convolved_rows_a_block(const StateSteps& steps) {
  if (most_rows(steps) == 1) return 1;
  constexpr std::int64_t many_rows = 1024;
  return steps.rows.rows >= many_rows ? 32 : 4;
}

}  // namespace motley::kernels::cuda
