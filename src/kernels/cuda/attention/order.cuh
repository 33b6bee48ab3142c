// Where the compiler and the assembler must not move work.
#pragma once

#include "kernels/cuda/primitives/ptx.cuh"

namespace motley::kernels::cuda::tiles {

// A sum of weights is never negative; but the assembler, which would put work without side effects
// behind the next wait, cannot know.
__device__ inline void done_before_here(float total) {
  asm volatile("{.reg .pred p; setp.lt.f32 p, %0, 0fBF800000; @p trap;}" ::"f"(total) : "memory");
}

// The compiler may not move reads above this place, nor writes below it.
template <int count>
__device__ inline void settled(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace motley::kernels::cuda::tiles
