#pragma once

#include <memory>

#include "tensor/device/device.h"

namespace motley::tensor {

// The GPU of that number. A build without CUDA has this function too: it says how to get one.
Result<std::unique_ptr<Device>> open_cuda_device(int index);

}  // namespace motley::tensor
