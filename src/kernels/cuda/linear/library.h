#pragma once

#include <memory>

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// cuBLASLt on one device, for bf16 rows times bf16 weights, or float32 both, multiplied as TF32.
// Unless a product is batch-invariant, the order of sums may depend on the number of rows. Caches
// the algorithms of recent shapes. Thread-safe.
class MatmulLibrary {
 public:
  // Opens it for the thread's current device.
  static Result<std::unique_ptr<MatmulLibrary>> open();
  virtual ~MatmulLibrary() = default;
  // Memory for decoded_panel_numbers (linear.h) of bf16, of one stream at a time.
  virtual void* panel() = 0;
  // Whether it has an algorithm. The first call for a shape searches for one.
  virtual bool supports(const Linear& product, bool transposed) = 0;
  // For products that it supports.
  virtual void multiply(const Linear& product, bool transposed, StreamHandle stream) = 0;
};

}  // namespace motley::kernels::cuda
