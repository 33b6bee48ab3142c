#include <cuda_runtime.h>

#include "gpu/pool_kernels.h"

namespace motley::gpu_tests {
namespace {

__device__ std::uint32_t part_sum(const void* blob, std::uint32_t words) {
  std::uint32_t sum = 0;
  for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
    // Past the first cache, as bytes may have changed since this multiprocessor last read them.
    const std::uint32_t word = __ldcg(static_cast<const std::uint32_t*>(blob) + i);
    sum += (word ^ (i * 0x9E3779B9U)) * 0x85EBCA6BU;
  }
  return sum;
}

// A block a label: the sum over its terms' numbers, its terms' scales and its rows.
__global__ void sum_label(ReadTable p, int read) {
  __shared__ std::uint32_t total;
  const int label = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  std::uint32_t sum = 0;
  for (int row = static_cast<int>(threadIdx.x); row < p.rows; row += static_cast<int>(blockDim.x)) {
    if (p.labels[row] == label) sum += 1000003U * static_cast<std::uint32_t>(row + 1);
  }
  for (int i = p.term_begin[label]; i < p.term_begin[label + 1]; ++i) {
    const kernels::AdapterTerm term = p.terms[i];
    const kernels::FactorEntry q = term.sites[p.site].factor;
    const auto padded = static_cast<std::uint32_t>(q.split);
    sum += part_sum(q.a, padded * static_cast<std::uint32_t>(p.in));
    sum += part_sum(q.b, padded * static_cast<std::uint32_t>(p.out));
    if (threadIdx.x == 0) sum += __float_as_uint(term.scale) + static_cast<std::uint32_t>(q.rank);
  }
  atomicAdd(&total, sum);
  __syncthreads();
  if (threadIdx.x != 0) return;
  const int step = *p.step;
  p.sums[static_cast<std::size_t>(step * p.reads + read) * p.label_count + label] = total;
}

__global__ void count_step(std::int32_t* step) { ++*step; }

}  // namespace

void read_table(const ReadTable& params, int read, StreamHandle stream) {
  auto* const native = static_cast<cudaStream_t>(stream.native);
  sum_label<<<static_cast<unsigned>(params.label_count), 256, 0, native>>>(params, read);
  if (read == params.reads - 1) count_step<<<1, 1, 0, native>>>(params.step);
}

}  // namespace motley::gpu_tests
