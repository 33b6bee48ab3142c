// FP8 and INT8 as they are, with scales beside them: compressed-tensors' float- and int-quantized,
// FP8 blocks, ModelOpt's FP8.

#include <cstring>

#include "base/cat.h"
#include "quant/readers/reader.h"
#include "tensor/convert.h"

namespace motley::quant {
namespace {

// Zero points [rows, columns] of signed codes, or a vector where there is one column.
Result<void> take_zero_points(Reader& reader, std::int64_t rows, std::int64_t columns) {
  constexpr std::string_view part = "weight_zero_point";
  if (!reader.has(part)) {
    reader.parts().format.zero_points = false;
    return {};
  }
  MOTLEY_TRY(const tensor::ConstTensor stored, reader.take(part));
  if (stored.dtype() != DType::i8)
    return reader.bad(cat("zero points of type ", motley::name(stored.dtype()), ", not I8"), part);
  if (stored.elements() != rows * columns)
    return reader.bad(cat("its shape is ", tensor::to_string(stored.shape()), ", and [", rows, ", ",
                          columns, "] is needed"),
                      part);
  std::vector<std::uint8_t> zeros(static_cast<std::size_t>(rows * columns));
  std::memcpy(zeros.data(), stored.bytes(), zeros.size());
  for (std::uint8_t& zero : zeros) zero = static_cast<std::uint8_t>(zero ^ 0x80U);
  return reader.keep_zero_points(zeros);
}

}  // namespace

Result<void> read_scaled(Reader& reader, const Scheme& scheme) {
  const Format& format = scheme.format;
  MOTLEY_TRY_VOID(
      reader.refuse_others({"weight_packed", "weight_g_idx", "weight_global_scale", "qweight"}));
  MOTLEY_TRY(const tensor::ConstTensor weight,
             reader.take("weight", format.element, {reader.out(), reader.in()}));
  std::int64_t rows = reader.out();
  std::int64_t columns = 1;
  switch (format.scales) {
    case Format::Scales::none:
    case Format::Scales::tensor:
      rows = 1;
      break;
    case Format::Scales::channel:
      break;
    case Format::Scales::group:
      columns = ceil_div(reader.in(), format.block_columns);
      break;
    case Format::Scales::block:
      rows = ceil_div(reader.out(), format.block_rows);
      columns = ceil_div(reader.in(), format.block_columns);
      break;
  }
  // Two names of one thing: what codes are multiplied with.
  const bool inverse =
      reader.has("weight_scale_inv") || (reader.method() == "fp8" && !reader.has("weight_scale"));
  if (inverse) MOTLEY_TRY_VOID(reader.refuse_others({"weight_scale"}));
  MOTLEY_TRY_VOID(reader.take_scales(inverse ? "weight_scale_inv" : "weight_scale", rows, columns));
  if (format.element == DType::i8) {
    MOTLEY_TRY_VOID(take_zero_points(reader, rows, columns));
  } else {
    MOTLEY_TRY_VOID(reader.refuse_others({"weight_zero_point"}));
  }
  MOTLEY_TRY_VOID(reader.take_fixed_inputs({"input_scale", "activation_scale"}));
  reader.parts().data = weight.bytes();
  return {};
}

}  // namespace motley::quant
