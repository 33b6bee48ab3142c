#include "base/system/dynamic_library.h"

#include <dlfcn.h>

#include "base/cat.h"

namespace motley {

Result<DynamicLibrary> DynamicLibrary::open(std::span<const std::string> candidates) {
  std::string reasons;
  for (const std::string& candidate : candidates) {
    if (void* handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL))
      return DynamicLibrary(handle, candidate);
    if (!reasons.empty()) reasons += "; ";
    const char* const reason = ::dlerror();
    reasons += reason == nullptr ? candidate : reason;
  }
  return Error(ErrorCode::not_found, "can't open the library", reasons,
               "install it, or put its folder on LD_LIBRARY_PATH");
}

Result<void*> DynamicLibrary::symbol(const char* name) const {
  if (void* address = ::dlsym(handle_, name)) return address;
  return Error(ErrorCode::not_found, cat("the library has no function ", name), name_,
               "install a newer version of it");
}

}  // namespace motley
