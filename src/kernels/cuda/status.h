#pragma once

#include "base/result.h"

// Entries of kernel tables return nothing: a launch fails only by errors that are final for the
// process. The first one is kept for whoever ends a step.
namespace motley::kernels::cuda {

// From any thread.
void keep_error(const Result<void>& launched);
// The first error that was kept, again and again.
Result<void> kept_error();

}  // namespace motley::kernels::cuda
