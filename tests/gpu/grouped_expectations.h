#pragma once

#include <vector>

#include "gpu/grouped_runner.h"

// The grouped kernels against float64. A rounding to bf16 is off by up to 2^-9 = 2e-3, 1.1e-3 in
// the root mean square. bf16 weights meet two in a row (h, an expert's output) and rows of rank
// space one more; int4 weights times their scale are rounded in gate, up and down besides. Errors
// add in squares, the activation's slope scales them by up to 1.5, and norms over few experts
// scatter.
//
// Where inputs are codes, a number of h in another bf16 may have the next code. Sums of FP8 have
// about 13 bits on the tensor cores, so that one of 500 numbers does, off by up to 2^-4 of itself;
// in a row of 48 to 80 numbers it may be the one that counts. Sums of INT8 are exact, and its codes
// finer; with zero points they are not multiplied as codes, and each number of h is off as others.
namespace motley::gpu_tests {

inline constexpr lora::PageFormat packed_bf16{.dtype = DType::bf16,
                                              .experts = lora::Layout::packed};
inline constexpr lora::PageFormat packed_f8{.dtype = DType::f8_e4m3,
                                            .experts = lora::Layout::packed};

double tolerance(const WorldShape& shape);

void expect_bits(const std::vector<float>& got, const std::vector<float>& want);

void expect_near(const std::vector<float>& got, const WorldLayer& layer, const WorldRows& rows,
                 const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes);

// The answer near the definition, from every cut alike.
void expect_all_alike(const WorldLayer& layer, const WorldRows& rows,
                      const std::vector<WorldAdapter>& adapters = {}, const WorldMixes& mixes = {},
                      lora::PageFormat format = packed_bf16);

}  // namespace motley::gpu_tests
