#include "base/check.h"
#include "kernels/cuda/recurrence/exact.h"
#include "kernels/cuda/recurrence/recurrence.h"

namespace motley::kernels::cuda {

void recur(const Recur& p, StreamHandle stream) {
  MOTLEY_CHECK(p.key_width <= max_key_width && p.value_heads % p.key_heads == 0,
               "heads that a state can have");
  if (p.steps.rows.count <= 0 || p.steps.rows.rows <= 0) return;
  recur_exact(p, stream);
}

Result<void> prepare_recurrence() { return prepare_recur_exact(); }

}  // namespace motley::kernels::cuda
