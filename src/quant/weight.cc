#include "quant/weight.h"

#include "base/cat.h"
#include "base/check.h"
#include "kernels/cpu/gemm.h"

namespace motley::quant {
namespace {

kernels::WeightKind kind_of(const Format& format) {
  using kernels::WeightKind;
  switch (format.scales) {
    case Format::Scales::none:
      if (format.element == DType::f32) return WeightKind::f32;
      if (format.element == DType::f16) return WeightKind::f16;
      if (format.element == DType::bf16) return WeightKind::bf16;
      break;
    case Format::Scales::group:
      if (format.element == DType::i8 && format.bits == 4) return WeightKind::int4_group;
      break;
    case Format::Scales::block:
      if (format.element == DType::f8_e4m3) return WeightKind::f8_block;
      break;
  }
  MOTLEY_CHECK(false, "a format that kernels know");
}

kernels::WeightView view_of(const Format& format, TrueSize size, const std::byte* data,
                            const tensor::Buffer& scales) {
  kernels::WeightView view{.kind = kind_of(format), .data = data, .out = size.out, .in = size.in};
  if (format.scales == Format::Scales::none) return view;
  MOTLEY_CHECK(format.block_rows > 0 && format.block_columns > 0, "blocks that hold something");
  const std::int64_t rows = (size.out + format.block_rows - 1) / format.block_rows;
  const std::int64_t columns = (size.in + format.block_columns - 1) / format.block_columns;
  MOTLEY_CHECK(scales.size() >= static_cast<std::size_t>(rows * columns) * sizeof(float),
               "a scale for every block");
  view.scales = reinterpret_cast<const float*>(scales.data());
  view.block_rows = format.block_rows;
  view.block_columns = format.block_columns;
  return view;
}

}  // namespace

std::string to_string(const Format& format) {
  switch (format.scales) {
    case Format::Scales::none:
      break;
    case Format::Scales::group:
      return cat("int", format.bits, " group ", format.block_columns);
    case Format::Scales::block:
      return cat("fp8 block ", format.block_rows, "x", format.block_columns);
  }
  switch (format.element) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    default:
      return std::string(name(format.element));
  }
}

Weight Weight::borrow(const tensor::ConstTensor& matrix) {
  MOTLEY_CHECK(matrix.shape().rank() == 2 && matrix.is_contiguous(), "a matrix of whole rows");
  const Format format{.element = matrix.dtype(), .bits = bits(matrix.dtype())};
  return borrow(format, {matrix.dim(0), matrix.dim(1)}, matrix.bytes(), {});
}

Weight Weight::borrow(const Format& format, TrueSize size, const std::byte* data,
                      tensor::Buffer scales) {
  Weight weight;
  weight.format_ = format;
  weight.view_ = view_of(format, size, data, scales);
  weight.scales_ = std::move(scales);
  return weight;
}

Weight Weight::own(const Format& format, TrueSize size, tensor::Buffer data,
                   tensor::Buffer scales) {
  const std::int64_t row_bytes = (size.in * format.bits + 7) / 8;
  MOTLEY_CHECK(data.size() >= static_cast<std::size_t>(size.out * row_bytes), "every row's bytes");
  Weight weight = borrow(format, size, data.data(), std::move(scales));
  weight.data_ = std::move(data);
  return weight;
}

void Weight::decode(std::int64_t begin, std::int64_t end, float* out) const {
  MOTLEY_CHECK(0 <= begin && begin <= end && end <= view_.out, "rows of this weight");
  for (std::int64_t row = begin; row < end; ++row)
    kernels::cpu::decode_row(view_, row, 0,
                             {out + (row - begin) * view_.in, static_cast<std::size_t>(view_.in)});
}

}  // namespace motley::quant
