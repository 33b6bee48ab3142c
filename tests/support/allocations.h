#pragma once

#include <cstdint>

// Replaces the program's operator new by one that counts, and fails on request, so a test
// that uses it is a program of its own.
namespace motley::test {

// Since the program began, on all threads.
std::int64_t counted_allocations();

// Bytes that are allocated now, on all threads, in the allocator's own sizes.
std::int64_t live_bytes();
// The most of them since the last call of watch_peak().
std::int64_t peak_bytes();
void watch_peak();

// Whether allocations of the calling thread count for the failures below, and fail. At first they
// do not.
void take_part(bool takes_part);

// The nth allocation from now on (1 is the next) fails, and so do those that follow, `count` in
// all.
void fail_allocations(std::int64_t nth, std::int64_t count = 1);
// None fails any more; how many have.
std::int64_t stop_failing();

// While it lives the calling thread takes no part.
class Spared {
 public:
  Spared();
  ~Spared();
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;

 private:
  bool before_;
};

}  // namespace motley::test
