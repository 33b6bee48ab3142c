#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace motley {

// A library loaded at run time. It is never unloaded, because its code may be called until the
// process exits.
class DynamicLibrary {
 public:
  // Loads the first candidate that can be loaded: a bare name is searched by the loader, a path is
  // used as it is.
  static Result<DynamicLibrary> open(std::span<const std::string> candidates);

  Result<void*> symbol(const char* name) const;

  // The candidate that was loaded.
  const std::string& name() const { return name_; }

 private:
  DynamicLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  void* handle_;
  std::string name_;
};

}  // namespace motley
