#include "kernels/cpu/recurrence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/system/thread_pool.h"
#include "kernels/cpu/elementary_loops.h"

namespace motley::kernels::cpu {
namespace {

void for_tasks(StreamHandle stream, std::int64_t tasks, FunctionRef<void(std::int64_t)> body) {
  auto* pool = static_cast<ThreadPool*>(stream.native);
  if (pool != nullptr) return pool->for_tasks(tasks, pool->size(), body);
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
}

// The rows that a sequence has in a step may be taken back as far as the log goes.
void check(const StateSteps& steps) {
  for (std::int64_t s = 0; s < steps.rows.count; ++s) {
    const std::int64_t rows = steps.rows.seq_begin[s + 1] - steps.rows.seq_begin[s];
    if (rows == 0) continue;
    const std::int64_t start = steps.rows.positions[steps.rows.seq_begin[s]];
    const std::int64_t certain = steps.certain[s];
    MOTLEY_CHECK(certain >= 0 && certain <= rows && rows - certain <= max_uncertain_rows,
                 "a log holds the rows that may be taken back");
    MOTLEY_CHECK(steps.anchors[s] % state_page == 0 && steps.anchors[s] <= start &&
                     start - steps.anchors[s] < state_page + max_uncertain_rows,
                 "a state stands at a page's border, and the log has the rows since");
  }
}

// The keys of rows that stay in the log, after all heads have read it.
void store_keys(const Recur& p, std::int64_t sequence) {
  const Sequences& rows = p.steps.rows;
  const std::int64_t first = rows.seq_begin[sequence];
  const std::int64_t count = rows.seq_begin[sequence + 1] - first;
  if (count == 0) return;
  const std::int64_t start = rows.positions[first];
  const std::int64_t width = p.key_heads * p.key_width;
  const std::int64_t kept = std::max(start, anchor_after(start, p.steps.certain[sequence]));
  float* const log =
      static_cast<float*>(p.memory.keys) + p.steps.slots[sequence] * p.memory.slot_stride;
  for (std::int64_t position = kept; position < start + count; ++position) {
    std::copy_n(p.k + (first + position - start) * p.k_stride, width,
                log + position % state_log_rows * width);
  }
}

}  // namespace

void recur(const Recur& p, StreamHandle stream, InstructionSet set) {
  MOTLEY_CHECK(p.key_width <= max_key_width && p.value_heads % p.key_heads == 0,
               "heads that a state can have");
  MOTLEY_CHECK(p.memory.key_type == DType::f32 && p.memory.betas == nullptr,
               "a log in float32, without betas");
  check(p.steps);
  for_tasks(stream, p.steps.rows.count * p.value_heads, [&](std::int64_t task) {
    loops(set).recur(p, task / p.value_heads, task % p.value_heads);
  });
  for_tasks(stream, p.steps.rows.count, [&](std::int64_t sequence) { store_keys(p, sequence); });
}

void convolve(const Convolve& p, StreamHandle stream, InstructionSet set) {
  constexpr std::int64_t channels_a_task = 256;
  MOTLEY_CHECK(p.taps >= 1 && p.taps <= max_taps, "taps that a log can have");
  MOTLEY_CHECK(p.memory.type == DType::f32, "a log in float32");
  check(p.steps);
  const std::int64_t blocks = (p.channels + channels_a_task - 1) / channels_a_task;
  for_tasks(stream, p.steps.rows.count * blocks, [&](std::int64_t task) {
    const std::int64_t begin = task % blocks * channels_a_task;
    loops(set).convolve(p, task / blocks, begin, std::min(begin + channels_a_task, p.channels));
  });
}

void gates(const DeltaGates& p, StreamHandle stream) {
  // Beyond it the sum with one is rounded away.
  constexpr float large = 20;
  for_tasks(stream, p.rows, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      const float a = p.a[row * p.a_stride + head] + p.bias[head];
      const float softplus = a > large ? a : std::log1p(std::exp(a));
      p.g[row * p.g_stride + head] = p.decay[head] * softplus;
      p.beta[row * p.beta_stride + head] = 1 / (1 + std::exp(-p.b[row * p.b_stride + head]));
    }
  });
}

}  // namespace motley::kernels::cpu
