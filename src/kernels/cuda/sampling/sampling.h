#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/sampling.h"

namespace motley::kernels::cuda {

// One kernel: a cluster of blocks holds a row in shared memory, reads it from global memory once,
// and passes over it as often as the row's choice needs. Sums are integers, so the result has the
// CPU's bits for any cluster size.
void sample(const Sample& params, StreamHandle stream);
std::int64_t sample_scratch_bytes(std::int64_t rows, std::int64_t width, StreamHandle stream);

// Sets the kernels' attributes on the current device.
Result<void> prepare_sampling();

void count_tokens(const CountTokens& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
