#pragma once

#include <vector>

namespace motley {

// Instruction sets of this machine that kernels may choose from at run time. Each one implies what
// the operating system must save for it.
struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // int8 dot products
  bool avx512_bf16 = false;  // bf16 dot products
};

const CpuFeatures& cpu_features();

// The processors that this process may run on, by number.
std::vector<int> allowed_cpus();

// How many threads can really run at once: allowed processors, cut by the container's CPU quota. At
// least 1.
int usable_cpus();

}  // namespace motley
