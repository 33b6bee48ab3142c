// Compares one half step with float64.
#pragma once

#include <vector>

#include "runs.h"

namespace motley::bench::HALF_STEP_NAMESPACE {

// Compares each hand-over's values with float64 for a half step of each weight set; whether all
// errors are small. Prints them, if `prints` or one is not.
bool check(Runs& runs, const Run& run, bool prints);

// Repeats a chain in turn in each of the ways, which must have the same bits, and counts those that
// have not. Of the first ones it prints in which launch and where the first difference is.
int count_different_chains(Runs& runs, const std::vector<Run>& ways, int chains);

}  // namespace motley::bench::HALF_STEP_NAMESPACE
