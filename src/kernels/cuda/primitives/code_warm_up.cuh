// Instruction-cache warm-up. The kernels of a layer are more code than the instruction cache holds.
// So a kernel's code has to be fetched from memory again in each layer, which is slow while weights
// are being read. Kernels of few rows therefore run their code twice: the first pass is a warm-up
// during the previous grid, whose results are discarded.
#pragma once

namespace motley::kernels::cuda {

// for (int pass = first_pass(warms_up); pass < passes; ++pass), not unrolled; only the last counts.
inline constexpr int passes = 2;
__device__ inline int first_pass(bool warms_up) { return warms_up ? 0 : 1; }
__device__ inline bool counts(int pass) { return pass + 1 == passes; }

}  // namespace motley::kernels::cuda
