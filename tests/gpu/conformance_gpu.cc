#include "gpu/device_kernels.h"
#include "moe/conformance/runner.h"

// The suite of src/moe runs the backends of the first GPU.
namespace motley::moe::conformance {

tensor::DeviceKind device_kind() { return tensor::DeviceKind::cuda; }

tensor::Device& device() {
  static const auto gpu = tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value();
  return *gpu;
}

const kernels::ElementaryTable& device_kernels() { return gpu_tests::device_table(); }

}  // namespace motley::moe::conformance
