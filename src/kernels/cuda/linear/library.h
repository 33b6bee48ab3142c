#pragma once

#include <memory>

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// cuBLASLt on one device, for bf16 rows times bf16 weights, or for float32 ones, of which products
// take ten bits behind the point. Unless a product is to be batch-invariant, another number of rows
// may have another order of sums. It keeps the algorithms of recent shapes. From any thread.
class MatmulLibrary {
 public:
  // For the thread's current device.
  static Result<std::unique_ptr<MatmulLibrary>> open();
  virtual ~MatmulLibrary() = default;
  // Whether it has an algorithm. The first question about a shape searches for one.
  virtual bool supports(const Linear& product, bool transposed) = 0;
  // Of a product that it supports.
  virtual void multiply(const Linear& product, bool transposed, StreamHandle stream) = 0;
};

}  // namespace motley::kernels::cuda
