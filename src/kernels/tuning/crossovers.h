#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "kernels/tuning/tuning.h"

// From times of candidates at a ladder of numbers of rows to thresholds. Measuring itself is the
// caller's.
namespace motley::kernels {

// A kernel must be faster than its neighbour by more than this to have rows of its own.
inline constexpr double tuning_noise = 0.02;

// Numbers of rows from 1 to `most`, where kernels' tiles end and between.
std::vector<std::int64_t> tuning_ladder(std::int64_t most);

// The us of a launch of a candidate with so many rows; nothing: it does not support them. A
// candidate that takes longer than `limit_us` loses, so a rough time is enough for it.
using TimeCandidate = FunctionRef<Result<std::optional<double>>(
    std::size_t candidate, std::int64_t rows, double limit_us)>;

// All candidates at all numbers of rows. Those that support none are left out.
Result<MeasuredTimes> measure_candidates(std::span<const std::string> names,
                                         std::span<const std::int64_t> ladder,
                                         TimeCandidate measure);

// The thresholds that follow. At each number of rows the chosen candidate is within the noise of
// the fastest, and among those it is that of the neighbouring numbers of rows. The last row has no
// bound. Empty if nothing was measured.
std::vector<TunedRow> find_crossovers(const MeasuredTimes& times);

}  // namespace motley::kernels
