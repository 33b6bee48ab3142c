#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#include "gpu/divisor_kernels.h"
#include "kernels/cuda/elementary/input_codes.cuh"

namespace motley::gpu_tests {
namespace {

using kernels::cuda::input_codes::codes_of;
using kernels::cuda::input_codes::Divisor;

constexpr std::uint32_t numbers = 65536;  // of bf16
constexpr std::uint32_t block = 256;

// Zeros of both signs are alike, and so are NaNs.
template <DType type>
__device__ std::uint32_t alike(std::uint32_t code) {
  if (type == DType::i8) return code;
  const std::uint32_t magnitude = code & 0x7F;
  return magnitude == 0 || magnitude == 0x7F ? magnitude : code;
}

template <DType type>
__global__ void compare(float scale, DividedCodes* result) {
  const std::uint32_t input = blockIdx.x * block + threadIdx.x;
  const float x = __uint_as_float(input << 16);
  const std::uint32_t code = alike<type>(codes_of<type>(Divisor(scale)(x), 0) & 0xFF);
  const std::uint32_t wanted = alike<type>(codes_of<type>(__fdiv_rn(x, scale), 0) & 0xFF);
  if (code == wanted) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&result->different), 1);
  result->input = input;
  result->code = code;
  result->wanted = wanted;
}

void require(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  std::abort();
}

}  // namespace

DividedCodes compare_divided_codes(DType type, float scale) {
  DividedCodes* result = nullptr;
  require(cudaMallocManaged(&result, sizeof *result));
  *result = {};
  if (type == DType::i8)
    compare<DType::i8><<<numbers / block, block>>>(scale, result);
  else
    compare<DType::f8_e4m3><<<numbers / block, block>>>(scale, result);
  require(cudaDeviceSynchronize());
  const DividedCodes found = *result;
  require(cudaFree(result));
  return found;
}

}  // namespace motley::gpu_tests
