// What groups of GPUs ask of the runtime when they are made.
#pragma once

#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include "base/result.h"

namespace motley::kernels::cuda {

// "the GPU failed to <action>", of that GPU.
Result<void> done(cudaError_t status, std::string_view action, int gpu);

// Refuses more ranks than groups take, and GPUs that are not there.
Result<void> find_gpus(const std::vector<int>& gpus);

}  // namespace motley::kernels::cuda
