#include <algorithm>
#include <chrono>

#include "machine.h"
#include "pipeline.cuh"
#include "world.h"

namespace motley::bench::half_step {
namespace {

constexpr int read_threads = 512;
constexpr int holder_bytes = 200 << 10;

__global__ void __launch_bounds__(read_threads)
    read_all(const uint4* data, std::size_t count, unsigned* out) {
  constexpr int at_once = 8;
  unsigned sum = 0;
  const std::size_t step = std::size_t{gridDim.x} * read_threads;
  std::size_t i = std::size_t{blockIdx.x} * read_threads + threadIdx.x;
  for (; i + (at_once - 1) * step < count; i += at_once * step) {
    uint4 v[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) v[k] = __ldcs(data + i + k * step);
#pragma unroll
    for (int k = 0; k < at_once; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (sum == 0x12345678) *out = sum;  // keeps the loads
}

__global__ void measure_clock(long long* out) {
  const std::uint64_t begin = clock_ns();
  const long long first = clock64();
  std::uint64_t now = begin;
  while (now - begin < 1'000'000) now = clock_ns();
  out[0] = clock64() - first;
  out[1] = static_cast<long long>(now - begin);
}

__global__ void hold(unsigned* held, std::uint64_t ns) {
  const std::uint64_t begin = clock_ns();
  if (threadIdx.x == 0) {
    atomicAdd_system(held, 1U);
    while (clock_ns() - begin < ns) __nanosleep(1000);
  }
  __syncthreads();
}

template <class Work>
double best_rate(double bytes, const Work& work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    CHECK_CUDA(cudaEventRecord(begin));
    work();
    CHECK_CUDA(cudaEventRecord(end));
    CHECK_CUDA(cudaDeviceSynchronize());
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    best = std::max(best, bytes / (static_cast<double>(ms) * 1e-3));
  }
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
  return best;
}

}  // namespace

double read_rate(const void* data, std::size_t bytes, int blocks) {
  unsigned* out = nullptr;
  CHECK_CUDA(cudaMalloc(&out, sizeof *out));
  const double rate = best_rate(static_cast<double>(bytes), [&] {
    read_all<<<4 * blocks, read_threads>>>(static_cast<const uint4*>(data), bytes / 16, out);
  });
  CHECK_CUDA(cudaFree(out));
  return rate;
}
double copy_rate(void* data, std::size_t bytes) {
  return best_rate(static_cast<double>(bytes), [&] {
    CHECK_CUDA(cudaMemcpyAsync(data, static_cast<char*>(data) + bytes / 2, bytes / 2,
                               cudaMemcpyDeviceToDevice));
  });
}
double cycles_per_us() {
  long long* out = nullptr;
  CHECK_CUDA(cudaMalloc(&out, 2 * sizeof *out));
  measure_clock<<<1, 1>>>(out);
  const auto values = from_device(out, 2);
  CHECK_CUDA(cudaFree(out));
  return static_cast<double>(values[0]) * 1000 / static_cast<double>(values[1]);
}

Holder::Holder(int blocks, std::uint64_t ns) {
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  CHECK_CUDA(cudaHostAlloc(&held_, sizeof *held_, cudaHostAllocMapped));
  *held_ = 0;
  CHECK_CUDA(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, holder_bytes));
  hold<<<blocks, 32, holder_bytes, stream_>>>(held_, ns);
  CHECK_CUDA(cudaGetLastError());
  const auto begin = std::chrono::steady_clock::now();
  while (*static_cast<volatile unsigned*>(held_) < static_cast<unsigned>(blocks)) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(2)) {
      std::printf("the holder did not start\n");
      break;
    }
  }
}
Holder::~Holder() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  cudaFreeHost(held_);
}

}  // namespace motley::bench::half_step
