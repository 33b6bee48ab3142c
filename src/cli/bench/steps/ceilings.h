#pragma once

#include "base/result.h"
#include "kernels/elementary.h"
#include "tensor/device/device.h"

namespace motley::cli {

// The best that a device does here and now.
struct Ceilings {
  double bytes_a_second = 0;       // read from memory
  double operations_a_second = 0;  // in a large product; a multiply-add is two
};

// Products are those of models with that arithmetic: float32 if exact, or bf16.
Result<Ceilings> measure_ceilings(tensor::Device& device, const kernels::ElementaryTable& kernels,
                                  bool exact);

}  // namespace motley::cli
