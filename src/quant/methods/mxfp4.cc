// "mxfp4": gpt-oss, whose experts lie in blocks of their own (model/weights/load_experts.cc).

#include "quant/methods/methods.h"

namespace motley::quant {

Result<Config> read_mxfp4(const json::Object& quantization) {
  const Settings settings{quantization};
  MOTLEY_TRY(ModuleList plain,
             ModuleList::read(settings.find("modules_to_not_convert"),
                              ModuleList::Dialect::wildcards, "modules_to_not_convert"));
  const Format format{.element = DType::f4,
                      .bits = 4,
                      .scales = Format::Scales::group,
                      .block_columns = 32,
                      .scale_type = DType::f8_e8m0};
  std::vector<Config::Rule> rules;
  rules.push_back(
      {ModuleList::all(), Scheme{.layout = Layout::fp4, .format = format, .stored_bits = 4}});
  return Config("mxfp4", std::move(rules), std::move(plain));
}

}  // namespace motley::quant
