#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "base/number_types.h"

// What the tests of kernels share.
namespace motley::kernels::cpu {

inline constexpr float poison = std::numeric_limits<float>::quiet_NaN();

// Numbers that are the same everywhere, from a multiplicative congruence.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 2654435761U + 88172645463325252U) {}

  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  int below(int end) { return static_cast<int>(bits() % static_cast<std::uint32_t>(end)); }
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(bits() & 0xFFFFFFU) / 16777216.0F;
  }
  std::vector<float> floats(std::int64_t count, float low, float high) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(between(low, high));
    return all;
  }

 private:
  std::uint64_t state_;
};

// Rows of f32 or bf16 numbers with a gap behind each, all poison until set.
class TestRows {
 public:
  TestRows(DType type, std::int64_t rows, std::int64_t width, std::int64_t gap = 3)
      : type_(type), rows_(rows), width_(width), stride_(width + gap) {
    wide_.assign(static_cast<std::size_t>(rows * stride_), poison);
    narrow_.assign(wide_.size(), bf16::from(poison));
  }
  TestRows(Numbers& numbers, DType type, std::int64_t rows, std::int64_t width, float low = -1,
           float high = 1)
      : TestRows(type, rows, width) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < width; ++i) set(row, i, numbers.between(low, high));
    }
  }

  DType type() const { return type_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  std::int64_t stride() const { return stride_; }
  void* data() { return type_ == DType::f32 ? static_cast<void*>(wide_.data()) : narrow_.data(); }
  const void* row(std::int64_t index) const {
    const std::int64_t at = index * stride_;
    return type_ == DType::f32 ? static_cast<const void*>(wide_.data() + at) : narrow_.data() + at;
  }
  float* floats() { return wide_.data(); }

  void set(std::int64_t row, std::int64_t i, float value) {
    const auto at = static_cast<std::size_t>(row * stride_ + i);
    wide_[at] = value;
    narrow_[at] = bf16::from(value);
  }
  float get(std::int64_t row, std::int64_t i) const {
    const auto at = static_cast<std::size_t>(row * stride_ + i);
    return type_ == DType::f32 ? wide_[at] : narrow_[at].to_float();
  }
  double at(std::int64_t row, std::int64_t i) const { return static_cast<double>(get(row, i)); }

  // Nothing behind a row's last number was written.
  bool gaps_are_poison() const {
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t i = width_; i < stride_; ++i) {
        const float value = get(row, i);
        if (value == value) return false;
      }
    }
    return true;
  }
  std::size_t row_bytes() const {
    return static_cast<std::size_t>(width_) * (type_ == DType::f32 ? 4 : 2);
  }

 private:
  DType type_;
  std::int64_t rows_;
  std::int64_t width_;
  std::int64_t stride_;
  std::vector<float> wide_;
  std::vector<bf16> narrow_;
};

}  // namespace motley::kernels::cpu
