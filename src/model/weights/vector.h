#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/result.h"
#include "quant/upload.h"
#include "tensor/device/device.h"

namespace motley::model {

// float32 numbers of the model (a norm's weight, a bias) in the memory of its device; may be empty.
class Vector {
 public:
  Vector() = default;
  // Without an uploader the device is the CPU; with one, the numbers are valid when it has
  // finished.
  static Result<Vector> create(std::span<const float> numbers, tensor::Device& device,
                               quant::Uploader* uploader) {
    Vector vector;
    if (uploader == nullptr) {
      MOTLEY_TRY(vector.memory_, device.allocate(numbers.size_bytes()));
      if (!numbers.empty())
        std::memcpy(vector.memory_.data(), numbers.data(), numbers.size_bytes());
    } else {
      MOTLEY_TRY(vector.memory_, uploader->copy(numbers.data(), numbers.size_bytes()));
    }
    vector.size_ = static_cast<std::int64_t>(numbers.size());
    return vector;
  }

  bool empty() const { return size_ == 0; }
  std::int64_t size() const { return size_; }
  // Null where it is empty.
  const float* data() const {
    return empty() ? nullptr : reinterpret_cast<const float*>(memory_.data());
  }
  tensor::ConstTensor view() const { return memory_.view(DType::f32, {size_}); }

 private:
  tensor::Buffer memory_;
  std::int64_t size_ = 0;
};

}  // namespace motley::model
