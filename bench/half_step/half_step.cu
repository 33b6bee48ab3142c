#include <algorithm>
#include <cstddef>

#include "consumer.cuh"
#include "half_step.h"

namespace motley::bench::half_step {
namespace {

constexpr int shared_bytes = 227 << 10;

template <class Format, int rows, bool computes>
__global__ void __launch_bounds__(threads, 1) half_step(const __grid_constant__ HalfStep p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Shared<rows> shared;
  kernels::cuda::launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < p.slots) {
    kernels::cuda::bar_init(kernels::cuda::smem_addr(shared.barriers.full + thread), 1);
    kernels::cuda::bar_init(kernels::cuda::smem_addr(shared.barriers.empty + thread),
                            consumer_warps);
    kernels::cuda::fence_bar_init();
  }
  for (int i = thread; i < rows * experts; i += threads)
    shared.choice.slots[i / experts][i % experts] = -1;
  if (thread < experts / 32) shared.choice.live[thread] = 0;
  __syncthreads();
  const Slots slots(memory, shared.barriers, Format::slot_bytes, p);
  if (thread >= consumers) {
    Producer<Format, rows>(p, slots, shared.choice, thread == consumers).run();
  } else {
    auto& buffers = *reinterpret_cast<Buffers<rows>*>(memory + p.slots * Format::slot_bytes);
    Consumer<Format, rows, computes>(p, slots, shared, buffers).run();
  }
}

using Kernel = void (*)(HalfStep);
struct Compiled {
  Kernel kernel;
  int slots;
  int bytes;
};

template <class Format, int rows>
Compiled compiled(bool computes) {
  constexpr auto rest = static_cast<int>(sizeof(Buffers<rows>));
  constexpr int room = shared_bytes - static_cast<int>(sizeof(Shared<rows>)) - 256 - rest;
  constexpr int slots = std::min(max_slots, room / Format::slot_bytes);
  static_assert(slots >= output_stages && sizeof(Buffers<rows>) % 16 == 0);
  return {computes ? half_step<Format, rows, true> : half_step<Format, rows, false>, slots,
          slots * Format::slot_bytes + rest};
}
Compiled compiled(const Instance& i, bool computes) {
  if (i.format == ExpertFormat::bf16)
    return i.rows == 1 ? compiled<Bf16Experts, 1>(computes)
                       : compiled<Bf16Experts, max_rows>(computes);
  return i.rows == 1 ? compiled<Int4Experts, 1>(computes)
                     : compiled<Int4Experts, max_rows>(computes);
}

}  // namespace

int slots_of(const Instance& instance) { return compiled(instance, true).slots; }

cudaError_t prepare() {
  for (const ExpertFormat format : {ExpertFormat::bf16, ExpertFormat::int4}) {
    for (const int rows : {1, max_rows}) {
      for (const bool computes : {false, true}) {
        const Compiled c = compiled({format, rows}, computes);
        const cudaError_t error =
            cudaFuncSetAttribute(c.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, c.bytes);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t launch(const Instance& instance, const HalfStep& step, int blocks, LaunchMode mode,
                   cudaStream_t stream) {
  const Compiled c = compiled(instance, step.rung.computes);
  HalfStep p = step;
  p.slots = c.slots;
  cudaLaunchAttribute attribute{};
  if (mode == LaunchMode::cooperative) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  } else {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(c.bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = mode == LaunchMode::plain ? 0 : 1;
  void* arguments[] = {&p};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(c.kernel), arguments);
}

}  // namespace motley::bench::half_step
