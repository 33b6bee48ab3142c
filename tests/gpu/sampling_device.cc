#include "gpu/device_kernels.h"
#include "sampling/draws.h"

// The statistics of tests/sampling are those of the first GPU's sampler.
namespace motley::sampling_tests {

tensor::Device& device() {
  static const auto gpu = tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value();
  return *gpu;
}

const kernels::ElementaryTable& device_kernels() { return gpu_tests::device_table(); }

}  // namespace motley::sampling_tests
