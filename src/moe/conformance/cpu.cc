#include "moe/conformance/runner.h"
#include "tensor/device/cpu_device.h"

// Runs the suite on the backends of the CPU.
namespace motley::moe::conformance {

tensor::DeviceKind device_kind() { return tensor::DeviceKind::cpu; }

tensor::Device& device() {
  static tensor::CpuDevice cpu({.threads = 1});
  return cpu;
}

const kernels::ElementaryTable& device_kernels() { return kernels::cpu_table(); }

}  // namespace motley::moe::conformance
