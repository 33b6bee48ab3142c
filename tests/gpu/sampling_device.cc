#include "sampling/draws.h"

// The statistics of tests/sampling are those of the first GPU's sampler.
namespace motley::sampling_tests {

tensor::Device& device() {
  static const auto gpu = tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value();
  return *gpu;
}

}  // namespace motley::sampling_tests
