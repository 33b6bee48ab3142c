#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "half_step.h"
#include "split.cuh"
#include "whole.cuh"

namespace motley::bench::HALF_STEP_NAMESPACE {
namespace {

constexpr int shared_bytes = 227 << 10;
constexpr int paired_bytes = 112 << 10;  // the kernel between two launches needs some

template <int rows, Design design>
using BuffersOf = std::conditional_t<design == Design::whole, WholeBuffers<rows>, Buffers<rows>>;
template <class Format, int rows, Design design, bool computes>
using ConsumerOf =
    std::conditional_t<design == Design::whole, WholeConsumer<Format, rows, computes>,
                       SplitConsumer<Format, rows, computes>>;

template <class Format, int rows, Design design, bool computes>
__global__ void __launch_bounds__(threads, design == Design::paired ? 2 : 1)
    half_step(const __grid_constant__ HalfStep p) {
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
  for (int i = thread; i < rows * all_experts; i += threads)
    shared.choice.slots[i / all_experts][i % all_experts] = -1;
  if (thread < live_words) shared.choice.live[thread] = 0;
  if (thread == 0) shared.choice.list[0] = experts;  // if it is shared
  __syncthreads();
  const Slots slots(memory, shared.barriers, Format::slot_bytes, p);
  if (thread >= consumers) {
    Producer<Format, rows, design>(p, slots, shared.choice, thread == consumers).run();
  } else {
    auto& buffers =
        *reinterpret_cast<BuffersOf<rows, design>*>(memory + p.slots * Format::slot_bytes);
    ConsumerOf<Format, rows, design, computes>(p, slots, shared, buffers).run();
  }
}

using Kernel = void (*)(HalfStep);
struct Compiled {
  Kernel kernel = nullptr;
  int slots = 0;
  int bytes = 0;
};

template <class Format, int rows, Design design>
Compiled compiled(bool computes) {
  if constexpr (design == Design::whole && shared_experts != 0) {
    return {};
  } else {
    constexpr auto rest = static_cast<int>(sizeof(BuffersOf<rows, design>));
    constexpr int room = (design == Design::paired ? paired_bytes : shared_bytes) -
                         static_cast<int>(sizeof(Shared<rows>)) - 256 - rest;
    constexpr int slots = std::min(max_slots, room / Format::slot_bytes);
    static_assert(slots >= 4 && rest % 16 == 0);
    Compiled c{.slots = slots, .bytes = slots * Format::slot_bytes + rest};
    if constexpr (design == Design::whole) {
      c.kernel = computes ? half_step<Format, rows, design, true> : nullptr;
    } else {
      c.kernel =
          computes ? half_step<Format, rows, design, true> : half_step<Format, rows, design, false>;
    }
    return c;
  }
}
template <class Format, int rows>
Compiled compiled(Design design, bool computes) {
  if (design == Design::whole) return compiled<Format, rows, Design::whole>(computes);
  if (design == Design::split) return compiled<Format, rows, Design::split>(computes);
  return compiled<Format, rows, Design::paired>(computes);
}
Compiled compiled(const Instance& i, Design design, bool computes) {
  if (i.format == ExpertFormat::bf16)
    return i.rows == 1 ? compiled<Bf16Experts, 1>(design, computes)
                       : compiled<Bf16Experts, max_rows>(design, computes);
  return i.rows == 1 ? compiled<Int4Experts, 1>(design, computes)
                     : compiled<Int4Experts, max_rows>(design, computes);
}

}  // namespace

bool has_design(Design design, bool computes) {
  return compiled({ExpertFormat::bf16, 1}, design, computes).kernel != nullptr;
}
int slots_of(const Instance& instance, Design design) {
  return compiled(instance, design, true).slots;
}

cudaError_t prepare() {
  for (const ExpertFormat format : {ExpertFormat::bf16, ExpertFormat::int4}) {
    for (const int rows : {1, max_rows}) {
      for (const Design design : {Design::whole, Design::split, Design::paired}) {
        for (const bool computes : {false, true}) {
          const Compiled c = compiled({format, rows}, design, computes);
          if (c.kernel == nullptr) continue;
          const cudaError_t error =
              cudaFuncSetAttribute(c.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, c.bytes);
          if (error != cudaSuccess) return error;
          // Two blocks fit only if all of it is shared memory.
          const cudaError_t carved =
              cudaFuncSetAttribute(c.kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
          if (carved != cudaSuccess) return carved;
        }
      }
    }
  }
  return cudaSuccess;
}

cudaError_t launch(const Instance& instance, Design design, const HalfStep& step, int blocks,
                   LaunchMode mode, cudaStream_t stream) {
  const Compiled c = compiled(instance, design, step.rung.computes);
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

}  // namespace motley::bench::HALF_STEP_NAMESPACE
