#pragma once

namespace motley::gpu_tests {

// Holds multiprocessors of the current GPU with blocks that take all of their shared memory, on a
// stream of its own, from construction until release().
class HeldMultiprocessors {
 public:
  explicit HeldMultiprocessors(int count);
  HeldMultiprocessors(const HeldMultiprocessors&) = delete;
  HeldMultiprocessors& operator=(const HeldMultiprocessors&) = delete;
  ~HeldMultiprocessors();

  void release();

 private:
  // In memory that the host and the GPU share: what the blocks wait for, and how many run.
  struct Flags {
    int released;
    int running;
  };
  Flags* flags_ = nullptr;
  void* stream_ = nullptr;
};

}  // namespace motley::gpu_tests
