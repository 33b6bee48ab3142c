#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/number_types.h"
#include "tensor/shape.h"

namespace motley::tensor {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct DeviceId {
  DeviceKind kind = DeviceKind::cpu;
  std::int16_t index = 0;

  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

// "cpu", "cuda:1"
std::string to_string(DeviceId device);

// The DType of a C++ type: dtype_of<bf16> is DType::bf16.
template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, f16>) return DType::f16;
  if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, f8_e4m3>) return DType::f8_e4m3;
  if constexpr (std::is_same_v<T, f8_e5m2>) return DType::f8_e5m2;
  if constexpr (std::is_same_v<T, f8_e8m0>) return DType::f8_e8m0;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int16_t>) return DType::i16;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::i8;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
}();

// A view of numbers that its caller owns: trivially copyable, no reference counts. Byte is
// std::byte, or const std::byte for a view that does not write.
template <class Byte>
class BasicTensor {
 public:
  // Distance between neighbours in each dimension, in elements.
  using Strides = std::array<std::int64_t, Shape::max_rank>;

  BasicTensor() = default;

  // Contiguous, last dimension fastest.
  BasicTensor(Byte* data, DType dtype, const Shape& shape, DeviceId device = {})
      : data_(data), shape_(shape), dtype_(dtype), device_(device) {
    std::int64_t stride = 1;
    for (int dim = shape.rank() - 1; dim >= 0; --dim) {
      strides_[std::size_t(dim)] = stride;
      // A zero length must not make the outer strides zero.
      stride *= shape[dim] == 0 ? 1 : shape[dim];
    }
  }

  // A view that writes is a view that reads.
  template <class Writable>
    requires(std::is_const_v<Byte> && !std::is_const_v<Writable>)
  BasicTensor(const BasicTensor<Writable>& view)
      : data_(view.data_),
        shape_(view.shape_),
        strides_(view.strides_),
        dtype_(view.dtype_),
        device_(view.device_) {}

  DType dtype() const { return dtype_; }
  DeviceId device() const { return device_; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int index) const { return shape_[index]; }
  std::int64_t stride(int index) const {
    MOTLEY_CHECK(index >= 0 && index < shape_.rank(), "a dimension that the tensor has");
    return strides_[std::size_t(index)];
  }
  std::int64_t elements() const { return shape_.elements(); }

  Byte* bytes() const { return data_; }
  std::int64_t byte_count() const {
    const auto count = bytes_of(dtype_, elements());
    MOTLEY_CHECK(count.has_value(), "a tensor of whole bytes");
    return *count;
  }

  // The elements as T, which must be the dtype's type, at an address that T may stand at.
  template <class T>
  auto* data() const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    MOTLEY_CHECK(dtype_ == dtype_of<T>, "data<T>() of the tensor's own dtype");
    MOTLEY_CHECK(is_aligned(alignof(T)), "an address that the type may stand at");
    return reinterpret_cast<Element*>(data_);
  }

  // Views of files may begin at any byte.
  bool is_aligned(std::size_t alignment) const {
    return reinterpret_cast<std::uintptr_t>(data_) % alignment == 0;
  }
  bool is_contiguous() const {
    std::int64_t expected = 1;
    for (int dim = shape_.rank() - 1; dim >= 0; --dim) {
      if (shape_[dim] != 1 && strides_[std::size_t(dim)] != expected) return elements() == 0;
      expected *= shape_[dim];
    }
    return true;
  }

  // Element `index` of the outermost dimension, which goes away.
  BasicTensor select(std::int64_t index) const {
    MOTLEY_CHECK(shape_.rank() > 0 && index >= 0 && index < shape_[0], "an index inside");
    BasicTensor part = *this;
    part.data_ = data_ + offset_of(index * strides_[0]);
    part.shape_ = Shape::make(shape_.dims().subspan(1)).value();
    for (int dim = 0; dim < part.shape_.rank(); ++dim)
      part.strides_[std::size_t(dim)] = strides_[std::size_t(dim) + 1];
    return part;
  }

  // Indices [begin, end) of one dimension.
  BasicTensor slice(int dim, std::int64_t begin, std::int64_t end) const {
    MOTLEY_CHECK(0 <= begin && begin <= end && end <= shape_[dim], "a range inside");
    BasicTensor part = *this;
    part.data_ = data_ + offset_of(begin * strides_[std::size_t(dim)]);
    std::array<std::int64_t, Shape::max_rank> dims{};
    for (int i = 0; i < shape_.rank(); ++i) dims[std::size_t(i)] = shape_[i];
    dims[std::size_t(dim)] = end - begin;
    part.shape_ = Shape::make(std::span(dims.data(), std::size_t(shape_.rank()))).value();
    return part;
  }

  // One dimension as two, the second of `inner`: a row of numbers as heads.
  BasicTensor split(int dim, std::int64_t inner) const {
    MOTLEY_CHECK(dim >= 0 && dim < shape_.rank() && shape_.rank() < Shape::max_rank && inner > 0 &&
                     shape_[dim] % inner == 0,
                 "a length that divides the dimension");
    BasicTensor part = *this;
    std::array<std::int64_t, Shape::max_rank> dims{};
    int to = 0;
    for (int from = 0; from < shape_.rank(); ++from, ++to) {
      dims[std::size_t(to)] = shape_[from];
      part.strides_[std::size_t(to)] = strides_[std::size_t(from)];
      if (from != dim) continue;
      dims[std::size_t(to)] /= inner;
      part.strides_[std::size_t(to)] *= inner;
      dims[std::size_t(++to)] = inner;
      part.strides_[std::size_t(to)] = strides_[std::size_t(from)];
    }
    part.shape_ = Shape::make(std::span(dims.data(), std::size_t(to))).value();
    return part;
  }

  // Dimensions `dim` and `dim` + 1 as one, where their elements follow each other at one distance.
  bool can_merge(int dim) const {
    const auto at = std::size_t(dim);
    return shape_[dim] == 1 || strides_[at] == shape_[dim + 1] * strides_[at + 1];
  }
  BasicTensor merge(int dim) const {
    MOTLEY_CHECK(dim >= 0 && dim + 1 < shape_.rank() && can_merge(dim),
                 "two dimensions that are one");
    BasicTensor part = *this;
    std::array<std::int64_t, Shape::max_rank> dims{};
    int to = 0;
    for (int from = 0; from < shape_.rank(); ++from, ++to) {
      dims[std::size_t(to)] = shape_[from];
      if (from == dim) dims[std::size_t(to)] *= shape_[++from];
      part.strides_[std::size_t(to)] = strides_[std::size_t(from)];
    }
    part.shape_ = Shape::make(std::span(dims.data(), std::size_t(to))).value();
    return part;
  }

  // The same elements in the same order under another shape.
  BasicTensor reshape(const Shape& shape) const {
    MOTLEY_CHECK(is_contiguous() && shape.elements() == elements(),
                 "a reshape keeps the elements, and they lie side by side");
    return BasicTensor(data_, dtype_, shape, device_);
  }

 private:
  template <class>
  friend class BasicTensor;

  std::int64_t offset_of(std::int64_t element) const {
    const auto offset = bytes_of(dtype_, element);
    MOTLEY_CHECK(offset.has_value(), "a part that begins at a whole byte");
    return *offset;
  }

  Byte* data_ = nullptr;
  Shape shape_;
  Strides strides_{};
  DType dtype_ = DType::f32;
  DeviceId device_;
};

using Tensor = BasicTensor<std::byte>;
using ConstTensor = BasicTensor<const std::byte>;

static_assert(std::is_trivially_copyable_v<Tensor>);
static_assert(std::is_trivially_copyable_v<ConstTensor>);

}  // namespace motley::tensor
