#pragma once

#include <cstdint>

#include "base/system/dynamic_library.h"

namespace motley {

// NVIDIA's libraries, which are used if installed, and never required to start.
enum class NvidiaLibrary : std::uint8_t { driver, cublas_lt, nccl };

// Loads the library at the first call. The error names what is missing, what needs it and how to
// get it. Thread-safe.
Result<const DynamicLibrary*> nvidia_library(NvidiaLibrary library);

// One of its functions, e.g. nvidia_function<decltype(&cublasLtCreate)>(cublas_lt,
// "cublasLtCreate").
template <class Function>
Result<Function> nvidia_function(NvidiaLibrary library, const char* name) {
  MOTLEY_TRY(const DynamicLibrary* const opened, nvidia_library(library));
  MOTLEY_TRY(void* const address, opened->symbol(name));
  return reinterpret_cast<Function>(address);
}

}  // namespace motley
