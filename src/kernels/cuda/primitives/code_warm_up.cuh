// A layer's kernels are more code than a multiprocessor keeps, so what one runs has come from
// memory, a few lines at a time, since it ran a layer ago: late where weights are under way.
// Kernels of few rows go through theirs twice. The first pass, a warm_up, is made while the grid
// ahead still works, and keeps nothing.
#pragma once

namespace motley::kernels::cuda {

// for (int pass = first_pass(rehearses); pass < passes; ++pass), not unrolled; the last one counts.
inline constexpr int passes = 2;
__device__ inline int first_pass(bool warms_up) { return warms_up ? 0 : 1; }
__device__ inline bool counts(int pass) { return pass + 1 == passes; }

}  // namespace motley::kernels::cuda
