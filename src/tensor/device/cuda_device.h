#pragma once

#include <memory>

#include "tensor/device/device.h"

namespace motley::tensor {

// Opens a GPU. In a build without CUDA it returns an error that says how to get one.
Result<std::unique_ptr<Device>> open_cuda_device(int index);

}  // namespace motley::tensor
