#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "dist/nccl_library.h"
#include "dist/ranks_over.h"
#include "gpu/device_memory.h"
#include "kernels/elementary.h"
#include "tensor/device/device.h"

namespace motley::gpu_tests {

// The GPUs of so many ranks: one each if there are as many, else they share. To be called before
// anything else asks for a GPU: where ranks share one, the driver must not load a kernel while
// another rank's waits for it.
inline std::vector<int> gpus_of_ranks(int ranks) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  dist::set_nccl_environment();
  int count = 1;
  cudaGetDeviceCount(&count);
  std::vector<int> gpus;
  for (int rank = 0; rank < ranks; ++rank) gpus.push_back(rank % std::max(count, 1));
  return gpus;
}

// The GPUs of two engines of two ranks each, which share none: pairs, or where there are fewer than
// four one GPU for both ranks of an engine. A single GPU is one engine's: kernels of two engines
// that wait on it could take each other's place.
inline std::vector<std::vector<int>> gpus_of_engines() {
  const std::vector<int> four = gpus_of_ranks(4);
  if (four[3] == 3) return {{0, 1}, {2, 3}};
  if (four[1] == 1) return {{0, 0}, {1, 1}};
  return {{0, 0}};
}

// What the ranks of this program exchange numbers over: gpu_ranks_tests peers, gpu_nccl_tests NCCL,
// which takes a GPU for each.
inline dist::RanksOver ranks_over() { return dist::parse_ranks_over(MOTLEY_RANKS_OVER).value(); }

// Ranks with a GPU, a stream and kernels each.
class RanksWorld {
 public:
  struct Rank {
    int gpu = 0;
    std::unique_ptr<tensor::Device> device;
    std::shared_ptr<const kernels::ElementaryTable> kernels;
    std::unique_ptr<tensor::Stream> stream;

    StreamHandle handle() const { return kernels->on(stream->handle()); }
  };

  explicit RanksWorld(int ranks, Duration max_wait = std::chrono::seconds(20),
                      dist::RanksOver over = ranks_over()) {
    const std::vector<int> gpus = gpus_of_ranks(ranks);
    group_ =
        dist::create_gpu_ranks({.gpus = gpus, .over = over, .max_wait = max_wait}).value().group;
    for (const int gpu : gpus) {
      Rank& rank = ranks_.emplace_back();
      rank.gpu = gpu;
      rank.device =
          tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda, .index = gpu}).value();
      rank.kernels = kernels::cuda_table(gpu).value();
      rank.stream = rank.device->create_stream().value();
    }
  }

  int ranks() const { return group_->ranks(); }
  dist::Communicator& communicator(int rank) { return group_->rank(rank); }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // On that rank's GPU. Not beside work of ranks: memory that is taken or freed may wait for it.
  template <class T>
  DeviceArray<T> array(int rank, const std::vector<T>& values) {
    EXPECT_EQ(cudaSetDevice(at(rank).gpu), cudaSuccess);
    return DeviceArray<T>(values);
  }
  // One for each rank: values(rank).
  template <class Values>
  auto arrays(const Values& values) {
    using T = typename decltype(values(0))::value_type;
    std::vector<DeviceArray<T>> all;
    for (int rank = 0; rank < ranks(); ++rank) all.push_back(array(rank, values(rank)));
    return all;
  }

  // Calls queue(communicator, rank's parts) on a thread for each rank, and waits for what they have
  // queued.
  void run(const std::function<void(dist::Communicator&, Rank&)>& queue) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_EQ(cudaSetDevice(at(rank).gpu), cudaSuccess);
        queue(communicator(rank), at(rank));
        EXPECT_TRUE(at(rank).stream->synchronize().ok());
        EXPECT_TRUE(kernels::cuda_launches(*at(rank).kernels).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::unique_ptr<dist::RankGroup> group_;
  std::vector<Rank> ranks_;
};

}  // namespace motley::gpu_tests
