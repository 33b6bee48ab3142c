#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#include "gpu/number_types_conversions.h"
#include "gpu/number_types_kernels.h"

namespace motley::gpu_tests {
namespace {

void require(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  std::abort();
}

__global__ void widen_codes(Format format, std::uint32_t count, std::uint32_t* out) {
  const std::uint32_t code = blockIdx.x * blockDim.x + threadIdx.x;
  if (code < count) out[code] = widen_one(format, code);
}

__global__ void narrow_floats(Format format, std::uint32_t count, const std::uint32_t* in,
                              std::uint32_t* out) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = narrow_one(format, in[i]);
}

constexpr std::uint32_t block = 256;

std::uint32_t blocks_for(std::uint32_t count) { return (count + block - 1) / block; }

}  // namespace

std::vector<std::uint32_t> widen_on_gpu(Format format, std::uint32_t codes) {
  std::vector<std::uint32_t> result(codes);
  std::uint32_t* out = nullptr;
  require(cudaMalloc(&out, codes * sizeof(std::uint32_t)));
  widen_codes<<<blocks_for(codes), block>>>(format, codes, out);
  require(cudaGetLastError());
  require(cudaMemcpy(result.data(), out, codes * sizeof(std::uint32_t), cudaMemcpyDeviceToHost));
  require(cudaFree(out));
  return result;
}

std::vector<std::uint32_t> narrow_on_gpu(Format format, std::span<const std::uint32_t> floats) {
  std::vector<std::uint32_t> result(floats.size());
  std::uint32_t* in = nullptr;
  std::uint32_t* out = nullptr;
  require(cudaMalloc(&in, floats.size_bytes()));
  require(cudaMalloc(&out, floats.size_bytes()));
  require(cudaMemcpy(in, floats.data(), floats.size_bytes(), cudaMemcpyHostToDevice));
  const auto count = static_cast<std::uint32_t>(floats.size());
  narrow_floats<<<blocks_for(count), block>>>(format, count, in, out);
  require(cudaGetLastError());
  require(cudaMemcpy(result.data(), out, floats.size_bytes(), cudaMemcpyDeviceToHost));
  require(cudaFree(in));
  require(cudaFree(out));
  return result;
}

}  // namespace motley::gpu_tests
