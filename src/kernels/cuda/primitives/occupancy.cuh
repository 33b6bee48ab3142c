// Checks that blocks which wait for each other are co-resident, and that warps get the registers
// that they ask for. Called when a device is opened.
#pragma once

#include <string_view>

#include "base/cat.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {

// Checks a grid of shape.grid blocks per multiprocessor.
template <class... Parameters>
Result<void> require_resident(std::string_view name, void (*kernel)(Parameters...),
                              const LaunchShape& shape) {
  int blocks = 0;
  MOTLEY_TRY_VOID(
      launched(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                   &blocks, kernel, static_cast<int>(shape.threads), shape.shared_bytes),
               name));
  if (blocks >= static_cast<int>(shape.grid)) return {};
  return Error(ErrorCode::unsupported,
               cat("blocks of ", name, " wait for each other, ", shape.grid,
                   " on a multiprocessor, and this GPU has room for ", blocks),
               "cuda", "use a GPU with as much shared memory and as many registers as an H100");
}

// Registers that a block's warps ask for together once it runs (setmaxnreg).
struct AskedRegisters {
  int threads = 0;
  int needed = 0;
};
// Checks that a block is launched with as many: warps that ask for more would wait for ever.
template <class... Parameters>
Result<void> require_registers(std::string_view name, void (*kernel)(Parameters...),
                               const AskedRegisters& asked) {
  cudaFuncAttributes attributes{};
  MOTLEY_TRY_VOID(launched(cudaFuncGetAttributes(&attributes, kernel), name));
  const int given = attributes.numRegs * asked.threads;
  if (given >= asked.needed) return {};
  return Error(ErrorCode::unsupported,
               cat("a block of ", name, " is launched with ", given,
                   " registers, and its warps ask for ", asked.needed),
               "cuda", "report it with the version of the CUDA compiler");
}

// Checks that a cluster fits: its blocks start together or not at all.
template <class... Parameters>
Result<void> require_cluster(std::string_view name, void (*kernel)(Parameters...),
                             const LaunchShape& shape) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {.x = 1, .y = shape.cluster_y, .z = 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1, shape.cluster_y);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  MOTLEY_TRY_VOID(launched(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), name));
  if (clusters > 0) return {};
  return Error(ErrorCode::unsupported,
               cat("this GPU has no room for a cluster of ", shape.cluster_y, " blocks of ", name),
               "cuda", "use a GPU with as much shared memory and as many registers as an H100");
}

}  // namespace motley::kernels::cuda
