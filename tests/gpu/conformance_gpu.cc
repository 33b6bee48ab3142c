#include "kernels/cuda/status.h"
#include "moe/conformance_runner.h"

// The suite of src/moe runs the backends of the first GPU.
namespace motley::moe::conformance {

tensor::DeviceKind device_kind() { return tensor::DeviceKind::cuda; }

tensor::Device& device() {
  static const auto gpu = tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value();
  return *gpu;
}

Result<void> kernel_errors() { return kernels::cuda::kept_error(); }

}  // namespace motley::moe::conformance
