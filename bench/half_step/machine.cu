#include <algorithm>
#include <chrono>

#include "kernels/cuda/primitives/launch.cuh"
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

// ---- a foreign kernel ----
constexpr int foreign_threads = 128;
constexpr int foreign_vectors = 20;  // of a thread: 5.4 MB in all
constexpr int foreign_steps = 1088;  // four instructions of 16 bytes each: 70 KB
constexpr int foreign_sets = 4;      // of data, as of other layers

__global__ void __launch_bounds__(foreign_threads) run_foreign(const uint4* data, float* out) {
  kernels::cuda::launch_dependents();
  kernels::cuda::wait_for_previous_grid();
  const std::size_t thread = std::size_t{blockIdx.x} * foreign_threads + threadIdx.x;
  const std::size_t count = std::size_t{gridDim.x} * foreign_threads;
  float v[4] = {1, 2, 3, 4};
#pragma unroll 4
  for (int i = 0; i < foreign_vectors; ++i) {
    const uint4 words = __ldcs(data + thread + i * count);
    v[i % 4] += __uint_as_float((words.x ^ words.y ^ words.z ^ words.w) & 0x3FFFFFFF);
  }
#pragma unroll
  for (int i = 0; i < foreign_steps; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      v[k] = fmaf(v[k], 0.5F + static_cast<float>(4 * i + k) * 1e-4F, v[(k + 1) % 4]);
  }
  out[thread] = v[0] + v[1] + v[2] + v[3];
}

}  // namespace

double read_rate(int blocks) {
  constexpr std::size_t bytes = std::size_t{4} << 30;
  unsigned* data = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK_CUDA(cudaMalloc(&data, bytes + sizeof *data));
  CHECK_CUDA(cudaMemset(data, 1, bytes));
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  float best_ms = 1e9F;
  for (int i = 0; i < 6; ++i) {
    CHECK_CUDA(cudaEventRecord(begin));
    read_all<<<4 * blocks, read_threads>>>(reinterpret_cast<const uint4*>(data), bytes / 16,
                                           data + bytes / sizeof *data);
    CHECK_CUDA(cudaEventRecord(end));
    CHECK_CUDA(cudaDeviceSynchronize());
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    best_ms = std::min(best_ms, ms);
  }
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
  CHECK_CUDA(cudaFree(data));
  return static_cast<double>(bytes) / (static_cast<double>(best_ms) * 1e-3);
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

Foreign::Foreign(int blocks) : blocks_(blocks) {
  const std::size_t count = static_cast<std::size_t>(blocks) * foreign_threads;
  const std::size_t bytes = count * foreign_vectors * foreign_sets * sizeof(uint4);
  CHECK_CUDA(cudaMalloc(&data_, bytes));
  CHECK_CUDA(cudaMemset(data_, 0, bytes));
  CHECK_CUDA(cudaMalloc(&out_, count * sizeof(float)));
  // Else it would not run next to a block that has most of the shared memory.
  CHECK_CUDA(cudaFuncSetAttribute(run_foreign, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
}
Foreign::~Foreign() {
  cudaFree(data_);
  cudaFree(out_);
}
void Foreign::launch(int layer, bool programmatic, cudaStream_t stream) const {
  const std::size_t count = static_cast<std::size_t>(blocks_) * foreign_threads * foreign_vectors;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_));
  config.blockDim = dim3(foreign_threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = programmatic ? 1 : 0;
  const uint4* const data = data_ + static_cast<std::size_t>(layer % foreign_sets) * count;
  CHECK_CUDA(cudaLaunchKernelEx(&config, run_foreign, data, out_));
}

}  // namespace motley::bench::half_step
