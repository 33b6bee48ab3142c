// Times what a GPU does in a captured graph.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "check_cuda.h"
#include "kernels/elementary.h"

namespace motley::bench {

// Numbers in memory of the GPU, for as long as the program runs or its owner frees them.
template <class T>
T* on_device(const std::vector<T>& values) {
  T* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, values.size() * sizeof(T)));
  CHECK_CUDA(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

// The kernels of the first GPU.
inline const kernels::ElementaryTable& device_kernels() {
  static const auto table = kernels::cuda_table(0);
  if (!table.ok()) {
    std::printf("%s\n", table.error().message().c_str());
    std::exit(1);
  }
  return *table.value();
}
// The default stream, as they take it.
inline StreamHandle default_stream() { return device_kernels().on({}); }
// Ends the program with the first launch that failed, if any.
inline void check_launches() {
  const auto launches = kernels::cuda_launches(device_kernels());
  if (launches.ok()) return;
  std::printf("%s\n", launches.error().message().c_str());
  std::exit(1);
}

// Median us of one of the `count` launches of a graph, over `replays` of it, each after `pause_ms`
// of idleness. `launch(i, stream)` issues number i.
template <class Launch>
double graph_time(int count, int replays, Launch launch, int pause_ms = 0) {
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  // The first question opens the GPU, which a capturing thread cannot do.
  const StreamHandle handle = device_kernels().on({stream});
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < count; ++i) launch(i, handle);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  constexpr int warm_up = 2;
  for (int r = 0; r < replays + warm_up; ++r) {
    if (pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    CHECK_CUDA(cudaEventRecord(begin, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (r >= warm_up) times.push_back(ms * 1000 / static_cast<float>(count));
  }
  std::sort(times.begin(), times.end());
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  check_launches();
  return static_cast<double>(times[times.size() / 2]);
}

}  // namespace motley::bench
