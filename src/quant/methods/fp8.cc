// "fp8": FP8 blocks as DeepSeek and Qwen write them, or one scale for a tensor (Mistral's).

#include "quant/methods/methods.h"

namespace motley::quant {

using Inputs = kernels::InputRounding::Scales;

Result<Config> read_fp8(const json::Object& quantization) {
  const Settings settings{quantization};
  MOTLEY_TRY(const std::string type, settings.text("fmt", "e4m3"));
  if (type != "e4m3" && type != "float8_e4m3fn")
    return refuse(cat("8-bit floats of the kind ", quote(type)), "fmt");
  MOTLEY_TRY(const std::string activations, settings.text("activation_scheme", "dynamic"));
  if (activations != "dynamic" && activations != "static")
    return refuse(cat("activations quantised as ", quote(activations)), "activation_scheme");
  MOTLEY_TRY(const auto block, settings.block("weight_block_size"));
  MOTLEY_TRY(const std::string scales, settings.text("scale_fmt", "float"));
  if (scales != "float" && scales != "ue8m0")
    return refuse(cat("scales of the kind ", quote(scales)), "scale_fmt");

  Format format{.element = DType::f8_e4m3, .bits = 8, .input_type = DType::f8_e4m3};
  if (block) {
    if (activations == "static")
      return refuse("blocks of weights with static activations", "activation_scheme");
    if ((*block)[1] > 1024 || 1024 % (*block)[1] != 0)
      return refuse(cat("activations in blocks of ", (*block)[1]), "weight_block_size");
    format.scales = Format::Scales::block;
    format.block_rows = (*block)[0];
    format.block_columns = (*block)[1];
    format.inputs = Inputs::row_block;
    format.input_columns = (*block)[1];
    format.power_of_two_inputs = scales == "ue8m0";
  } else {
    format.scales = Format::Scales::tensor;
    format.inputs = activations == "static" ? Inputs::fixed : Inputs::row;
  }
  // Which modules stay plain is a matter of their tensors: DeepSeek's own files list none.
  std::vector<Config::Rule> rules;
  rules.push_back({ModuleList::all(), Scheme{.layout = Layout::scaled, .format = format}});
  return Config("fp8", std::move(rules));
}

}  // namespace motley::quant
