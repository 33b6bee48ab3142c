// Launches, and errors of the runtime as values.
#pragma once

#include <string_view>

#include <cuda_runtime.h>

#include "base/cat.h"
#include "base/result.h"
#include "base/stream_handle.h"

namespace motley::kernels::cuda {

inline Result<void> launched(cudaError_t status, std::string_view kernel) {
  if (status == cudaSuccess) return {};
  return Error(ErrorCode::internal,
               cat("the GPU failed to launch ", kernel, ": ", cudaGetErrorString(status)), "cuda",
               "restart; if it happens again, check the GPU with nvidia-smi");
}

inline cudaStream_t native(StreamHandle stream) { return static_cast<cudaStream_t>(stream.native); }

struct LaunchShape {
  unsigned grid = 1;
  unsigned grid_y = 1;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;
  unsigned cluster_y = 1;  // blocks of a cluster, along grid_y
};

// The kernel may start while the one before it on the stream drains: it must call
// wait_for_previous_grid() before it touches memory that others write.
template <class... Parameters, class... Arguments>
Result<void> launch(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape,
                    StreamHandle stream, const Arguments&... arguments) {
  if (shape.grid == 0 || shape.grid_y == 0) return {};
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {.x = 1, .y = shape.cluster_y, .z = 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid, shape.grid_y);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = native(stream);
  config.attrs = attributes;
  config.numAttrs = shape.cluster_y > 1 ? 2 : 1;
  return launched(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

__device__ inline void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ inline void wait_for_previous_grid() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace motley::kernels::cuda
