#include "tensor/shape.h"

#include <algorithm>

#include "base/cat.h"

namespace motley::tensor {

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(make(std::span(dims.begin(), dims.size())).value()) {}

Result<Shape> Shape::make(std::span<const std::int64_t> dims) {
  const auto refuse = [&](std::string what, std::string fix) {
    const bool all = dims.size() <= max_rank;
    return Error(ErrorCode::invalid_argument, std::move(what),
                 cat("shape [", join(all ? dims : dims.first(max_rank)), all ? "]" : ", ...]"),
                 std::move(fix));
  };
  if (dims.size() > max_rank)
    return refuse(cat(dims.size(), " dimensions"), cat("use at most ", max_rank));
  if (std::ranges::any_of(dims, [](std::int64_t length) { return length < 0; }))
    return refuse("a negative length", "lengths are 0 or more");
  // A zero makes the product small, but the others must still be sane: strides are their products.
  std::int64_t product = 1;
  for (const std::int64_t length : dims) {
    if (length != 0 && __builtin_mul_overflow(product, length, &product))
      return refuse("more elements than 63 bits can count", "make it smaller");
  }
  Shape shape;
  std::ranges::copy(dims, shape.dims_.begin());
  shape.rank_ = static_cast<std::int32_t>(dims.size());
  return shape;
}

std::int64_t Shape::operator[](int dim) const {
  MOTLEY_CHECK(dim >= 0 && dim < rank_, "a dimension that the shape has");
  return dims_[static_cast<std::size_t>(dim)];
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t length : dims()) product *= length;
  return product;
}

std::string to_string(const Shape& shape) { return cat("[", join(shape.dims()), "]"); }

}  // namespace motley::tensor
