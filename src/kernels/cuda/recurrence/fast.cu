#include <algorithm>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/recurrence/fast.h"
#include "kernels/cuda/recurrence/fast_decode.cuh"
#include "kernels/cuda/recurrence/fast_prompt.cuh"

namespace motley::kernels::cuda {
namespace {

using fast::Decode;
using NarrowPrompt = fast::Prompt<2>;
using WidePrompt = fast::Prompt<4>;

constexpr unsigned store_threads = 256;

// What the log keeps of keys, decays and betas of long steps, after every head has read it.
__global__ void __launch_bounds__(store_threads)
    store_rows(const __grid_constant__ Recur p, int min_rows) {
  launch_dependents();
  wait_for_previous_grid();
  const SequenceStep s = sequence_step(p.steps, static_cast<int>(blockIdx.y));
  if (s.count < min_rows) return;
  const int position = s.kept_from() + static_cast<int>(blockIdx.x);
  if (position >= s.end()) return;
  const std::int64_t row = s.row + position - s.start;
  const std::int64_t slot = s.slot * p.memory.slot_stride;
  const std::int64_t keys = p.key_heads * fast::width;
  auto* const log = reinterpret_cast<Bf16*>(static_cast<float*>(p.memory.keys) + slot) +
                    position % log_rows * keys;
  for (std::int64_t i = threadIdx.x; i < keys; i += store_threads)
    log[i] = __float2bfloat16_rn(p.k[row * p.k_stride + i]);
  const std::int64_t first = slot + position % log_rows * p.value_heads;
  for (std::int64_t i = threadIdx.x; i < p.value_heads; i += store_threads) {
    p.memory.decays[first + i] = p.g[row * p.g_stride + i];
    p.memory.betas[first + i] = p.beta[row * p.beta_stride + i];
  }
}

template <class Form>
void launch_decode(const Recur& p, int max_rows, StreamHandle stream) {
  launch("recur_decode", fast::recur_decode<Form>,
         {.grid = static_cast<unsigned>(p.value_heads * Form::parts),
          .grid_y = static_cast<unsigned>(p.steps.rows.count),
          .threads = Form::threads},
         stream, p, max_rows);
}

// Few blocks leave multiprocessors without any, and a block's latency counts; many share them, and
// what a block does once for a head counts.
DecodeForm choose_decode(const Recur& p) {
  const std::int64_t heads = p.value_heads * p.steps.rows.count;
  if (heads <= 32) return DecodeForm::helped;
  return heads <= 128 ? DecodeForm::loose : DecodeForm::halves;
}

void launch_decode(const Recur& p, DecodeForm form, int max_rows, StreamHandle stream) {
  switch (form) {
    case DecodeForm::helped:
      return launch_decode<Decode<2, 8, true>>(p, max_rows, stream);
    case DecodeForm::loose:
      return launch_decode<Decode<4, 12>>(p, max_rows, stream);
    case DecodeForm::halves:
      return launch_decode<Decode<4, 16>>(p, max_rows, stream);
    case DecodeForm::whole:
      return launch_decode<Decode<8, 16>>(p, max_rows, stream);
  }
}

template <class Form>
Result<void> allow_prompt() {
  return allow_shared_memory("recur_prompt", fast::recur_prompt<Form>,
                             sizeof(typename Form::Shared));
}

template <class Form>
void launch_prompt(const Recur& p, int min_rows, StreamHandle stream) {
  launch("recur_prompt", fast::recur_prompt<Form>,
         {.grid = static_cast<unsigned>(p.value_heads * Form::parts),
          .grid_y = static_cast<unsigned>(p.steps.rows.count),
          .threads = Form::threads,
          .shared_bytes = sizeof(typename Form::Shared)},
         stream, p, min_rows);
}

// A prompt's pages follow each other, so narrow blocks are the fastest where each has a
// multiprocessor. Otherwise the work of all counts, of which wide ones have less.
PromptForm choose_prompt(const Recur& p, StreamHandle stream) {
  const std::int64_t blocks = p.value_heads * NarrowPrompt::parts;
  const bool one_round =
      blocks * p.steps.rows.rows <= device_of(stream).multiprocessors() * most_rows(p.steps);
  return one_round ? PromptForm::narrow : PromptForm::wide;
}

}  // namespace

bool has_fast_recurrence(const RecurrenceShape& shape) {
  return shape.key_width == fast::width && shape.value_width == fast::width &&
         !shape.decay_by_key && shape.corrects;
}

Result<void> prepare_recur_fast() {
  MOTLEY_TRY_VOID(allow_prompt<NarrowPrompt>());
  return allow_prompt<WidePrompt>();
}

void recur_fast(const Recur& p, StreamHandle stream, const FastForms& forms) {
  constexpr auto most_decoded = static_cast<int>(most_short_rows);
  const DecodeForm decode = forms.decode.value_or(choose_decode(p));
  const PromptForm prompt = forms.prompt.value_or(choose_prompt(p, stream));
  const bool as_short = prompt == PromptForm::as_short;
  const bool only_short = log_has_room(p.steps);
  if (as_short && !only_short) {
    launch_decode(p, decode, static_cast<int>(most_rows(p.steps)), stream);
  } else {
    if (only_short || p.steps.rows.least_rows <= most_short_rows)
      launch_decode(p, decode, most_decoded, stream);
    if (only_short) return;
    if (prompt == PromptForm::narrow)
      launch_prompt<NarrowPrompt>(p, most_decoded + 1, stream);
    else
      launch_prompt<WidePrompt>(p, most_decoded + 1, stream);
  }
  launch("recur_store", store_rows,
         {.grid = static_cast<unsigned>(std::min(most_rows(p.steps), most_kept_rows)),
          .grid_y = static_cast<unsigned>(p.steps.rows.count),
          .threads = store_threads},
         stream, p, as_short ? 1 : most_decoded + 1);
}

}  // namespace motley::kernels::cuda
