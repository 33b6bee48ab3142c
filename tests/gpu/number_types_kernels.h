#pragma once

#include <cstdint>
#include <span>
#include <vector>

// The number types as nvcc compiles them: each call runs one conversion a thread on the GPU.
namespace motley::gpu_tests {

enum class Format : std::uint8_t { f16, bf16, f8_e4m3, f8_e5m2, f8_e8m0, f4_e2m1 };

// Every code from 0 on, widened; NaN payloads count, so bits are returned.
std::vector<std::uint32_t> widen_on_gpu(Format format, std::uint32_t codes);

// Every float32 (given by its bits), narrowed.
std::vector<std::uint32_t> narrow_on_gpu(Format format, std::span<const std::uint32_t> floats);

}  // namespace motley::gpu_tests
