#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace motley {

// A library opened at run time; it stays open until the process ends, because code that came from
// it may be called until then.
class DynamicLibrary {
 public:
  // Opens the first of these that can be: a bare name is searched as the loader does, a path is
  // taken as it is.
  static Result<DynamicLibrary> open(std::span<const std::string> candidates);

  Result<void*> symbol(const char* name) const;

  // What was opened.
  const std::string& name() const { return name_; }

 private:
  DynamicLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  void* handle_;
  std::string name_;
};

}  // namespace motley
