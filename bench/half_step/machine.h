// What the GPU itself does, measured in the same run; and a kernel that holds multiprocessors.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "shape.h"

namespace motley::bench::HALF_STEP_NAMESPACE {

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

// A kernel like attention between two half steps: it reads 5 MB and runs through 70 KB of code.
class Foreign {
 public:
  explicit Foreign(int blocks);
  ~Foreign();
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  void launch(int layer, bool programmatic, cudaStream_t stream) const;

 private:
  int blocks_;
  uint4* data_ = nullptr;
  float* out_ = nullptr;
};

// Values that a kernel of a chain read and that were not those which the kernel before wrote:
// `weak` by plain loads, else past the L1 cache. Each kernel reads what the kernel before it wrote
// in place.
struct StaleReads {
  long reads = 0;
  long stale = 0;
};
StaleReads count_stale_reads(int blocks, bool programmatic, bool weak, int launches);

}  // namespace motley::bench::HALF_STEP_NAMESPACE
