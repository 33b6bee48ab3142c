#include <atomic>
#include <thread>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "gpu/held_multiprocessors.h"
#include "gpu/launch_watch.h"

namespace motley::gpu_tests {
namespace {

constexpr int block_bytes = 227 * 1024;  // all that a block can have: one fits a multiprocessor

__global__ void hold(volatile int* released, int* running) {
  atomicAdd_system(running, 1);
  while (*released == 0) __nanosleep(1000);
}

}  // namespace

HeldMultiprocessors::HeldMultiprocessors(int count) {
  EXPECT_EQ(cudaHostAlloc(&flags_, sizeof(Flags), cudaHostAllocMapped), cudaSuccess);
  *flags_ = {};
  EXPECT_EQ(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, block_bytes),
            cudaSuccess);
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  stream_ = stream;
  hold<<<count, 32, block_bytes, stream>>>(&flags_->released, &flags_->running);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const LaunchWatch watch("blocks that hold multiprocessors begin");
  while (std::atomic_ref(flags_->running).load() < count) std::this_thread::yield();
}

void HeldMultiprocessors::release() {
  std::atomic_ref(flags_->released).store(1);
  EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)), cudaSuccess);
}

HeldMultiprocessors::~HeldMultiprocessors() {
  release();
  cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
  cudaFreeHost(flags_);
}

}  // namespace motley::gpu_tests
