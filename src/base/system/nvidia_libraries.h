#pragma once

#include <cstdint>

#include "base/system/dynamic_library.h"

namespace motley {

// NVIDIA's libraries that motley uses where they are installed, and never needs to start.
enum class NvidiaLibrary : std::uint8_t { driver, cublas_lt, nccl };

// The library, opened at the first call and kept. The error names what is missing, what needs it
// and how to get it. May be called from any thread.
Result<const DynamicLibrary*> nvidia_library(NvidiaLibrary library);

// A function of it, e.g. nvidia_function<decltype(&cublasLtCreate)>(cublas_lt, "cublasLtCreate").
template <class Function>
Result<Function> nvidia_function(NvidiaLibrary library, const char* name) {
  MOTLEY_TRY(const DynamicLibrary* const opened, nvidia_library(library));
  MOTLEY_TRY(void* const address, opened->symbol(name));
  return reinterpret_cast<Function>(address);
}

}  // namespace motley
