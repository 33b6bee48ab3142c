// Keeps the compiler and the assembler from moving work.
#pragma once

#include "kernels/cuda/primitives/ptx.cuh"

namespace motley::kernels::cuda::tiles {

// A sum of weights is never negative, but the assembler cannot know that. Without this it moves
// work without side effects behind the next wait.
__device__ inline void done_before_here(float total) {
  asm volatile("{.reg .pred p; setp.lt.f32 p, %0, 0fBF800000; @p trap;}" ::"f"(total) : "memory");
}

// The compiler may not move reads above this point, nor writes below it.
template <int count>
__device__ inline void settled(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace motley::kernels::cuda::tiles
