// Where a half step's time goes.
#pragma once

#include "runs.h"

namespace motley::bench::HALF_STEP_NAMESPACE {

// Prints for each phase its time in the mean of the blocks (the least - the most), and the time
// between launches.
void print_phases(Runs& runs, const Run& run, double cycles_per_us);

}  // namespace motley::bench::HALF_STEP_NAMESPACE
