#pragma once

#include <cstdint>

#include "base/system/stream_handle.h"

namespace motley::kernels {

// Reads a range of memory as fast as the device can, as the bound with which a step's time is
// compared.
struct ReadMemory {
  static constexpr std::int64_t unit = std::int64_t{1} << 16;  // bytes

  const void* data = nullptr;  // at a multiple of 64 bytes
  std::int64_t units = 0;
  // [units]: written rarely, to keep the reads from being optimised away
  std::uint64_t* sums = nullptr;
};

namespace cpu {
void read_memory(const ReadMemory& params, StreamHandle stream);
}
namespace cuda {
// Aborts in a build without CUDA.
void read_memory(const ReadMemory& params, StreamHandle stream);
}  // namespace cuda

}  // namespace motley::kernels
