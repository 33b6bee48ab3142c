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

// Nothing of ours throws, but the standard library does where memory ends. Whoever works for one
// request among many does so through within_memory(), so that it is that request which fails.
namespace motley {

// Takes no memory itself, nor does a copy of it.
Error out_of_memory_error();

// Whether it is that one, rather than an error about memory of which more is known.
bool is_out_of_memory_error(const Error& error);

// How often within_memory() has met the end of memory since the process began.
std::uint64_t out_of_memory_count();

namespace internal {

template <class T>
struct AsResult {
  using Type = Result<T>;
};
template <class T>
struct AsResult<Result<T>> {
  using Type = Result<T>;
};

// Whether the exception at hand says that memory, or what threads are made of, has ended; another
// one goes on. Inside a handler only.
void require_out_of_memory();

}  // namespace internal

// What `work` returns, as a Result; the end of memory in it is an error.
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

// Memory that is kept back, so that errors can still be reported when memory has ended. While it
// lives, an allocation that fails first takes one half of it and is tried again, for what must not
// fail; one that fails then sets the other half free for those who report the failure.
class MemoryReserve {
 public:
  // One at a time in a process.
  explicit MemoryReserve(std::size_t bytes = std::size_t{8} << 20);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Takes again what was set free, as far as memory allows. From time to time, on any one thread.
  void restore();
  bool whole() const;

 private:
  std::new_handler before_;
  std::size_t half_bytes_;
};

}  // namespace motley
