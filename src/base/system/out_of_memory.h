#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/result.h"

// Our code does not throw, but the standard library does if memory runs out. Work for a single
// request runs in within_memory(), so that only that request fails.
namespace motley {

// Allocates nothing, and neither do its copies.
Error out_of_memory_error();

// Whether it is exactly that error, and not a more specific one about memory.
bool is_out_of_memory_error(const Error& error);

// How often within_memory() has caught the end of memory in this process.
std::uint64_t out_of_memory_count();
// Of these, how often it was a thread that could not be started.
std::uint64_t out_of_threads_count();

namespace internal {

template <class T>
struct AsResult {
  using Type = Result<T>;
};
template <class T>
struct AsResult<Result<T>> {
  using Type = Result<T>;
};

// Call in a handler: returns if the exception means that memory or threads have run out; rethrows
// any other.
void require_out_of_memory();

}  // namespace internal

// The result of `work` as a Result; if memory runs out, an error.
template <class Work>
auto within_memory(Work&& work) ->
    typename internal::AsResult<std::remove_cvref_t<std::invoke_result_t<Work&>>>::Type {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Work&>>) {
      work();
      return {};
    } else {
      return work();
    }
  } catch (const std::exception&) {
    internal::require_out_of_memory();
  }
  return out_of_memory_error();
}

// A reserve of memory, so that errors can still be reported when memory has run out. During its
// lifetime a failed allocation first frees one half of it and is retried, for code that must not
// fail; if that fails, too, it frees the other half for error reporting.
class MemoryReserve {
 public:
  // At most one per process.
  explicit MemoryReserve(std::size_t bytes = std::size_t{8} << 20);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Allocates again what was freed, if possible. Call from time to time, on a single thread.
  void restore();
  bool whole() const;

 private:
  std::new_handler before_;
  std::size_t half_bytes_;
};

}  // namespace motley
