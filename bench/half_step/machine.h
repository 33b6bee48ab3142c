// What the GPU itself does, measured in the same run; and a kernel that holds multiprocessors.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace motley::bench::half_step {

// Bytes a second of reading `bytes` once with one launch, and of a copy (reads and writes): the
// best of several.
double read_rate(const void* data, std::size_t bytes, int blocks);
double copy_rate(void* data, std::size_t bytes);
// Cycles of clock64 in a microsecond, behind some work.
double cycles_per_us();

// Fills the shared memory of `blocks` multiprocessors for `ns`; returns when all are held.
class Holder {
 public:
  Holder(int blocks, std::uint64_t ns);
  ~Holder();
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  cudaStream_t stream_ = nullptr;
  unsigned* held_ = nullptr;  // in the host's memory
};

}  // namespace motley::bench::half_step
