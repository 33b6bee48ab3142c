#pragma once

#include <vector>

namespace motley {

// Instruction sets of this machine that kernels may use at run time. Each implies that the
// operating system saves its registers.
struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // int8 dot products
  bool avx512_bf16 = false;  // bf16 dot products
};

const CpuFeatures& cpu_features();

// The processors that this process may run on, by number.
std::vector<int> allowed_cpus();

// The number of threads that can run at once: allowed processors, limited by the container's CPU
// quota. At least 1.
int usable_cpus();

}  // namespace motley
