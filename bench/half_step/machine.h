// What the GPU itself does, measured in the same run; and a kernel that holds multiprocessors.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace motley::bench::half_step {

// Bytes a second of reading 4 GiB once with one launch: the best of several.
double read_rate(int blocks);
// Cycles of clock64 in a microsecond, after some work.
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

// A kernel like attention between two half steps: it reads 5.4 MB and runs through 70 KB of code,
// so that the half step's instructions are fetched anew.
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

}  // namespace motley::bench::half_step
