// Stands in for cuda/ in a build without CUDA.

#include "base/error.h"
#include "kernels/elementary.h"

namespace motley::kernels {

Result<const ElementaryTable*> cuda_table() {
  return Error(ErrorCode::unavailable, "this build has no CUDA", "--device cuda",
               "build again with nvcc on PATH, or use --device cpu");
}

Result<void> cuda_launches() { return {}; }

}  // namespace motley::kernels
