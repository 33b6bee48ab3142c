// 4-bit floats, two to a byte: compressed-tensors' and ModelOpt's NVFP4 and MXFP4.

#include "base/cat.h"
#include "quant/readers/reader.h"

namespace motley::quant {

Result<void> read_fp4(Reader& reader, const Scheme& scheme) {
  const Format& format = scheme.format;
  if (reader.in() % format.block_columns != 0)
    return reader.bad(
        cat("rows of ", reader.in(), " inputs are no whole groups of ", format.block_columns),
        "weight_scale");
  MOTLEY_TRY_VOID(reader.refuse_others({"weight_zero_point", "weight_g_idx", "qweight"}));
  const std::string_view codes = reader.has("weight_packed") ? "weight_packed" : "weight";
  MOTLEY_TRY(const tensor::ConstTensor packed,
             reader.take(codes, DType::u8, {reader.out(), reader.in() / 2}));
  reader.parts().data = packed.bytes();
  MOTLEY_TRY_VOID(
      reader.take_scales("weight_scale", reader.out(), reader.in() / format.block_columns));
  if (format.global_scale) {
    // compressed-tensors divides by its number, ModelOpt multiplies with its own.
    const bool divides = reader.has("weight_global_scale");
    const std::string_view part = divides ? "weight_global_scale" : "weight_scale_2";
    if (divides) MOTLEY_TRY_VOID(reader.refuse_others({"weight_scale_2"}));
    MOTLEY_TRY(const float number, reader.take_number(part));
    if (!(number > 0)) return reader.bad(cat("a global scale of ", number), part);
    reader.parts().scale_factor = divides ? 1 / number : number;
  } else {
    MOTLEY_TRY_VOID(reader.refuse_others({"weight_global_scale", "weight_scale_2"}));
  }
  // For activations of 4 bits, which are left as they are.
  for (const std::string_view part : {"input_global_scale", "input_scale"}) {
    if (!reader.has(part)) continue;
    MOTLEY_TRY(const float number, reader.take_number(part));
    static_cast<void>(number);
  }
  return {};
}

}  // namespace motley::quant
