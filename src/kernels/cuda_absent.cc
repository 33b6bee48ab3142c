// Stands in for cuda/ in a build without CUDA.

#include "base/check.h"
#include "base/error.h"
#include "kernels/elementary.h"
#include "kernels/read_memory.h"

namespace motley::kernels {

Result<std::shared_ptr<const ElementaryTable>> cuda_table(int) {
  return Error(ErrorCode::unavailable, "this build has no CUDA", "--device cuda",
               "build again with nvcc on PATH, or use --device cpu");
}

Result<void> cuda_launches(const ElementaryTable&) { return {}; }
void log_cuda_launches(const ElementaryTable&, std::vector<std::string>*) {}

void cuda::read_memory(const ReadMemory&, StreamHandle) {
  MOTLEY_CHECK(false, "a build with CUDA");
}

}  // namespace motley::kernels
