#pragma once

#include <memory>

#include "tensor/device/device.h"

namespace motley::tensor {

// Opens a GPU. In a build without CUDA it returns an error that says how to get one.
Result<std::unique_ptr<Device>> open_cuda_device(int index);

// Without CUDA, a driver or a GPU: 0.
int count_cuda_devices();

}  // namespace motley::tensor
