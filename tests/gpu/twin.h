#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/elementary.h"

// The same numbers in the host's memory and the GPU's, for calls that both make.
namespace motley::gpu_tests {

template <class T>
class Twin {
 public:
  Twin() = default;
  // Poisoned alike: every bit is set.
  explicit Twin(std::size_t count) : host_(count), device_(count) {
    std::memset(static_cast<void*>(host_.data()), 0xFF, count * sizeof(T));
  }
  explicit Twin(std::vector<T> values) : host_(std::move(values)), device_(host_) {}

  T* host() { return host_.data(); }
  const T* host() const { return host_.data(); }
  T* device() const { return device_.data(); }
  std::size_t size() const { return host_.size(); }

 private:
  std::vector<T> host_;
  DeviceArray<T> device_;
};

struct Interval {
  float low = -1;
  float high = 1;
};

// Rows of f32 or bf16 numbers with a gap behind each, all poison until drawn.
class TwinRows {
 public:
  TwinRows(DType type, std::int64_t rows, std::int64_t width, std::int64_t gap)
      : type_(type), rows_(rows), width_(width), stride_(width + gap), bytes_(byte_count()) {}
  TwinRows(kernels::cpu::Numbers& numbers, DType type, std::int64_t rows, std::int64_t width,
           std::int64_t gap, const Interval& values = {})
      : type_(type), rows_(rows), width_(width), stride_(width + gap) {
    std::vector<std::byte> bytes(byte_count(), std::byte{0xFF});
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        const float value = numbers.between(values.low, values.high);
        const bf16 half = bf16::from(value);
        const std::int64_t at = row * stride_ + i;
        if (type == DType::f32) {
          std::memcpy(bytes.data() + 4 * at, &value, 4);
        } else {
          std::memcpy(bytes.data() + 2 * at, &half, 2);
        }
      }
    }
    bytes_ = Twin<std::byte>(std::move(bytes));
  }

  DType type() const { return type_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  std::int64_t stride() const { return stride_; }
  std::byte* host() { return bytes_.host(); }
  std::byte* device() const { return bytes_.device(); }

  std::vector<std::byte> read_device() const {
    std::vector<std::byte> read(bytes_.size());
    EXPECT_EQ(cudaMemcpy(read.data(), device(), read.size(), cudaMemcpyDefault), cudaSuccess);
    return read;
  }
  // Number i of a row of what read_device() gave, or of host().
  double at(const std::byte* bytes, std::int64_t row, std::int64_t i) const {
    const std::int64_t index = row * stride_ + i;
    if (type_ == DType::f32) {
      float value = 0;
      std::memcpy(&value, bytes + 4 * index, 4);
      return static_cast<double>(value);
    }
    bf16 half{};
    std::memcpy(&half, bytes + 2 * index, 2);
    return static_cast<double>(half.to_float());
  }
  double at(std::int64_t row, std::int64_t i) const { return at(bytes_.host(), row, i); }

  // Every bit, the gaps' too.
  void expect_same() const {
    const std::vector<std::byte> read = read_device();
    if (std::memcmp(read.data(), bytes_.host(), read.size()) == 0) return;
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t i = 0; i < width_; ++i)
        ASSERT_EQ(at(read.data(), row, i), at(row, i)) << "row " << row << ", number " << i;
    }
    FAIL() << "a gap was written";
  }
  void expect_gaps_alone(const std::vector<std::byte>& read) const {
    const std::size_t each = type_ == DType::f32 ? 4 : 2;
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::size_t i = static_cast<std::size_t>(row * stride_ + width_) * each;
           i < static_cast<std::size_t>((row + 1) * stride_) * each; ++i)
        ASSERT_EQ(read[i], std::byte{0xFF}) << "behind row " << row;
    }
  }

 private:
  std::size_t byte_count() const {
    return static_cast<std::size_t>(rows_ * stride_) * (type_ == DType::f32 ? 4 : 2);
  }

  DType type_;
  std::int64_t rows_;
  std::int64_t width_;
  std::int64_t stride_;
  Twin<std::byte> bytes_;
};

// Where a call's numbers are: called with a twin, gives its address on one side.
struct OnHost {
  template <class T>
  auto* operator()(T& twin) const {
    return twin.host();
  }
};
struct OnDevice {
  template <class T>
  auto* operator()(T& twin) const {
    return twin.device();
  }
};

// Makes the call on both devices; `make` builds its params from addresses of one side.
template <class Params, class Make>
void call_both(void (*kernels::ElementaryTable::*entry)(const Params&, StreamHandle),
               const Make& make) {
  (kernels::cpu_table().*entry)(make(OnHost{}), {});
  (device_table().*entry)(make(OnDevice{}), default_stream());
  finish();
  const Result<void> launched = launches();
  ASSERT_TRUE(launched.ok()) << launched.error().message();
}

}  // namespace motley::gpu_tests
