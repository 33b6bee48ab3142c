#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

namespace motley::gpu_tests {

// Numbers on the GPU, poisoned with NaN of every float type before they are written. What writes
// them has landed when it returns: the driver's own calls may come back before, and streams that do
// not wait for the default one would begin beside them.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) : count_(count) {
    // A little more than is asked for, so that an empty array has an address too.
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T) + 16), cudaSuccess);
    poison();
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) { write(values); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  void poison() { fill(0xFF, count_ * sizeof(T) + 16); }
  void zero() { fill(0, count_ * sizeof(T)); }
  void write(std::span<const T> values) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyDefault),
              cudaSuccess);
    land();
  }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
    return values;
  }

 private:
  void fill(int byte, std::size_t bytes) {
    EXPECT_EQ(cudaMemset(data_, byte, bytes), cudaSuccess);
    land();
  }
  static void land() { EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess); }

  T* data_ = nullptr;
  std::size_t count_ = 0;
};

// Waits for all work, and fails the test with the GPU's own words.
inline void finish() {
  const cudaError_t status = cudaDeviceSynchronize();
  ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
}

}  // namespace motley::gpu_tests
