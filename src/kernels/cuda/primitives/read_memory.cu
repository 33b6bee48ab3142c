#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/read_memory.h"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 512;
constexpr int loads = 8;  // of 16 bytes, in flight per thread
static_assert(ReadMemory::unit == std::int64_t{threads} * loads * 16);

// A block reads one unit.
__global__ void __launch_bounds__(threads) read_units(ReadMemory p) {
  wait_for_previous_grid();
  constexpr std::int64_t vectors = ReadMemory::unit / 16;
  const uint4* const data =
      static_cast<const uint4*>(p.data) + std::int64_t{blockIdx.x} * vectors + threadIdx.x;
  uint4 read[loads];
#pragma unroll
  for (int i = 0; i < loads; ++i) read[i] = __ldcs(data + i * threads);
  unsigned mix = 0;
#pragma unroll
  for (int i = 0; i < loads; ++i) mix ^= read[i].x ^ read[i].y ^ read[i].z ^ read[i].w;
  // Almost never true, but the compiler cannot know.
  if (mix == 0x5eed1234U) p.sums[blockIdx.x] = mix;
}

}  // namespace

void read_memory(const ReadMemory& params, StreamHandle stream) {
  launch("read_memory", read_units,
         {.grid = static_cast<unsigned>(params.units), .threads = threads}, stream, params);
}

}  // namespace motley::kernels::cuda
