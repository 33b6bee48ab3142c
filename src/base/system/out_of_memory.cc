#include "base/system/out_of_memory.h"

#include <array>
#include <sys/mman.h>

#include "base/check.h"

namespace motley {
namespace {

std::atomic<std::uint64_t> shortages{0};
std::atomic<std::uint64_t> thread_shortages{0};

// Global, because the handler of `operator new` is a plain function.
struct Halves {
  std::atomic<void*> first{nullptr};
  std::atomic<void*> second{nullptr};
  std::atomic<std::size_t> bytes{0};
};
constinit Halves halves;

bool set_free(std::atomic<void*>& half) {
  void* const memory = half.exchange(nullptr);
  return memory != nullptr && ::munmap(memory, halves.bytes) == 0;
}

void take(std::atomic<void*>& half) {
  if (half.load() != nullptr) return;
  // Written to, because a limit on resident memory would not count it otherwise.
  void* const memory = ::mmap(nullptr, halves.bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory != MAP_FAILED) half = memory;
}

void set_reserve_free() {
  if (set_free(halves.first)) return;
  set_free(halves.second);
  throw std::bad_alloc();
}

}  // namespace

// Short strings need no allocation.
Error out_of_memory_error() {
  return {ErrorCode::out_of_memory, "out of memory", {}, "try again later"};
}

bool is_out_of_memory_error(const Error& error) {
  return error.code() == ErrorCode::out_of_memory && error.where().empty() &&
         error.what() == out_of_memory_error().what();
}

std::uint64_t out_of_memory_count() { return shortages.load(); }
std::uint64_t out_of_threads_count() { return thread_shortages.load(); }

namespace internal {

void require_out_of_memory() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    ++shortages;
  } catch (const std::length_error&) {
    ++shortages;
  } catch (const std::system_error& failure) {
    if (failure.code() != std::errc::resource_unavailable_try_again &&
        failure.code() != std::errc::not_enough_memory)
      throw;
    if (failure.code() == std::errc::resource_unavailable_try_again) ++thread_shortages;
    ++shortages;
  }
}

}  // namespace internal

MemoryReserve::MemoryReserve(std::size_t bytes) : before_(nullptr), half_bytes_(bytes / 2) {
  MOTLEY_CHECK(halves.bytes == 0 && half_bytes_ > 0, "one reserve at a time");
  halves.bytes = half_bytes_;
  restore();
  before_ = std::set_new_handler(set_reserve_free);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(before_);
  set_free(halves.first);
  set_free(halves.second);
  halves.bytes = 0;
}

void MemoryReserve::restore() {
  take(halves.second);
  if (halves.second.load() != nullptr) take(halves.first);
}

bool MemoryReserve::whole() const {
  return halves.first.load() != nullptr && halves.second.load() != nullptr;
}

}  // namespace motley
