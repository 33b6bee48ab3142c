// "gptq": what AutoGPTQ and GPTQModel write. One setting for all modules, and patterns of names
// with settings of their own.

#include <algorithm>

#include "quant/methods/methods.h"

namespace motley::quant {
namespace {

using Scales = Format::Scales;

// What may differ from module to module.
struct Arguments {
  std::int64_t bits = 0;
  std::int64_t group = 128;
  bool input_order = false;
  bool symmetric = true;
};

// Those of an object; `otherwise` where it lacks them.
Result<Arguments> read_arguments(const Settings& settings, const Arguments& otherwise) {
  Arguments arguments;
  MOTLEY_TRY(arguments.bits, settings.integer("bits", otherwise.bits));
  if (arguments.bits == 0)
    return bad_setting("no bits", settings.place("bits"), "say how many bits a weight has");
  constexpr std::array readable{2, 3, 4, 8};
  if (std::ranges::find(readable, arguments.bits) == readable.end())
    return refuse(cat("weights of ", arguments.bits, " bits"), settings.place("bits"));
  MOTLEY_TRY(arguments.group, settings.integer("group_size", otherwise.group));
  if (arguments.group != -1 && arguments.group < 1)
    return bad_setting(cat("groups of ", arguments.group), settings.place("group_size"),
                       "give the inputs that share a scale, or -1 for all of a row");
  MOTLEY_TRY(arguments.input_order, settings.flag("desc_act", otherwise.input_order));
  MOTLEY_TRY(arguments.symmetric, settings.flag("sym", otherwise.symmetric));
  MOTLEY_TRY(const std::string words, settings.text("pack_dtype", "int32"));
  if (words != "int32" && words != "torch.int32")
    return refuse(cat("codes packed into ", quote(words)), settings.place("pack_dtype"));
  return arguments;
}

Scheme scheme_of(const Arguments& arguments, Layout layout) {
  const bool grouped = arguments.group > 0;
  const Format format{.element = DType::i8,
                      .bits = arguments.bits <= 4 ? 4 : 8,
                      .scales = grouped ? Scales::group : Scales::channel,
                      .block_columns = grouped ? arguments.group : 0,
                      .scale_type = DType::f16,
                      .zero_points = !arguments.symmetric,
                      .input_order = grouped && arguments.input_order};
  return {.layout = layout, .format = format, .stored_bits = static_cast<int>(arguments.bits)};
}

// Where the words lie is a matter of the format's name. Both keys occur; GPTQModel lets the first
// one count.
Result<Layout> read_layout(const Settings& settings) {
  MOTLEY_TRY(const std::string name, settings.text("format", "gptq"));
  MOTLEY_TRY(const std::string format, settings.text("checkpoint_format", name));
  const std::string_view key =
      settings.find("checkpoint_format") != nullptr ? "checkpoint_format" : "format";
  MOTLEY_TRY(const bool marlin, settings.flag("is_marlin_format", false));
  if (marlin) return refuse("weights in the order of Marlin's kernels", "is_marlin_format");
  if (format == "gptq") return Layout::gptq;
  if (format == "gptq_v2") return Layout::gptq_v2;
  return refuse(cat("weights stored as ", quote(format)), key);
}

constexpr std::string_view not_quantised = "-:";

Result<Config::Rule> read_override(const json::Member& member, const Arguments& otherwise,
                                   Layout layout) {
  std::string_view pattern = member.key;
  const bool plain = pattern.starts_with(not_quantised);
  if (plain || pattern.starts_with("+:")) pattern.remove_prefix(2);
  const json::Value list(json::Array{json::Value(cat("re:", pattern))});
  const std::string where = cat("dynamic.", printable(member.key));
  MOTLEY_TRY(ModuleList modules,
             ModuleList::read(&list, ModuleList::Dialect::compressed_tensors, where));
  if (plain) return Config::Rule{std::move(modules), std::nullopt};
  MOTLEY_TRY(const json::Object* object, member.value.as_object(where));
  MOTLEY_TRY(const Arguments arguments, read_arguments({*object, where + "."}, otherwise));
  return Config::Rule{std::move(modules), scheme_of(arguments, layout)};
}

// The first pattern that matches a module counts; those that leave modules plain come before all
// others, whatever their place in the file.
Result<std::vector<Config::Rule>> read_overrides(const Settings& settings,
                                                 const Arguments& otherwise, Layout layout) {
  std::vector<Config::Rule> rules;
  const json::Value* const value = settings.find("dynamic");
  if (value == nullptr) return rules;
  MOTLEY_TRY(const json::Object* dynamic, value->as_object("dynamic"));
  for (const bool plain : {true, false}) {
    for (const json::Member& member : dynamic->members()) {
      if (member.key.starts_with(not_quantised) != plain) continue;
      MOTLEY_TRY(Config::Rule rule, read_override(member, otherwise, layout));
      rules.push_back(std::move(rule));
    }
  }
  return rules;
}

}  // namespace

Result<Config> read_gptq(const json::Object& quantization) {
  const Settings settings{quantization};
  MOTLEY_TRY(const Layout layout, read_layout(settings));
  if (settings.find("rotation") != nullptr)
    return refuse("weights behind a rotation of their inputs", "rotation");
  MOTLEY_TRY(const Arguments arguments, read_arguments(settings, {}));
  MOTLEY_TRY(std::vector<Config::Rule> rules, read_overrides(settings, arguments, layout));
  // Which modules stay plain is a matter of their tensors, lm_head's too.
  rules.push_back({ModuleList::all(), scheme_of(arguments, layout)});
  return Config("gptq", std::move(rules), {}, Config::Order::first);
}

}  // namespace motley::quant
