#include "base/check.h"
#include "kernels/cuda/recurrence/exact.h"
#include "kernels/cuda/recurrence/fast.h"
#include "kernels/cuda/recurrence/recurrence.h"

namespace motley::kernels::cuda {
namespace {

// The fast path reads rows in whole vec4s.
bool has_whole_rows(const Recur& p) {
  const auto whole = [](const float* data, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
  };
  return whole(p.q, p.q_stride) && whole(p.k, p.k_stride) && whole(p.v, p.v_stride);
}

}  // namespace

// Layers that the fast path does not serve have float32 logs: narrower keys would gain no time.
KeptTypes kept_types(const RecurrenceShape& shape, bool exact) {
  if (exact) return {};
  KeptTypes types{.inputs = DType::bf16};
  if (has_fast_recurrence(shape)) {
    types.keys = DType::bf16;
    types.betas = true;
  }
  return types;
}

void recur(const Recur& p, StreamHandle stream) {
  MOTLEY_CHECK(p.key_width <= max_key_width && p.value_heads % p.key_heads == 0,
               "heads that a state can have");
  if (p.steps.rows.count <= 0 || p.steps.rows.rows <= 0) return;
  // The log says which kernels keep it, so that all steps of a layer have the same.
  if (p.memory.betas == nullptr) return recur_exact(p, stream);
  MOTLEY_CHECK(!p.exact && p.memory.key_type == DType::bf16 && p.beta != nullptr &&
                   has_fast_recurrence({.key_heads = p.key_heads,
                                        .value_heads = p.value_heads,
                                        .key_width = p.key_width,
                                        .value_width = p.value_width,
                                        .decay_by_key = p.decay_by_key,
                                        .corrects = true}),
               "a layer whose log has betas");
  MOTLEY_CHECK(has_whole_rows(p), "rows of whole vec4s");
  recur_fast(p, stream);
}

Result<void> prepare_recurrence() {
  MOTLEY_TRY_VOID(prepare_recur_exact());
  return prepare_recur_fast();
}

}  // namespace motley::kernels::cuda
