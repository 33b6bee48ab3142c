#pragma once

#include <span>

#include "base/result.h"
#include "kernels/cuda/linear/linear.h"

// The instances of the streamed GEMV over codes, a file for each kind of code.
namespace motley::kernels::cuda::streamed {

struct Launch;

// Bytes of a stored scale.
constexpr MOTLEY_HOST_DEVICE int scale_bytes(DType type) {
  switch (type) {
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f8_e4m3:
    case DType::f8_e8m0:
      return 1;
    default:
      return 4;
  }
}

Result<void> prepare_int4();
Result<void> prepare_int8();
Result<void> prepare_fp8();
Result<void> prepare_fp4();
void launch_int4(Launch& launch, StreamHandle stream);
void launch_int8(Launch& launch, StreamHandle stream);
void launch_fp8(Launch& launch, StreamHandle stream);
void launch_fp4(Launch& launch, StreamHandle stream);

}  // namespace motley::kernels::cuda::streamed
