#pragma once

#include <cstdint>

#include "base/system/stream_handle.h"

namespace motley::kernels {

// Reads all of a piece of memory as fast as the device can: what a step's time is held against.
struct ReadMemory {
  static constexpr std::int64_t unit = std::int64_t{1} << 16;  // bytes

  const void* data = nullptr;  // at a multiple of 64 bytes
  std::int64_t units = 0;
  std::uint64_t* sums = nullptr;  // [units]: written now and then, so that the reads stay
};

namespace cpu {
void read_memory(const ReadMemory& params, StreamHandle stream);
}
namespace cuda {
// A build without CUDA has no device to ask this of, and aborts.
void read_memory(const ReadMemory& params, StreamHandle stream);
}  // namespace cuda

}  // namespace motley::kernels
