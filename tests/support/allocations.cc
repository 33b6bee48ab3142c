#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <malloc.h>
#include <new>

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() / 2;

std::atomic<std::int64_t> left{never};  // until the first that fails; 1: it is the next
std::atomic<std::int64_t> to_fail{0};
std::atomic<std::int64_t> failed{0};
std::atomic<std::int64_t> all{0};
std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};
constinit thread_local bool taking_part = false;

void count_or_fail() {
  all.fetch_add(1, std::memory_order_relaxed);
  if (!taking_part) return;
  const std::int64_t place = left.fetch_sub(1, std::memory_order_relaxed);
  if (place > 1 || place <= 1 - to_fail.load(std::memory_order_relaxed)) return;
  failed.fetch_add(1, std::memory_order_relaxed);
  throw std::bad_alloc();
}

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const auto bytes = static_cast<std::int64_t>(::malloc_usable_size(memory));
  const std::int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr)
    live.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(memory)),
                   std::memory_order_relaxed);
  std::free(memory);
}

void* allocate(std::size_t bytes) {
  count_or_fail();
  return counted(std::malloc(bytes == 0 ? 1 : bytes));
}

void* allocate(std::size_t bytes, std::align_val_t alignment) {
  count_or_fail();
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t unit) { return allocate(bytes, unit); }
void* operator new[](std::size_t bytes, std::align_val_t unit) { return allocate(bytes, unit); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace motley::test {

std::int64_t counted_allocations() { return all.load(); }
std::int64_t live_bytes() { return live.load(); }
std::int64_t peak_bytes() { return peak.load(); }
void watch_peak() { peak = live.load(); }

void take_part(bool takes_part) { taking_part = takes_part; }

void fail_allocations(std::int64_t nth, std::int64_t count) {
  failed = 0;
  to_fail = count;
  left = nth;
}

std::int64_t stop_failing() {
  left = never;
  to_fail = 0;
  return failed.exchange(0);
}

Spared::Spared() : before_(taking_part) { taking_part = false; }
Spared::~Spared() { taking_part = before_; }

}  // namespace motley::test
