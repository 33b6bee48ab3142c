#include "kernels/elementary.h"
#include "sampling/draws.h"

namespace motley::sampling_tests {

tensor::Device& device() {
  static const auto cpu =
      tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}, {.threads = 2}).value();
  return *cpu;
}

const kernels::ElementaryTable& device_kernels() { return kernels::cpu_table(); }

}  // namespace motley::sampling_tests
