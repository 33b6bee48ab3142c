#pragma once

#include <span>

#include "base/result.h"
#include "kernels/cuda/linear/linear.h"

// The instances of the streamed GEMV over codes, a file for each kind of code.
namespace motley::kernels::cuda::streamed {

struct Launch;

Result<void> prepare_int4();
Result<void> prepare_int8();
Result<void> prepare_fp8();
Result<void> prepare_fp4();
void launch_int4(Launch& launch, StreamHandle stream);
void launch_int8(Launch& launch, StreamHandle stream);
void launch_fp8(Launch& launch, StreamHandle stream);
void launch_fp4(Launch& launch, StreamHandle stream);

}  // namespace motley::kernels::cuda::streamed
