// Compares one half step with float64.
#pragma once

#include "runs.h"

namespace motley::bench::half_step {

// Prints the errors of each hand-over's values for a half step of each weight set; whether all are
// small.
bool check(Runs& runs, const Run& run);

}  // namespace motley::bench::half_step
