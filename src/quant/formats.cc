#include "quant/formats.h"

#include <array>
#include <bit>

namespace motley::quant {
namespace {

using Inputs = kernels::InputRounding::Scales;
using Scales = Format::Scales;

constexpr Format plain(DType element, int bits) { return {.element = element, .bits = bits}; }

constexpr Format scaled(DType element, int bits, Scales scales, std::int64_t rows,
                        std::int64_t columns, DType scale_type = DType::f32) {
  return {.element = element,
          .bits = bits,
          .scales = scales,
          .block_rows = rows,
          .block_columns = columns,
          .scale_type = scale_type};
}

constexpr Format with_zero_points(Format format) {
  format.zero_points = true;
  return format;
}

constexpr Format in_activation_order(Format format) {
  format.input_order = true;
  return format;
}

constexpr Format with_inputs(Format format, Inputs inputs, DType type, std::int64_t columns = 0,
                             bool power_of_two = false) {
  format.inputs = inputs;
  format.input_type = type;
  format.input_columns = columns;
  format.power_of_two_inputs = power_of_two;
  return format;
}

constexpr Format nvfp4 = [] {
  Format format = scaled(DType::f4, 4, Scales::group, 1, 16, DType::f8_e4m3);
  format.global_scale = true;
  return format;
}();

constexpr Format mxfp4 = scaled(DType::f4, 4, Scales::group, 1, 32, DType::f8_e8m0);

constexpr Format int4(Scales scales, std::int64_t group, DType scale_type = DType::bf16) {
  return scaled(DType::i8, 4, scales, 1, group, scale_type);
}
constexpr Format int8(Scales scales, std::int64_t rows = 1, std::int64_t columns = 0,
                      DType scale_type = DType::bf16) {
  return scaled(DType::i8, 8, scales, rows, columns, scale_type);
}
constexpr Format fp8(Scales scales, std::int64_t rows = 1, std::int64_t columns = 0,
                     DType scale_type = DType::f32) {
  return scaled(DType::f8_e4m3, 8, scales, rows, columns, scale_type);
}

constexpr std::array all{
    KnownFormat{plain(DType::bf16, 16), "unquantised"},
    KnownFormat{plain(DType::f16, 16), "unquantised"},
    KnownFormat{plain(DType::f32, 32), "unquantised"},
    KnownFormat{int4(Scales::group, 32), "compressed-tensors W4A16, GPTQ"},
    KnownFormat{int4(Scales::group, 64, DType::f16), "compressed-tensors W4A16, GPTQ"},
    KnownFormat{int4(Scales::group, 128), "compressed-tensors W4A16, GPTQ"},
    KnownFormat{int4(Scales::group, 128, DType::f32), ""},
    KnownFormat{int4(Scales::channel, 0), "compressed-tensors W4A16, GPTQ"},
    KnownFormat{with_zero_points(int4(Scales::group, 32, DType::f16)), ""},
    KnownFormat{with_zero_points(int4(Scales::group, 128, DType::f16)),
                "AWQ, compressed-tensors W4A16, GPTQ"},
    KnownFormat{with_zero_points(int4(Scales::channel, 0)), "compressed-tensors W4A16, GPTQ"},
    KnownFormat{in_activation_order(int4(Scales::group, 32)), ""},
    KnownFormat{in_activation_order(int4(Scales::group, 128)),
                "GPTQ (desc_act), compressed-tensors W4A16"},
    KnownFormat{in_activation_order(with_zero_points(int4(Scales::group, 128, DType::f16))),
                "GPTQ (desc_act), compressed-tensors W4A16"},
    KnownFormat{int8(Scales::group, 1, 32), ""},
    KnownFormat{int8(Scales::group, 1, 128, DType::f16), "compressed-tensors W8A16, GPTQ"},
    KnownFormat{int8(Scales::channel), "compressed-tensors W8A16, GPTQ"},
    KnownFormat{with_zero_points(int8(Scales::group, 1, 64, DType::f16)),
                "compressed-tensors W8A16, GPTQ"},
    KnownFormat{in_activation_order(int8(Scales::group, 1, 64, DType::f16)), "GPTQ (desc_act)"},
    KnownFormat{with_zero_points(int8(Scales::channel)), ""},
    KnownFormat{in_activation_order(with_zero_points(int8(Scales::group, 1, 32, DType::f16))), ""},
    KnownFormat{with_inputs(int8(Scales::channel, 1, 0, DType::f32), Inputs::row, DType::i8),
                "compressed-tensors W8A8"},
    KnownFormat{with_inputs(int8(Scales::tensor, 1, 0, DType::f32), Inputs::fixed, DType::i8),
                "compressed-tensors W8A8"},
    KnownFormat{
        with_inputs(int8(Scales::block, 128, 128, DType::f32), Inputs::row_block, DType::i8, 128),
        "compressed-tensors block INT8"},
    KnownFormat{int8(Scales::tensor, 1, 0, DType::f32), ""},
    KnownFormat{int8(Scales::block, 128, 128, DType::f32), ""},
    KnownFormat{int8(Scales::block, 24, 20, DType::f32), ""},
    KnownFormat{int4(Scales::tensor, 0, DType::f32), ""},
    KnownFormat{fp8(Scales::tensor), ""},
    KnownFormat{fp8(Scales::channel, 1, 0, DType::bf16), ""},
    KnownFormat{fp8(Scales::block, 128, 128), "ModelOpt FP8_PB_WO"},
    KnownFormat{fp8(Scales::block, 16, 32), ""},
    KnownFormat{fp8(Scales::block, 24, 20), ""},
    KnownFormat{fp8(Scales::group, 1, 20), ""},
    KnownFormat{fp8(Scales::group, 1, 32, DType::f8_e8m0), "compressed-tensors and ModelOpt MXFP8"},
    KnownFormat{with_inputs(fp8(Scales::tensor), Inputs::fixed, DType::f8_e4m3),
                "FP8, compressed-tensors FP8, ModelOpt FP8"},
    KnownFormat{with_inputs(fp8(Scales::channel, 1, 0, DType::bf16), Inputs::row, DType::f8_e4m3),
                "compressed-tensors FP8, ModelOpt FP8_PER_CHANNEL_PER_TOKEN"},
    KnownFormat{with_inputs(fp8(Scales::block, 128, 128), Inputs::row_block, DType::f8_e4m3, 128),
                "FP8 blocks (DeepSeek, Qwen), compressed-tensors FP8"},
    KnownFormat{
        with_inputs(fp8(Scales::block, 128, 128), Inputs::row_block, DType::f8_e4m3, 128, true),
        ""},
    KnownFormat{mxfp4, "gpt-oss, compressed-tensors MXFP4"},
    KnownFormat{in_activation_order(mxfp4), ""},
    KnownFormat{nvfp4, "compressed-tensors and ModelOpt NVFP4"},
    KnownFormat{in_activation_order(nvfp4), ""},
};

bool has_known_scales(const Format& format) {
  const bool no_blocks = format.block_rows == 1 && format.block_columns == 0;
  switch (format.scales) {
    case Scales::none:
      return false;
    case Scales::tensor:
    case Scales::channel:
      return no_blocks;
    case Scales::group:
      return format.block_rows == 1 && format.block_columns > 0;
    case Scales::block:
      return format.block_rows > 0 && format.block_columns > 0;
  }
  return false;
}

bool has_known_inputs(const Format& format) {
  const bool no_columns = format.input_columns == 0 && !format.power_of_two_inputs;
  if (format.inputs == Inputs::none) return no_columns;
  if (format.input_type != format.element || format.bits != 8) return false;
  // The bound of a CPU's products, which round a stretch of inputs at a time.
  constexpr std::int64_t stretch = 1024;
  if (format.inputs == Inputs::row_block)
    return format.input_columns > 0 && stretch % format.input_columns == 0;
  return no_columns && (format.inputs == Inputs::fixed || format.inputs == Inputs::row);
}

bool is_float_type(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

}  // namespace

bool is_known(const Format& format) {
  if (format.scales == Scales::none) {
    const Format same = plain(format.element, format.bits);
    return is_float_type(format.element) && format == same && format.bits == bits(format.element);
  }
  if (!has_known_scales(format) || !has_known_inputs(format)) return false;
  const bool grouped = format.scales == Scales::group;
  if (format.element == DType::i8 && (format.bits == 4 || format.bits == 8)) {
    const bool whole_vectors =
        format.block_columns >= 8 &&
        std::has_single_bit(static_cast<std::uint64_t>(format.block_columns));
    return is_float_type(format.scale_type) && !format.global_scale &&
           (!grouped || whole_vectors) && (grouped || !format.input_order) &&
           (format.bits == 8 || format.scales != Scales::block);
  }
  if (format.zero_points || (format.input_order && !grouped)) return false;
  if (format.element == DType::f8_e4m3 && format.bits == 8) {
    return !format.global_scale &&
           (is_float_type(format.scale_type) || format.scale_type == DType::f8_e8m0);
  }
  Format in_place = format;
  in_place.input_order = false;
  return in_place == nvfp4 || in_place == mxfp4;
}

std::span<const KnownFormat> known_formats() { return all; }

}  // namespace motley::quant
