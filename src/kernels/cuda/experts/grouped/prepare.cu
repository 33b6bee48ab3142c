#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "kernels/cuda/experts/grouped/kernels.h"
#include "kernels/cuda/experts/grouped/shrinks.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda::grouped {
namespace {

// Shared memory of a multiprocessor; each block reserves 1 KB of it.
constexpr int multiprocessor_bytes = 228 * 1024;

// The dynamic shared memory of the kernel's blocks, of which a multiprocessor is to hold as many as
// the kernel is made for. That is for speed: a launch ends however many are resident.
Result<int> prepare(const GroupedKernel& kernel) {
  cudaFuncAttributes attributes{};
  MOTLEY_TRY_VOID(launched(cudaFuncGetAttributes(&attributes, kernel.function), kernel.info.name));
  const int bytes = multiprocessor_bytes / kernel.blocks_per_sm - 1024 -
                    static_cast<int>(attributes.sharedSizeBytes);
  MOTLEY_TRY_VOID(launched(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
      kernel.info.name));
  int resident = 0;
  MOTLEY_TRY_VOID(
      launched(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                   &resident, kernel.function, kernel.threads, static_cast<std::size_t>(bytes)),
               kernel.info.name));
  if (resident < kernel.blocks_per_sm)
    return Error(ErrorCode::unsupported,
                 cat("a multiprocessor of this GPU holds ", resident, " blocks of the experts' ",
                     kernel.info.name, " kernel, which needs ", kernel.blocks_per_sm),
                 "cuda", "use --device cpu, or a GPU of compute capability 9.0");
  return bytes;
}

}  // namespace

Result<std::unique_ptr<PreparedKernels>> PreparedKernels::prepare() {
  auto made = std::make_unique<PreparedKernels>();
  for (const ExpertFormat format : all_expert_formats) {
    for (const bool adapters : {false, true}) {
      for (const GroupedKernel& kernel : kernels_of(format, adapters)) {
        MOTLEY_TRY(const int bytes, grouped::prepare(kernel));
        made->all_.push_back({.kernel = &kernel, .dynamic_bytes = bytes});
      }
    }
  }
  MOTLEY_TRY_VOID(prepare_shrinks());
  return std::unique_ptr<PreparedKernels>(std::move(made));
}

int PreparedKernels::dynamic_bytes(const GroupedKernel& kernel) const {
  const auto at = std::ranges::find(all_, &kernel, &Prepared::kernel);
  MOTLEY_CHECK(at != all_.end(), "a kernel of the device");
  return at->dynamic_bytes;
}

}  // namespace motley::kernels::cuda::grouped
