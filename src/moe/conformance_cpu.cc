#include "moe/conformance_runner.h"
#include "tensor/cpu_device.h"

// The suite runs the backends of the CPU.
namespace motley::moe::conformance {

tensor::DeviceKind device_kind() { return tensor::DeviceKind::cpu; }

tensor::Device& device() {
  static tensor::CpuDevice cpu({.threads = 1});
  return cpu;
}

Result<void> kernel_errors() { return {}; }

}  // namespace motley::moe::conformance
