// Kernel launches.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include <cuda_runtime.h>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/cuda/primitives/device.h"

namespace motley::kernels::cuda {

inline cudaStream_t native(StreamHandle stream) { return static_cast<cudaStream_t>(stream.native); }

struct LaunchShape {
  unsigned grid = 1;
  unsigned grid_y = 1;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;
  unsigned cluster_y = 1;  // blocks of a cluster, along grid_y
};

// For a kernel of any type; `arguments` are the addresses of its parameters.
inline Result<void> try_launch(std::string_view name, const void* kernel, const LaunchShape& shape,
                               StreamHandle stream, void** arguments) {
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
  // Launches at load have a stream without a device.
  if (stream.device != nullptr) device_of(stream).note_launch(name);
  return launched(cudaLaunchKernelExC(&config, kernel, arguments), name);
}

// The kernel may start while the previous one on the stream drains: it must call
// wait_for_previous_grid() before it touches memory that other kernels write.
template <class... Parameters>
Result<void> try_launch(std::string_view name, void (*kernel)(Parameters...),
                        const LaunchShape& shape, StreamHandle stream,
                        const std::type_identity_t<Parameters>&... arguments) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return try_launch(name, reinterpret_cast<const void*>(kernel), shape, stream, addresses);
}

// The same; an error is kept in the stream's device.
template <class... Parameters>
void launch(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape,
            StreamHandle stream, const std::type_identity_t<Parameters>&... arguments) {
  device_of(stream).keep(try_launch(name, kernel, shape, stream, arguments...));
}

// Allows more shared memory than the default limit. For the device that is being opened.
template <class... Parameters>
Result<void> allow_shared_memory(std::string_view name, void (*kernel)(Parameters...),
                                 std::size_t bytes) {
  return launched(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)),
                  name);
}

__device__ inline void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ inline void wait_for_previous_grid() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace motley::kernels::cuda
