// The memory in which ranks stage what a library moves between their GPUs.
#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include <cuda_runtime_api.h>

#include "base/cat.h"
#include "base/system/clock.h"
#include "kernels/cuda/collectives/gpus_of_ranks.h"
#include "kernels/cuda/collectives/prepare.h"
#include "kernels/staged_ranks.h"

namespace motley::kernels::cuda {
namespace {

constexpr std::size_t alignment = 256;
// Of the host's memory, which GPUs address: each rank's in cache lines of its own.
constexpr std::size_t words_of_rank = 32;
constexpr std::size_t word_of_end = 16;

class StagingMemoryOnGpus final : public StagingMemory {
 public:
  explicit StagingMemoryOnGpus(const Options& options)
      : bytes_(options.bytes), memory_(options.gpus) {}

  Result<void> take() {
    // The count of calls, then the buffers.
    return memory_.take({.bytes = alignment + 2 * static_cast<std::size_t>(bytes_),
                         .words = static_cast<std::size_t>(ranks()) * words_of_rank},
                        [] { return prepare_staged_ranks(); });
  }

  Staging view(int rank) const override {
    std::byte* const memory = memory_.of_ranks()[static_cast<std::size_t>(rank)];
    return {.own = memory + alignment,
            .others = memory + alignment + bytes_,
            .bytes = bytes_,
            .words = {.count = reinterpret_cast<std::uint32_t*>(memory),
                      .begun = words_of(rank),
                      .ended = words_of(rank) + word_of_end}};
  }

  Progress progress(int rank) const override {
    // A call that has ended when it is asked for first has also begun by then.
    const std::uint32_t ended = *const_cast<volatile std::uint32_t*>(words_of(rank) + word_of_end);
    return {.begun = *const_cast<volatile std::uint32_t*>(words_of(rank)), .ended = ended};
  }

  Result<void> try_streams(Queue queue, Duration max_wait) override {
    std::vector<StreamHandle> streams(memory_.gpus().size());
    Result<void> tried = [&]() -> Result<void> {
      for (int rank = 0; rank < ranks(); ++rank) {
        cudaStream_t stream = nullptr;
        MOTLEY_TRY_VOID(done(cudaSetDevice(gpu(rank)), "become current", gpu(rank)));
        MOTLEY_TRY_VOID(done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                             "make a stream", gpu(rank)));
        streams[static_cast<std::size_t>(rank)].native = stream;
      }
      MOTLEY_TRY_VOID(queue(streams));
      const TimePoint end = SteadyClock().now() + max_wait;
      for (int rank = 0; rank < ranks(); ++rank)
        MOTLEY_TRY_VOID(finish(native(streams, rank), gpu(rank), end));
      return {};
    }();
    for (int rank = 0; rank < ranks(); ++rank)
      if (native(streams, rank) != nullptr) cudaStreamDestroy(native(streams, rank));
    return tried;
  }

 private:
  int ranks() const { return memory_.ranks(); }
  int gpu(int rank) const { return memory_.gpu(rank); }
  std::uint32_t* words_of(int rank) const {
    return memory_.words() + static_cast<std::size_t>(rank) * words_of_rank;
  }
  // The runtime has no wait with a bound; a group is made once.
  static Result<void> finish(cudaStream_t stream, int gpu, TimePoint end) {
    for (;;) {
      const cudaError_t status = cudaStreamQuery(stream);
      if (status != cudaErrorNotReady) return done(status, "finish its work", gpu);
      if (SteadyClock().now() > end)
        return Error(ErrorCode::internal,
                     cat("GPU ", gpu, " does not exchange data with the others"), "NCCL",
                     "set NCCL_P2P_DISABLE=1, or use one GPU");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static cudaStream_t native(const std::vector<StreamHandle>& streams, int rank) {
    return static_cast<cudaStream_t>(streams[static_cast<std::size_t>(rank)].native);
  }

  std::int64_t bytes_;
  MemoryOfRanks memory_;
};

}  // namespace

Result<std::unique_ptr<StagingMemory>> StagingMemory::create(const Options& options) {
  MOTLEY_TRY_VOID(find_gpus(options.gpus));
  const std::set<int> different(options.gpus.begin(), options.gpus.end());
  if (different.size() < options.gpus.size())
    return Error(ErrorCode::unsupported, "NCCL takes a GPU for each rank", "--devices",
                 "use fewer ranks");
  auto memory = std::make_unique<StagingMemoryOnGpus>(options);
  MOTLEY_TRY_VOID(memory->take());
  return std::unique_ptr<StagingMemory>(std::move(memory));
}

}  // namespace motley::kernels::cuda
