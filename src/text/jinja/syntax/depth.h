#pragma once

#include <utility>

namespace motley::text::jinja {

// Counts one level of nesting until it is destroyed.
class Depth {
 public:
  explicit Depth(int& depth) : depth_(&depth) { ++depth; }
  Depth(Depth&& other) noexcept : depth_(std::exchange(other.depth_, nullptr)) {}
  Depth& operator=(Depth&&) = delete;
  ~Depth() {
    if (depth_ != nullptr) --*depth_;
  }

 private:
  int* depth_;
};

}  // namespace motley::text::jinja
