#pragma once

#include "base/system/stream_handle.h"
#include "kernels/sampling.h"

namespace motley::kernels::cpu {

void sample(const Sample& params, StreamHandle stream);
std::int64_t sample_scratch_bytes(std::int64_t rows, std::int64_t width, StreamHandle stream);
void count_tokens(const CountTokens& params, StreamHandle stream);

}  // namespace motley::kernels::cpu
