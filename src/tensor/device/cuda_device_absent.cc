// Stands in for cuda_device.cc in a build without CUDA.

#include "tensor/device/cuda_device.h"

namespace motley::tensor {

Result<std::unique_ptr<Device>> open_cuda_device(int) {
  return Error(ErrorCode::unavailable, "this build has no CUDA", "--device cuda",
               "build again with nvcc on PATH, or use --device cpu");
}

int count_cuda_devices() { return 0; }

}  // namespace motley::tensor
