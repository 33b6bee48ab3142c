#include "kernels/cuda/collectives/gpus_of_ranks.h"

#include "base/cat.h"
#include "base/check.h"
#include "kernels/collectives.h"
#include "kernels/staged_ranks.h"

namespace motley::kernels::cuda {

Result<void> done(cudaError_t status, std::string_view action, int gpu) {
  if (status == cudaSuccess) return {};
  cudaGetLastError();
  return Error(ErrorCode::internal,
               cat("the GPU failed to ", action, ": ", cudaGetErrorString(status)),
               cat("cuda:", gpu), "restart; if it happens again, check the GPU with nvidia-smi");
}

Result<void> find_gpus(const std::vector<int>& gpus) {
  MOTLEY_CHECK(!gpus.empty(), "at least one rank");
  if (gpus.size() > static_cast<std::size_t>(max_peers))
    return Error(ErrorCode::unsupported,
                 cat(gpus.size(), " GPUs compute together; ", max_peers, " can"), "--tp",
                 cat("use at most ", max_peers));
  int count = 0;
  MOTLEY_TRY_VOID(done(cudaGetDeviceCount(&count), "be counted", gpus[0]));
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank] < count) continue;
    return Error(
        ErrorCode::invalid_argument, cat("there is no GPU ", gpus[rank], " for rank ", rank),
        "--devices",
        cat(count == 1 ? "there is GPU 0 alone" : cat("the GPUs here are 0 to ", count - 1),
            ": use fewer ranks, or --device cpu"));
  }
  return {};
}

std::string why_not_peers(const std::vector<int>& gpus) {
  for (const int from : gpus) {
    for (const int to : gpus) {
      int can = 1;
      if (from == to || cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess) continue;
      if (can == 0) return cat("GPU ", from, " can't address the memory of GPU ", to);
    }
  }
  cudaGetLastError();
  return {};
}

}  // namespace motley::kernels::cuda
