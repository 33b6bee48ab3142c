// The memory through which ranks on GPUs meet.
#include <algorithm>
#include <array>
#include <set>

#include <cuda_runtime_api.h>

#include "base/cat.h"
#include "base/check.h"
#include "kernels/collectives.h"
#include "kernels/cuda/collectives/gpus_of_ranks.h"
#include "kernels/cuda/collectives/peer_layout.h"
#include "kernels/cuda/collectives/prepare.h"

namespace motley::kernels::cuda {
namespace {

Result<void> make_addressable(int from, int to) {
  int can = 0;
  MOTLEY_TRY_VOID(done(cudaDeviceCanAccessPeer(&can, from, to), "tell its peers", from));
  if (can == 0)
    return Error(ErrorCode::unsupported, cat("GPU ", from, " can't address the memory of GPU ", to),
                 "--devices",
                 "name GPUs that are connected (nvidia-smi topo -m), or use --ranks-over nccl");
  MOTLEY_TRY_VOID(done(cudaSetDevice(from), "become current", from));
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return {};
  }
  return done(status, "address a peer's memory", from);
}

// Words of the host's memory, which the GPUs address: of each rank what it has lost, and behind
// them whether the group has ended.
constexpr std::size_t words_apart = 16;

class PeerMemoryOnGpus final : public PeerMemory {
 public:
  explicit PeerMemoryOnGpus(const Options& options) : options_(options), memory_(options.gpus) {}

  Result<void> take() {
    for (const int from : memory_.gpus())
      for (const int to : memory_.gpus())
        if (from != to) MOTLEY_TRY_VOID(make_addressable(from, to));
    MOTLEY_TRY_VOID(count_blocks());
    const auto words = (static_cast<std::size_t>(ranks()) + 1) * words_apart;
    const auto prepare = []() -> Result<void> {
      MOTLEY_TRY_VOID(prepare_peer_sums());
      MOTLEY_TRY_VOID(prepare_peer_maxima());
      MOTLEY_TRY_VOID(prepare_peer_norms());
      return prepare_peer_gather();
    };
    return memory_.take(
        {.bytes = static_cast<std::size_t>(PeerLayout::bytes(ranks())), .words = words}, prepare);
  }

  Peers view(int rank) const override {
    Peers peers{.rank = rank,
                .ranks = ranks(),
                .report = word(rank),
                .ended = word(ranks()),
                .max_wait_ns = static_cast<std::uint64_t>(options_.max_wait.count())};
    std::ranges::copy(memory_.of_ranks(), peers.memory);
    const std::set<int> different(options_.gpus.begin(), options_.gpus.end());
    peers.share_gpu = different.size() < options_.gpus.size();
    peers.blocks = blocks_;
    return peers;
  }

  void end() override { *const_cast<volatile std::uint32_t*>(word(ranks())) = 1; }

  std::optional<Lost> lost(int rank) const override {
    constexpr auto calls =
        std::to_array<std::string_view>({"a sum over ranks", "a scattered sum over ranks",
                                         "a gathering of rows", "maxima over ranks"});
    const std::uint32_t report = *const_cast<const volatile std::uint32_t*>(word(rank));
    if (report == 0) return std::nullopt;
    return Lost{.rank = static_cast<int>(report & 0xFFU) - 1,
                .call = calls[std::min<std::size_t>(report >> 8, calls.size() - 1)]};
  }

 private:
  int ranks() const { return memory_.ranks(); }
  // As many as the smallest GPU has room for, if ranks share it evenly.
  Result<void> count_blocks() {
    blocks_ = max_peer_blocks;
    for (const int each : options_.gpus) {
      int multiprocessors = 0;
      MOTLEY_TRY_VOID(
          done(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, each),
               "count its multiprocessors", each));
      const auto sharing = std::ranges::count(options_.gpus, each);
      blocks_ = std::min(blocks_, multiprocessors * peer_blocks_per_sm / static_cast<int>(sharing));
    }
    return {};
  }
  std::uint32_t* word(int number) const {
    return memory_.words() + static_cast<std::size_t>(number) * words_apart;
  }

  Options options_;
  MemoryOfRanks memory_;
  int blocks_ = 1;
};

}  // namespace

bool is_recorded(StreamHandle stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const bool known =
      cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native), &status) == cudaSuccess;
  return known && status != cudaStreamCaptureStatusNone;
}

Result<std::unique_ptr<PeerMemory>> PeerMemory::create(const Options& options) {
  MOTLEY_TRY_VOID(find_gpus(options.gpus));
  auto memory = std::make_unique<PeerMemoryOnGpus>(options);
  MOTLEY_TRY_VOID(memory->take());
  return std::unique_ptr<PeerMemory>(std::move(memory));
}

}  // namespace motley::kernels::cuda
