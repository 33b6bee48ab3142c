// "compressed-tensors": what llm-compressor writes. Groups of modules, each with arguments for
// weights and activations.

#include "quant/methods/methods.h"

namespace motley::quant {
namespace {

using Inputs = kernels::InputRounding::Scales;
using Scales = Format::Scales;

// The arguments of weights, or of activations.
struct Arguments {
  std::string type;  // "int" or "float"
  std::int64_t bits = 8;
  bool symmetric = true;
  std::string strategy;  // "tensor", "channel", "group", "block", "token", "tensor_group"; or empty
  std::int64_t group = 0;
  std::array<std::int64_t, 2> block{};
  bool dynamic = false;
  bool input_order = false;
};

// The order of columns when they were quantised: of "group" an index is stored.
Result<bool> read_input_order(const Settings& settings) {
  const json::Value* const value = settings.find("actorder");
  if (value == nullptr) return false;
  if (const bool* const flag = value->if_boolean()) return *flag;  // older files
  MOTLEY_TRY(const std::string* order, value->as_string(settings.place("actorder")));
  if (*order == "group" || *order == "dynamic") return true;
  if (*order == "weight" || *order == "static") return false;
  return refuse(cat("columns in the order ", quote(*order)), settings.place("actorder"));
}

// A scale for each input of a token, for a token, or once and for all.
Result<bool> read_dynamic(const Settings& settings) {
  const json::Value* const value = settings.find("dynamic");
  if (value == nullptr) return false;
  if (const bool* const flag = value->if_boolean()) return *flag;
  MOTLEY_TRY(const std::string* text, value->as_string(settings.place("dynamic")));
  if (*text == "local") return true;  // of FP4, whose activations are left as they are
  return refuse(cat("scales that are ", quote(*text)), settings.place("dynamic"));
}

Result<Arguments> read_arguments(const json::Value& value, const std::string& where) {
  MOTLEY_TRY(const json::Object* object, value.as_object(where));
  const Settings settings{*object, where + "."};
  Arguments arguments;
  MOTLEY_TRY(arguments.type, settings.text("type", "int"));
  if (arguments.type != "int" && arguments.type != "float")
    return refuse(cat("numbers of type ", quote(arguments.type)), settings.place("type"));
  MOTLEY_TRY(arguments.bits, settings.integer("num_bits", 8));
  MOTLEY_TRY(arguments.symmetric, settings.flag("symmetric", true));
  MOTLEY_TRY(arguments.group, settings.integer("group_size", 0));
  MOTLEY_TRY(const auto block, settings.block("block_structure"));
  if (block) arguments.block = *block;
  // As compressed-tensors does where the strategy is left out.
  const bool grouped = arguments.group > 0;
  MOTLEY_TRY(arguments.strategy, settings.text("strategy", grouped               ? "group"
                                                           : arguments.group < 0 ? "channel"
                                                                                 : "tensor"));
  MOTLEY_TRY(arguments.dynamic, read_dynamic(settings));
  MOTLEY_TRY(arguments.input_order, read_input_order(settings));
  return arguments;
}

Result<void> put_scales(const Arguments& arguments, const std::string& where, Format& format) {
  const std::string& strategy = arguments.strategy;
  if (strategy == "tensor") {
    format.scales = Scales::tensor;
  } else if (strategy == "channel") {
    format.scales = Scales::channel;
  } else if (strategy == "group" || strategy == "tensor_group") {
    if (arguments.group <= 0)
      return bad_setting("no group_size", where + ".group_size",
                         "say how many inputs share a scale");
    format.scales = Scales::group;
    format.block_columns = arguments.group;
  } else if (strategy == "block") {
    if (arguments.block[0] == 0)
      return bad_setting("no block_structure", where + ".block_structure",
                         "give rows and columns of a block");
    format.scales = Scales::block;
    format.block_rows = arguments.block[0];
    format.block_columns = arguments.block[1];
  } else {
    return refuse(cat("weights' scales by ", quote(strategy)), where + ".strategy");
  }
  return {};
}

// How activations of eight bits are rounded.
Result<void> put_inputs(const Arguments& arguments, const std::string& where, Format& format) {
  const DType type = arguments.type == "int" ? DType::i8 : DType::f8_e4m3;
  if (arguments.bits != 8 || type != format.element)
    return refuse(cat("activations of ", arguments.bits, " bits (", arguments.type, ")"),
                  where + ".num_bits");
  format.input_type = type;
  if (!arguments.dynamic) {
    if (arguments.strategy != "tensor")
      return refuse(cat("static activations' scales by ", quote(arguments.strategy)),
                    where + ".strategy");
    format.inputs = Inputs::fixed;
    return {};
  }
  if (!arguments.symmetric)
    return refuse("dynamic activations with zero points", where + ".symmetric");
  if (arguments.strategy == "group") {
    if (arguments.group <= 0 || arguments.group > 1024 || 1024 % arguments.group != 0)
      return refuse(cat("activations in groups of ", arguments.group), where + ".group_size");
    format.inputs = Inputs::row_block;
    format.input_columns = arguments.group;
    return {};
  }
  // "tensor" would tie a row to its neighbours; engines that serve such files take rows apart too.
  format.inputs = Inputs::row;
  return {};
}

// The bits of integers as kernels hold them.
int held_bits(std::int64_t stored) { return stored <= 4 ? 4 : 8; }

Result<Scheme> read_scheme(const std::string& layout, const Arguments& weights,
                           const std::string& where) {
  const std::string of_weights = where + ".weights";
  Scheme scheme;
  Format& format = scheme.format;
  MOTLEY_TRY_VOID(put_scales(weights, of_weights, format));
  const auto want = [&](std::string_view type, std::int64_t least,
                        std::int64_t most) -> Result<void> {
    if (weights.type == type && weights.bits >= least && weights.bits <= most) return {};
    return refuse(
        cat("weights of ", weights.bits, " bits (", weights.type, ") stored as ", quote(layout)),
        of_weights);
  };
  scheme.stored_bits = static_cast<int>(weights.bits);
  if (layout == "pack-quantized") {
    MOTLEY_TRY_VOID(want("int", 1, 8));
    scheme.layout = Layout::packed;
    format.element = DType::i8;
    format.bits = held_bits(weights.bits);
    format.zero_points = !weights.symmetric;
    format.input_order = weights.input_order;
  } else if (layout == "float-quantized" || layout == "mxfp8-quantized") {
    MOTLEY_TRY_VOID(want("float", 8, 8));
    format.element = DType::f8_e4m3;
    format.bits = 8;
    if (layout == "mxfp8-quantized") format.scale_type = DType::f8_e8m0;
  } else if (layout == "int-quantized") {
    MOTLEY_TRY_VOID(want("int", 8, 8));
    format.element = DType::i8;
    format.bits = 8;
    format.zero_points = !weights.symmetric;
  } else if (layout == "nvfp4-pack-quantized" || layout == "mxfp4-pack-quantized") {
    MOTLEY_TRY_VOID(want("float", 4, 4));
    scheme.layout = Layout::fp4;
    format.element = DType::f4;
    format.bits = 4;
    format.global_scale = layout == "nvfp4-pack-quantized";
    format.scale_type = format.global_scale ? DType::f8_e4m3 : DType::f8_e8m0;
    format.block_columns = format.global_scale ? 16 : 32;
  } else {
    return refuse(cat("weights stored as ", quote(layout)), where + ".format");
  }
  return scheme;
}

// "naive-quantized" is the older name of what the numbers' type says.
std::string layout_of(const std::string& format, const Arguments& weights) {
  if (format != "naive-quantized") return format;
  return weights.type == "int" ? "int-quantized" : "float-quantized";
}

Result<Config::Rule> read_group(const json::Value& value, const std::string& where,
                                const std::string& top_format, bool& leaves_inputs) {
  MOTLEY_TRY(const json::Object* group, value.as_object(where));
  const Settings settings{*group, where + "."};
  const json::Value* const weights_value = settings.find("weights");
  if (weights_value == nullptr) return refuse("a group without weights", where);
  MOTLEY_TRY(const Arguments weights, read_arguments(*weights_value, where + ".weights"));
  MOTLEY_TRY(const std::string format, settings.text("format", top_format));
  MOTLEY_TRY(Scheme scheme, read_scheme(layout_of(format, weights), weights, where));
  if (settings.find("output_activations") != nullptr)
    return refuse("quantised outputs", settings.place("output_activations"));
  if (const json::Value* const inputs = settings.find("input_activations")) {
    MOTLEY_TRY(const Arguments arguments, read_arguments(*inputs, where + ".input_activations"));
    const bool mxfp8 = format == "mxfp8-quantized";
    if (scheme.format.element == DType::f4 || mxfp8) {
      leaves_inputs = true;
    } else {
      MOTLEY_TRY_VOID(put_inputs(arguments, where + ".input_activations", scheme.format));
    }
  }
  MOTLEY_TRY(ModuleList targets,
             ModuleList::read(settings.find("targets"), ModuleList::Dialect::compressed_tensors,
                              settings.place("targets")));
  return Config::Rule{std::move(targets), scheme};
}

Result<void> refuse_transforms(const Settings& settings) {
  MOTLEY_TRY(const std::string status, settings.text("quantization_status", "compressed"));
  if (status != "compressed")
    return refuse(cat("weights in the state ", quote(status)), "quantization_status");
  if (const json::Value* value = settings.find("sparsity_config"); value != nullptr) {
    const json::Object* sparsity = value->if_object();
    const json::Value* format = sparsity == nullptr ? nullptr : sparsity->find_set("format");
    const std::string* text = format == nullptr ? nullptr : format->if_string();
    const bool dense = sparsity != nullptr && (sparsity->empty() || (text && *text == "dense"));
    if (!dense) return refuse("sparse weights", "sparsity_config");
  }
  if (const json::Value* value = settings.find("transform_config"); value != nullptr) {
    const json::Object* transforms = value->if_object();
    if (transforms == nullptr || !transforms->empty())
      return refuse("weights behind a transform", "transform_config");
  }
  return {};
}

}  // namespace

Result<Config> read_compressed_tensors(const json::Object& quantization) {
  const Settings settings{quantization};
  MOTLEY_TRY_VOID(refuse_transforms(settings));
  MOTLEY_TRY(const std::string format, settings.text("format", ""));
  MOTLEY_TRY(
      ModuleList ignored,
      ModuleList::read(settings.find("ignore"), ModuleList::Dialect::compressed_tensors, "ignore"));
  const json::Value* const groups = settings.find("config_groups");
  if (groups == nullptr)
    return bad_setting("no config_groups", "config_groups",
                       "say which modules are quantised, and how");
  MOTLEY_TRY(const json::Object* object, groups->as_object("config_groups"));
  std::vector<Config::Rule> rules;
  bool leaves_inputs = false;
  for (const json::Member& member : object->members()) {
    const std::string where = cat("config_groups.", printable(member.key));
    MOTLEY_TRY(Config::Rule rule, read_group(member.value, where, format, leaves_inputs));
    rules.push_back(std::move(rule));
  }
  Config config("compressed-tensors", std::move(rules), std::move(ignored));
  if (leaves_inputs)
    config.add_remark("activations of 4 bits are asked for; they stay unquantised");
  return config;
}

}  // namespace motley::quant
