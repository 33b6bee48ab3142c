#pragma once

#include "base/result.h"
#include "kernels/recurrence.h"

namespace motley::kernels::cuda {

// Every shape, in float32, with the CPU's order of sums and roundings: the same bits, also of what
// is kept, if the log's keys are float32.
void recur_exact(const Recur& params, StreamHandle stream);
Result<void> prepare_recur_exact();

}  // namespace motley::kernels::cuda
