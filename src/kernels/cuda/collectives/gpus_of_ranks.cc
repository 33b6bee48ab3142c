#include "kernels/cuda/collectives/gpus_of_ranks.h"

#include <algorithm>

#include "base/cat.h"
#include "base/check.h"
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

MemoryOfRanks::~MemoryOfRanks() {
  for (int rank = 0; rank < ranks(); ++rank) {
    std::byte* const own = of_ranks_[static_cast<std::size_t>(rank)];
    if (own == nullptr) continue;
    cudaSetDevice(gpu(rank));
    cudaFree(own);
  }
  if (words_ != nullptr) cudaFreeHost(words_);
  cudaGetLastError();
}

Result<void> MemoryOfRanks::take(const Sizes& sizes, FunctionRef<Result<void>()> prepare) {
  for (int rank = 0; rank < ranks(); ++rank) {
    void* data = nullptr;
    MOTLEY_TRY_VOID(done(cudaSetDevice(gpu(rank)), "become current", gpu(rank)));
    MOTLEY_TRY_VOID(
        done(cudaMalloc(&data, sizes.bytes), "take memory for sums over ranks", gpu(rank)));
    of_ranks_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(data);
    MOTLEY_TRY_VOID(done(cudaMemset(data, 0, sizes.bytes), "fill memory", gpu(rank)));
    MOTLEY_TRY_VOID(done(cudaDeviceSynchronize(), "finish its work", gpu(rank)));
    MOTLEY_TRY_VOID(prepare());
  }
  void* host = nullptr;
  MOTLEY_TRY_VOID(done(cudaHostAlloc(&host, sizes.words * sizeof(std::uint32_t),
                                     cudaHostAllocPortable | cudaHostAllocMapped),
                       "pin the host's memory", gpu(0)));
  words_ = static_cast<std::uint32_t*>(host);
  std::fill_n(words_, sizes.words, 0U);
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
