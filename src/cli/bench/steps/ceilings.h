#pragma once

#include "base/result.h"
#include "kernels/elementary.h"
#include "tensor/device/device.h"

namespace motley::cli {

// The measured limits of a device.
struct Ceilings {
  double bytes_a_second = 0;       // read from memory
  double operations_a_second = 0;  // in a large product; a multiply-add is two
};

// Measures products with the arithmetic of models: float32 if exact, else bf16.
Result<Ceilings> measure_ceilings(tensor::Device& device, const kernels::ElementaryTable& kernels,
                                  bool exact);

}  // namespace motley::cli
