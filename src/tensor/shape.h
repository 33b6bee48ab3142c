#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/result.h"

namespace motley::tensor {

// The lengths of a tensor's dimensions, outermost first. No dimensions is a scalar: one element.
class Shape {
 public:
  static constexpr int max_rank = 8;

  constexpr Shape() = default;

  // For shapes that our code makes: aborts where make() would refuse.
  Shape(std::initializer_list<std::int64_t> dims);

  // For shapes from outside: refuses negative lengths, more than max_rank dimensions, and an
  // element count beyond 63 bits.
  static Result<Shape> make(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int dim) const;
  std::span<const std::int64_t> dims() const { return {dims_.data(), std::size_t(rank_)}; }

  std::int64_t elements() const;

  friend bool operator==(const Shape& a, const Shape& b) = default;

 private:
  // Lengths beyond rank_ stay 0, so that equal shapes compare equal.
  std::array<std::int64_t, max_rank> dims_{};
  std::int32_t rank_ = 0;
};

// "[128, 2048]"
std::string to_string(const Shape& shape);

}  // namespace motley::tensor
