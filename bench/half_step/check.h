// Compares one half step with float64.
#pragma once

#include "runs.h"

namespace motley::bench::half_step {

// Compares the values of each hand-over for a half step of each weight set; whether all errors are
// small. Prints them if `prints` or one is not.
bool check(Runs& runs, const Run& run, bool prints);

}  // namespace motley::bench::half_step
