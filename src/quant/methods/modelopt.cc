// "modelopt": NVIDIA's Model Optimizer. One algorithm for all modules, or one for each.

#include <algorithm>
#include <map>
#include <set>

#include "quant/methods/methods.h"

namespace motley::quant {
namespace {

using Inputs = kernels::InputRounding::Scales;
using Scales = Format::Scales;

// What the file asks of activations and does not get.
struct Unrounded {
  bool fp4 = false;
  bool mxfp8 = false;
};

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

// The one group size that an algorithm has here.
Result<void> want_group(const Settings& settings, std::int64_t group) {
  MOTLEY_TRY(const std::int64_t stored, settings.integer("group_size", group));
  // Of algorithms without groups 0 is written.
  if (stored == group || stored == 0) return {};
  return refuse(cat("groups of ", stored, " instead of ", group), settings.place("group_size"));
}

Result<Scheme> read_scheme(const Settings& settings, std::string_view algorithm,
                           Unrounded& unrounded) {
  MOTLEY_TRY(const bool scaled_inputs, settings.flag("pre_quant_scale", false));
  if (scaled_inputs)
    return refuse("inputs that are scaled before the product", settings.place("pre_quant_scale"));
  Scheme scheme{.layout = Layout::scaled};
  Format& format = scheme.format;
  format = {.element = DType::f8_e4m3, .bits = 8, .input_type = DType::f8_e4m3};
  if (algorithm == "FP8") {
    format.scales = Scales::tensor;
    format.inputs = Inputs::fixed;
  } else if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    format.scales = Scales::channel;
    format.inputs = Inputs::row;
  } else if (algorithm == "FP8_PB_WO") {
    format.scales = Scales::block;
    format.block_rows = 128;
    format.block_columns = 128;
  } else if (algorithm == "MXFP8") {
    MOTLEY_TRY_VOID(want_group(settings, 32));
    format.scales = Scales::group;
    format.block_columns = 32;
    format.scale_type = DType::f8_e8m0;
    unrounded.mxfp8 = true;
  } else if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4") {
    MOTLEY_TRY_VOID(want_group(settings, 16));
    scheme.layout = Layout::fp4;
    scheme.stored_bits = 4;
    format = {.element = DType::f4,
              .bits = 4,
              .scales = Scales::group,
              .block_columns = 16,
              .scale_type = DType::f8_e4m3,
              .global_scale = true};
    unrounded.fp4 = unrounded.fp4 || algorithm == "NVFP4";
  } else {
    return refuse(cat("weights quantised by ", quote(algorithm)), settings.place("quant_algo"));
  }
  if (format.inputs == Inputs::none) format.input_type = Format().input_type;
  return scheme;
}

Result<ModuleList> list_of(const std::set<std::string>& names, ModuleList::Dialect dialect,
                           std::string_view where) {
  json::Array entries;
  for (const std::string& name : names) entries.emplace_back(name);
  const json::Value list(std::move(entries));
  return ModuleList::read(&list, dialect, where);
}

// Wildcards; a name without one stands for its parts too. Older exporters wrote parts of names,
// such as "vision_tower", of modules that are not read here.
Result<ModuleList> read_ignored(const Settings& settings) {
  const std::string_view key = settings.find("ignore") != nullptr ? "ignore" : "exclude_modules";
  const json::Value* const value = settings.find(key);
  std::set<std::string> patterns;
  if (value != nullptr) {
    MOTLEY_TRY(const json::Array* list, value->as_array(settings.place(key)));
    for (const json::Value& entry : *list) {
      MOTLEY_TRY(const std::string* text, entry.as_string(settings.place(key)));
      patterns.insert(*text);
      if (text->find_first_of("*?") == std::string::npos) patterns.insert(*text + ".*");
    }
  }
  return list_of(patterns, ModuleList::Dialect::wildcards, settings.place(key));
}

// Names of layers with the place of their scheme among those that occur. Experts are listed one by
// one, tens of thousands of them: a name stands for all below it where those have one scheme, so
// that a module is compared with few.
class Layers {
 public:
  void add(std::string_view name, std::size_t scheme) {
    names_.push_back(name);
    for (std::size_t end = 0; end != std::string_view::npos;) {
      end = name.find('.', end + 1);
      const auto [place, is_new] = shared_.try_emplace(name.substr(0, end), scheme);
      if (!is_new && place->second != scheme) place->second = std::nullopt;
    }
  }

  // The shortest names that stand for all layers of each scheme.
  Result<std::vector<std::set<std::string>>> shortest(std::size_t schemes) const {
    std::vector<std::set<std::string>> lists(schemes);
    for (const std::string_view name : names_) {
      std::optional<std::size_t> scheme;
      std::size_t end = 0;
      while (!scheme && end != std::string_view::npos) {
        end = name.find('.', end + 1);
        scheme = shared_.at(name.substr(0, end));
      }
      if (!scheme)
        return bad_setting(cat(quote(name), " and a part of it have different algorithms"),
                           "quantized_layers", "list the parts only");
      lists[*scheme].insert(std::string(name.substr(0, end)));
    }
    return lists;
  }

 private:
  std::vector<std::string_view> names_;
  std::map<std::string_view, std::optional<std::size_t>> shared_;  // nothing where they differ
};

// Each layer has an algorithm of its own; those that are not listed stay plain.
Result<std::vector<Config::Rule>> read_layers(const Settings& settings, Unrounded& unrounded) {
  const std::string where = settings.place("quantized_layers");
  const json::Value* const value = settings.find("quantized_layers");
  if (value == nullptr)
    return bad_setting("no quantized_layers", where, "say which layers are quantised, and how");
  MOTLEY_TRY(const json::Object* object, value->as_object(where));
  std::vector<Scheme> schemes;
  Layers layers;
  for (const json::Member& member : object->members()) {
    const std::string place = cat(where, ".", printable(member.key));
    MOTLEY_TRY(const json::Object* layer, member.value.as_object(place));
    const Settings of_layer{*layer, place + "."};
    MOTLEY_TRY(const std::string algorithm, of_layer.text("quant_algo", ""));
    MOTLEY_TRY(const Scheme scheme, read_scheme(of_layer, upper(algorithm), unrounded));
    const auto known = std::ranges::find(schemes, scheme);
    layers.add(member.key, static_cast<std::size_t>(known - schemes.begin()));
    if (known == schemes.end()) schemes.push_back(scheme);
  }
  MOTLEY_TRY(const auto lists, layers.shortest(schemes.size()));
  std::vector<Config::Rule> rules;
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    MOTLEY_TRY(ModuleList modules, list_of(lists[i], ModuleList::Dialect::names, where));
    rules.push_back({std::move(modules), schemes[i]});
  }
  return rules;
}

Result<std::vector<Config::Rule>> read_rules(const Settings& settings, Unrounded& unrounded) {
  std::vector<Config::Rule> rules;
  MOTLEY_TRY(const std::string name, settings.text("quant_algo", ""));
  const std::string algorithm = upper(name);
  if (algorithm == "MIXED_PRECISION") return read_layers(settings, unrounded);
  if (algorithm.empty()) {
    // Without an algorithm only keys and values are quantised; they stay exact here.
    for (const std::string_view key : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
      if (settings.find(key) != nullptr) return rules;
    }
    return bad_setting("no quant_algo", settings.place("quant_algo"),
                       "name the algorithm, such as FP8 or NVFP4");
  }
  MOTLEY_TRY(const Scheme scheme, read_scheme(settings, algorithm, unrounded));
  rules.push_back({ModuleList::all(), scheme});
  return rules;
}

}  // namespace

Result<Config> read_modelopt(const json::Object& quantization) {
  // hf_quant_config.json keeps the same settings one level deeper.
  const json::Object* object = &quantization;
  std::string where;
  if (const json::Value* const nested = quantization.find_set("quantization")) {
    where = "quantization.";
    MOTLEY_TRY(object, nested->as_object("quantization"));
  }
  const Settings settings{*object, where};
  MOTLEY_TRY(ModuleList ignored, read_ignored(settings));
  Unrounded unrounded;
  MOTLEY_TRY(std::vector<Config::Rule> rules, read_rules(settings, unrounded));
  Config config("modelopt", std::move(rules), std::move(ignored));
  if (unrounded.fp4)
    config.add_remark("activations of 4 bits are asked for; they stay unquantised");
  if (unrounded.mxfp8)
    config.add_remark("activations of 8 bits in groups of 32 are asked for; they stay unquantised");
  return config;
}

}  // namespace motley::quant
