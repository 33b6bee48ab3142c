// Weight sets of random numbers, packed for the kernel, and the same numbers for a reference.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "../check_cuda.h"
#include "half_step.h"

namespace motley::bench::half_step {

// A matrix as a function of its indices; packed or not, these are its numbers.
struct Numbers {
  std::uint32_t seed;
  float deviation;
  int k;  // columns
  bool is_int4;
};

// A copy of `values` in memory of the GPU, until the owner frees it.
template <class T>
T* on_device(const std::vector<T>& values) {
  T* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, values.size() * sizeof(T)));
  CHECK_CUDA(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}
template <class T>
std::vector<T> from_device(const T* data, std::size_t count) {
  std::vector<T> values(count);
  CHECK_CUDA(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

struct WeightSet {
  Weights packed;
  Numbers output;
  Numbers router;
  Numbers gate_up;  // [experts * 2 inner, hidden]: an expert's gate rows, then its up rows
  Numbers down;     // [experts * hidden, inner]
  Numbers projection;
  std::vector<float> expert_norm;
  std::vector<float> projection_norm;
  std::vector<void*> memory;
};

WeightSet make_weights(int number, ExpertFormat format, int blocks);
void free_weights(WeightSet& set);

double expert_bytes(ExpertFormat format);  // of one expert
double dense_bytes();                      // of the rest

// y[count] = rows first ... first + count of the matrix, times x, in float64 on the GPU.
std::vector<double> reference_product(const Numbers& matrix, int first, int count,
                                      const std::vector<double>& x);

}  // namespace motley::bench::half_step
