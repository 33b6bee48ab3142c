#include "quant/weight.h"

#include <algorithm>

#include "base/cat.h"
#include "base/check.h"
#include "kernels/cpu/gemm.h"

namespace motley::quant {
namespace {

using kernels::InputRounding;
using kernels::WeightKind;

WeightKind kind_of(const Format& format) {
  switch (format.element) {
    case DType::f32:
      return WeightKind::f32;
    case DType::f16:
      return WeightKind::f16;
    case DType::bf16:
      return WeightKind::bf16;
    case DType::f8_e4m3:
      return WeightKind::f8_e4m3;
    case DType::i8:
      return format.bits == 4 ? WeightKind::int4 : WeightKind::i8;
    case DType::f4:
      return WeightKind::f4_e2m1;
    default:
      break;
  }
  MOTLEY_CHECK(false, "an element that kernels know");
}

std::string element_name(const Format& format) {
  switch (format.element) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f8_e4m3:
      return "fp8";
    case DType::i8:
      return cat("int", format.bits);
    case DType::f4:
      return "fp4";
    default:
      return std::string(name(format.element));
  }
}

InputRounding rounding_of(const Weight::Parts& parts) {
  const Format& format = parts.format;
  return {.scales = format.inputs,
          .type = format.input_type,
          .power_of_two = format.power_of_two_inputs,
          .columns = format.input_columns,
          .first = parts.input_first,
          .scale = parts.input_scale,
          .zero = parts.input_zero};
}

kernels::WeightView view_of(const Weight::Parts& parts) {
  const Format& format = parts.format;
  kernels::WeightView view{.kind = kind_of(format),
                           .data = parts.data,
                           .out = parts.size.out,
                           .in = parts.columns > 0 ? parts.columns : parts.size.in,
                           .inputs = rounding_of(parts)};
  MOTLEY_CHECK(kernels::code_bits(view.kind) == format.bits, "bits that the element has");
  MOTLEY_CHECK((parts.zero_points != nullptr) == format.zero_points,
               "zero points as the format says");
  MOTLEY_CHECK((parts.input_order != nullptr) == format.input_order,
               "an order of inputs as the format says");
  if (format.input_order) {
    MOTLEY_CHECK(std::ssize(*parts.input_order) == view.in, "an input for each column");
    view.input_order =
        parts.input_order_there != nullptr ? parts.input_order_there : parts.input_order->data();
  }
  if (format.scales == Format::Scales::none) return view;
  MOTLEY_CHECK(parts.scales != nullptr, "scales as the format says");
  view.scale_type = format.scale_type;
  view.scales = parts.scales;
  view.scale_factor = parts.scale_factor;
  view.zero_points = parts.zero_points;
  const bool all_rows = format.scales == Format::Scales::tensor;
  const bool all_columns = all_rows || format.scales == Format::Scales::channel;
  // A weight of no size still has blocks that hold something.
  view.block_rows = all_rows ? std::max<std::int64_t>(view.out, 1) : format.block_rows;
  view.block_columns = all_columns ? std::max<std::int64_t>(view.in, 1) : format.block_columns;
  MOTLEY_CHECK(view.block_rows > 0 && view.block_columns > 0, "blocks that hold something");
  return view;
}

std::string scales_text(const Format& format) {
  switch (format.scales) {
    case Format::Scales::none:
      return "";
    case Format::Scales::tensor:
      return " tensor";
    case Format::Scales::channel:
      return " channel";
    case Format::Scales::group:
      return cat(" group ", format.block_columns);
    case Format::Scales::block:
      return cat(" block ", format.block_rows, "x", format.block_columns);
  }
  return "";
}

std::string inputs_text(const Format& format) {
  const std::string_view type = format.input_type == DType::i8 ? "int8" : "fp8";
  switch (format.inputs) {
    case InputRounding::Scales::none:
      return "";
    case InputRounding::Scales::fixed:
      return cat(", ", type, " inputs static");
    case InputRounding::Scales::row:
      return cat(", ", type, " inputs by token");
    case InputRounding::Scales::row_block:
      return cat(", ", type, " inputs by ", format.input_columns);
  }
  return "";
}

}  // namespace

std::string to_string(const Format& format) {
  const std::string inputs = inputs_text(format);
  if (format.element == DType::f4) {
    // The two formats of 4-bit floats have names of their own, and no order of inputs in files.
    const std::string_view filled = format.input_order ? " with filled blocks" : "";
    if (format.global_scale && format.block_columns == 16) return cat("nvfp4", filled, inputs);
    if (format.scale_type == DType::f8_e8m0 && format.block_columns == 32)
      return cat("mxfp4", filled, inputs);
  }
  return cat(element_name(format), scales_text(format),
             format.zero_points ? " with zero points" : "",
             format.input_order ? " in activation order" : "", inputs);
}

Weight::Weight(Parts parts)
    : format_(parts.format),
      in_(parts.size.in),
      view_(view_of(parts)),
      input_order_(std::move(parts.input_order)),
      owned_(std::move(parts.owned)) {}

Weight Weight::borrow(const tensor::ConstTensor& matrix) {
  MOTLEY_CHECK(matrix.shape().rank() == 2 && matrix.is_contiguous(), "a matrix of whole rows");
  return Weight({.format = plain_format(matrix.dtype()),
                 .size = {matrix.dim(0), matrix.dim(1)},
                 .data = matrix.bytes()});
}

Weight Weight::own(const Format& format, TrueSize size, tensor::Buffer data,
                   tensor::Buffer scales) {
  const std::size_t bytes = data.size();
  const std::size_t scale_bytes = scales.size();
  Parts parts{.format = format, .size = size, .data = data.data(), .scales = scales.data()};
  parts.owned.push_back(std::move(data));
  if (scale_bytes > 0) parts.owned.push_back(std::move(scales));
  Weight weight(std::move(parts));
  MOTLEY_CHECK(bytes >= weight.data_bytes(), "every row's bytes");
  MOTLEY_CHECK(
      scale_bytes * 8 >= weight.scale_count() * static_cast<std::size_t>(bits(format.scale_type)),
      "a scale for every block");
  return weight;
}

void Weight::keep_inputs_exact() {
  format_.keep_inputs_exact();
  view_.inputs = {};
}

void Weight::begin_inputs_at(std::int64_t input) {
  if (view_.inputs.scales == InputRounding::Scales::row_block)
    view_.inputs.first = input % view_.inputs.columns;
}

bool Weight::takes_inputs_like(const Weight& other) const {
  if (view_.inputs != other.view_.inputs) return false;
  if (input_order_ == nullptr || other.input_order_ == nullptr)
    return input_order_ == other.input_order_;
  return *input_order_ == *other.input_order_;
}

std::size_t Weight::data_bytes() const {
  const std::int64_t row_bytes = (view_.in * format_.bits + 7) / 8;
  return static_cast<std::size_t>(view_.out * row_bytes);
}

std::size_t Weight::scale_count() const {
  if (view_.scales == nullptr) return 0;
  return static_cast<std::size_t>((view_.out + view_.block_rows - 1) / view_.block_rows *
                                  view_.groups());
}

std::size_t Weight::stored_bytes() const {
  std::size_t bytes = data_bytes();
  bytes += scale_count() * static_cast<std::size_t>(bits(format_.scale_type)) / 8;
  if (format_.zero_points) bytes += scale_count();
  if (format_.input_order) bytes += static_cast<std::size_t>(columns()) * sizeof(std::int32_t);
  return bytes;
}

void Weight::decode(std::int64_t begin, std::int64_t end, float* out) const {
  MOTLEY_CHECK(0 <= begin && begin <= end && end <= view_.out, "rows of this weight");
  for (std::int64_t row = begin; row < end; ++row)
    kernels::cpu::decode_row(view_, row, 0,
                             {out + (row - begin) * in_, static_cast<std::size_t>(in_)});
}

}  // namespace motley::quant
