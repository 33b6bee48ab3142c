#include "quant/config.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "base/system/files.h"
#include "quant/methods/methods.h"

namespace motley::quant {
namespace {

using Inputs = kernels::InputRounding::Scales;

struct Method {
  std::string_view name;
  Result<Config> (*read)(const json::Object& quantization);
};

constexpr std::array methods{
    Method{"compressed-tensors", read_compressed_tensors},
    Method{"fp8", read_fp8},
    Method{"gptq", read_gptq},
    Method{"awq", read_awq},
    Method{"mxfp4", read_mxfp4},
    Method{"modelopt", read_modelopt},
};

// The object that holds the configuration; null where nothing is quantised.
const json::Value* find_quantization(const json::Object& config) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (const json::Value* value = config.find_set(key)) return value;
  }
  const json::Value* const text = config.find_set("text_config");
  if (text == nullptr || text->if_object() == nullptr) return nullptr;
  return text->if_object()->find_set("quantization_config");
}

}  // namespace

Result<Config> Config::read(const json::Object& config) {
  const json::Value* const value = find_quantization(config);
  if (value == nullptr) return Config();
  MOTLEY_TRY(const json::Object* quantization, value->as_object("quantization_config"));
  const json::Value* const method_value = quantization->find_set("quant_method");
  if (method_value == nullptr)
    return Error(ErrorCode::bad_file, "no quant_method", "quantization_config",
                 "name the method, such as compressed-tensors or fp8");
  MOTLEY_TRY(const std::string* method, method_value->as_string("quant_method"));
  const auto* const known = std::ranges::find(methods, *method, &Method::name);
  if (known != methods.end()) return known->read(*quantization);
  std::vector<std::string> names;
  for (const Method& each : methods) names.emplace_back(each.name);
  return Error(ErrorCode::unsupported,
               cat("weights quantised by ", quote(*method), " can't be read"),
               "quantization_config, quant_method",
               cat("use the model's unquantised checkpoint, or one of ", join(names)));
}

namespace {

constexpr std::uint64_t longest_file = std::uint64_t{64} << 20;

// A file beside config.json, and the method whose configuration it holds.
struct OlderFile {
  std::string_view name;
  std::string_view inside;  // the key that holds it; empty: the whole file
  Result<Config> (*read)(const json::Object& quantization);
};

constexpr std::array older_files{
    OlderFile{"hf_quant_config.json", "quantization", read_modelopt},
    OlderFile{"quantize_config.json", "", read_gptq},
    OlderFile{"quant_config.json", "", read_awq},
};

Result<Config> read_older(const OlderFile& file, const std::filesystem::path& path) {
  MOTLEY_TRY(const std::string text, read_text(path, longest_file));
  auto parsed = json::parse(text, printable(path.string()));
  if (!parsed.ok()) return std::move(parsed).error().as(ErrorCode::bad_file);
  MOTLEY_TRY(const json::Object* object, parsed->as_object(file.name));
  if (!file.inside.empty()) {
    const json::Value* const inner = object->find_set(file.inside);
    if (inner == nullptr)
      return Error(ErrorCode::bad_file, cat("no ", file.inside), std::string(file.name),
                   "download the checkpoint again");
    MOTLEY_TRY(object, inner->as_object(file.inside));
  }
  auto config = file.read(*object);
  if (!config.ok()) return std::move(config).error().within(printable(path.string()));
  return config;
}

}  // namespace

Result<Config> Config::read(const json::Object& config, const std::filesystem::path& folder) {
  if (find_quantization(config) != nullptr) return read(config);
  for (const OlderFile& file : older_files) {
    const std::filesystem::path path = folder / file.name;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return read_older(file, path);
  }
  return Config();
}

std::optional<Scheme> Config::scheme_of(std::string_view module) const {
  if (ignored_.has(module)) return std::nullopt;
  std::optional<ModuleList::Match> best;
  std::optional<Scheme> scheme;
  for (const Rule& rule : rules_) {
    const std::optional<ModuleList::Match> match = rule.modules.match(module);
    if (!match || (best && *best < *match)) continue;
    if (order_ == Order::first) return rule.scheme;
    best = match;
    scheme = rule.scheme;
  }
  return scheme;
}

void Config::keep_inputs_exact() {
  for (Rule& rule : rules_) {
    if (rule.scheme) rule.scheme->format.keep_inputs_exact();
  }
}

bool Config::rounds_inputs() const {
  return std::ranges::any_of(rules_, [](const Rule& rule) {
    return rule.scheme && rule.scheme->format.inputs != Inputs::none;
  });
}

}  // namespace motley::quant
