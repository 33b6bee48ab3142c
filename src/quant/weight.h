#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/weight_view.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace motley::quant {

// Sizes that a file's padding may exceed: a number of packed words is never taken for one of
// elements.
struct TrueSize {
  std::int64_t out = 0;
  std::int64_t in = 0;
};

// What the numbers of a stored weight mean: data, never a class per method.
struct Format {
  enum class Scales : std::uint8_t { none, group, block };

  DType element = DType::f32;  // f32, f16, bf16, f8_e4m3, or i8 for packed integers
  int bits = 32;
  Scales scales = Scales::none;
  std::int64_t block_rows = 1;     // rows that share a scale
  std::int64_t block_columns = 0;  // inputs that share a scale

  friend bool operator==(const Format&, const Format&) = default;
};

// "bf16", "int4 group 128", "fp8 block 128x128"
std::string to_string(const Format& format);

// A weight matrix ready for kernels. It borrows what stays mapped (plain formats are used in place
// where their alignment allows) and owns what had to be made.
class Weight {
 public:
  Weight() = default;
  // A plain matrix [out, in] that the caller keeps.
  static Weight borrow(const tensor::ConstTensor& matrix);
  // Data and float32 scales in the layout of kernels/weight_view.h. Data that the caller keeps
  // is used in place; what is owned comes in buffers.
  static Weight borrow(const Format& format, TrueSize size, const std::byte* data,
                       tensor::Buffer scales);
  static Weight own(const Format& format, TrueSize size, tensor::Buffer data,
                    tensor::Buffer scales);

  const Format& format() const { return format_; }
  std::int64_t out() const { return view_.out; }
  std::int64_t in() const { return view_.in; }
  const kernels::WeightView& view() const { return view_; }

  // Rows [begin, end) as float32 into out[(end - begin) * in]. Of a weight in the host's memory.
  void decode(std::int64_t begin, std::int64_t end, float* out) const;

 private:
  Format format_;
  kernels::WeightView view_;
  tensor::Buffer data_;
  tensor::Buffer scales_;
};

}  // namespace motley::quant
