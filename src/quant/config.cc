#include "quant/config.h"

#include <array>
#include <compare>

#include "base/cat.h"
#include "base/name_pattern.h"

namespace motley::quant {
namespace {

constexpr std::string_view supported_now =
    "supported are compressed-tensors pack-quantized (4 bit, symmetric, group 32, 64 or 128) and "
    "fp8 "
    "with weight_block_size";

Error refuse(std::string what, std::string_view where) {
  return {ErrorCode::unsupported, std::move(what), cat("quantization_config, ", where),
          std::string(supported_now)};
}

}  // namespace

// Module names as compressed-tensors matches them: an exact name, "re:" and a pattern that must
// match from the start, or a class; every weight that is loaded here is a Linear.
class Config::Matcher {
 public:
  enum class Kind : std::uint8_t { name, pattern, linear };

  // Of several targets that match a module the least one counts: a name before a pattern before a
  // class, patterns by their text.
  struct Match {
    Kind kind;
    std::string_view text;

    friend auto operator<=>(const Match&, const Match&) = default;
  };

  static Result<std::shared_ptr<const Matcher>> read(const json::Value* list,
                                                     std::string_view where) {
    auto matcher = std::make_shared<Matcher>();
    if (list == nullptr) return std::shared_ptr<const Matcher>(std::move(matcher));
    MOTLEY_TRY(const json::Array* entries, list->as_array(where));
    for (const json::Value& entry : *entries) {
      MOTLEY_TRY(const std::string* text, entry.as_string(where));
      MOTLEY_TRY_VOID(matcher->add(*text, where));
    }
    return std::shared_ptr<const Matcher>(std::move(matcher));
  }

  std::optional<Match> match(std::string_view module) const {
    std::optional<Match> best;
    for (const Target& target : targets_) {
      const Match match{target.kind, target.text};
      if (target.matches(module) && (!best || match < *best)) best = match;
    }
    return best;
  }

 private:
  struct Target {
    Kind kind;
    std::string text;
    NamePattern pattern = {};

    bool matches(std::string_view module) const {
      switch (kind) {
        case Kind::name:
          return text == module;
        case Kind::pattern:
          return pattern.matches_start(module);
        case Kind::linear:
          return true;
      }
      return false;
    }
  };

  Result<void> add(const std::string& text, std::string_view where) {
    if (!text.starts_with("re:")) {
      targets_.push_back({.kind = text == "Linear" ? Kind::linear : Kind::name, .text = text});
      return {};
    }
    auto pattern = NamePattern::compile(std::string_view(text).substr(3));
    if (!pattern.ok())
      return std::move(pattern).error().within(cat("quantization_config, ", where));
    targets_.push_back({.kind = Kind::pattern, .text = text, .pattern = *std::move(pattern)});
    return {};
  }

  std::vector<Target> targets_;
};

Result<Config> Config::read(const json::Object& config) {
  const json::Value* value = config.find_set("quantization_config");
  if (value == nullptr) value = config.find_set("compression_config");
  if (value == nullptr) {
    if (const json::Value* text = config.find_set("text_config");
        text != nullptr && text->if_object() != nullptr) {
      value = text->if_object()->find_set("quantization_config");
    }
  }
  if (value == nullptr) return Config();
  MOTLEY_TRY(const json::Object* quantization, value->as_object("quantization_config"));
  const json::Value* method_value = quantization->find_set("quant_method");
  if (method_value == nullptr)
    return Error(ErrorCode::bad_file, "no quant_method", "quantization_config",
                 "name the method, such as compressed-tensors or fp8");
  MOTLEY_TRY(const std::string* method, method_value->as_string("quant_method"));
  if (*method == "compressed-tensors") return read_compressed_tensors(*quantization);
  if (*method == "fp8") return read_fp8(*quantization);
  return refuse(cat("weights quantised by ", quote(*method), " can't be read"), "quant_method");
}

Result<Config> Config::read_fp8(const json::Object& quantization) {
  if (const json::Value* format = quantization.find_set("fmt"); format != nullptr) {
    MOTLEY_TRY(const std::string* text, format->as_string("fmt"));
    if (*text != "e4m3" && *text != "float8_e4m3fn")
      return refuse(cat("8-bit floats of the kind ", quote(*text)), "fmt");
  }
  if (const json::Value* scheme = quantization.find_set("activation_scheme"); scheme != nullptr) {
    MOTLEY_TRY(const std::string* text, scheme->as_string("activation_scheme"));
    // Activations keep their own type here, so only scales that a file must hold would matter.
    if (*text != "dynamic")
      return refuse(cat("activations quantised as ", quote(*text)), "activation_scheme");
  }
  const json::Value* block = quantization.find_set("weight_block_size");
  if (block == nullptr) return refuse("one scale for a whole tensor", "weight_block_size");
  MOTLEY_TRY(const json::Array* sizes, block->as_array("weight_block_size"));
  if (sizes->size() != 2)
    return Error(ErrorCode::bad_file, cat(sizes->size(), " numbers"),
                 "quantization_config, weight_block_size", "give rows and columns of a block");
  std::array<std::int64_t, 2> lengths{};
  for (std::size_t i = 0; i < 2; ++i) {
    MOTLEY_TRY(lengths[i], (*sizes)[i].as_integer("weight_block_size"));
    if (lengths[i] < 1 || lengths[i] > 1'000'000)
      return Error(ErrorCode::bad_file, cat("blocks of length ", lengths[i]),
                   "quantization_config, weight_block_size", "lengths are 1 to 1000000");
  }
  Config config;
  config.method_ = Method::fp8;
  auto every = json::Value(json::Array{json::Value("Linear")});
  MOTLEY_TRY(auto targets, Matcher::read(&every, "targets"));
  config.groups_.push_back({std::move(targets),
                            {.element = DType::f8_e4m3,
                             .bits = 8,
                             .scales = Format::Scales::block,
                             .block_rows = lengths[0],
                             .block_columns = lengths[1]}});
  return config;
}

namespace {

// The one format of weights that is read: 4 bits, symmetric, groups of columns.
Result<Format> read_packed_weights(const json::Object& weights, std::string_view where) {
  const auto place = [&](std::string_view key) { return cat(where, ".weights.", key); };
  std::string type = "int";
  if (const json::Value* value = weights.find_set("type"); value != nullptr) {
    MOTLEY_TRY(const std::string* text, value->as_string(place("type")));
    type = *text;
  }
  if (type != "int") return refuse(cat("weights of type ", quote(type)), place("type"));
  std::int64_t bits = 8;
  if (const json::Value* value = weights.find_set("num_bits"); value != nullptr) {
    MOTLEY_TRY(bits, value->as_integer(place("num_bits")));
  }
  if (bits != 4) return refuse(cat("weights of ", bits, " bits"), place("num_bits"));
  if (const json::Value* value = weights.find_set("symmetric"); value != nullptr) {
    MOTLEY_TRY(const bool symmetric, value->as_boolean(place("symmetric")));
    if (!symmetric) return refuse("weights with zero points", place("symmetric"));
  }
  if (const json::Value* value = weights.find_set("strategy"); value != nullptr) {
    MOTLEY_TRY(const std::string* text, value->as_string(place("strategy")));
    if (*text != "group") return refuse(cat("scales by ", quote(*text)), place("strategy"));
  }
  if (const json::Value* value = weights.find_set("actorder"); value != nullptr) {
    // Older files say true for "group".
    const std::string* text = value->if_string();
    const bool* flag = value->if_boolean();
    const bool in_place = (text != nullptr && (*text == "weight" || *text == "static")) ||
                          (flag != nullptr && !*flag);
    if (!in_place) return refuse("columns in an order of their own", place("actorder"));
  }
  const json::Value* value = weights.find_set("group_size");
  if (value == nullptr) return refuse("no group_size", place("group_size"));
  MOTLEY_TRY(const std::int64_t group, value->as_integer(place("group_size")));
  if (group != 32 && group != 64 && group != 128)
    return refuse(cat("groups of ", group), place("group_size"));
  return Format{.element = DType::i8,
                .bits = 4,
                .scales = Format::Scales::group,
                .block_rows = 1,
                .block_columns = group};
}

}  // namespace

Result<Config> Config::read_compressed_tensors(const json::Object& quantization) {
  std::string top_format;
  if (const json::Value* value = quantization.find_set("format"); value != nullptr) {
    MOTLEY_TRY(const std::string* text, value->as_string("format"));
    top_format = *text;
  }
  if (const json::Value* value = quantization.find_set("quantization_status"); value != nullptr) {
    MOTLEY_TRY(const std::string* text, value->as_string("quantization_status"));
    if (*text != "compressed")
      return refuse(cat("weights in the state ", quote(*text)), "quantization_status");
  }
  if (quantization.find_set("kv_cache_scheme") != nullptr)
    return refuse("quantised keys and values", "kv_cache_scheme");
  if (const json::Value* value = quantization.find_set("sparsity_config"); value != nullptr) {
    const json::Object* sparsity = value->if_object();
    const json::Value* format = sparsity == nullptr ? nullptr : sparsity->find_set("format");
    const std::string* text = format == nullptr ? nullptr : format->if_string();
    const bool dense = sparsity != nullptr && (sparsity->empty() || (text && *text == "dense"));
    if (!dense) return refuse("sparse weights", "sparsity_config");
  }
  if (quantization.find_set("transform_config") != nullptr) {
    const json::Object* transforms = quantization.find_set("transform_config")->if_object();
    if (transforms == nullptr || !transforms->empty())
      return refuse("weights behind a transform", "transform_config");
  }

  Config config;
  config.method_ = Method::compressed_tensors;
  MOTLEY_TRY(config.ignore_, Matcher::read(quantization.find_set("ignore"), "ignore"));
  const json::Value* groups_value = quantization.find_set("config_groups");
  if (groups_value == nullptr)
    return Error(ErrorCode::bad_file, "no config_groups", "quantization_config",
                 "say which modules are quantised, and how");
  MOTLEY_TRY(const json::Object* groups, groups_value->as_object("config_groups"));
  for (const json::Member& member : groups->members()) {
    const std::string where = cat("config_groups.", printable(member.key));
    MOTLEY_TRY(const json::Object* group, member.value.as_object(where));
    std::string format = top_format;
    if (const json::Value* value = group->find_set("format"); value != nullptr) {
      MOTLEY_TRY(const std::string* text, value->as_string(where));
      format = *text;
    }
    if (format != "pack-quantized")
      return refuse(cat("weights stored as ", quote(format)), cat(where, ".format"));
    for (const std::string_view key : {"input_activations", "output_activations"}) {
      if (group->find_set(key) != nullptr)
        return refuse("quantised activations", cat(where, ".", key));
    }
    const json::Value* weights_value = group->find_set("weights");
    if (weights_value == nullptr) return refuse("a group without weights", where);
    MOTLEY_TRY(const json::Object* weights, weights_value->as_object(where));
    Group read;
    MOTLEY_TRY(read.format, read_packed_weights(*weights, where));
    MOTLEY_TRY(read.targets, Matcher::read(group->find_set("targets"), cat(where, ".targets")));
    config.groups_.push_back(std::move(read));
  }
  return config;
}

std::optional<Format> Config::format_of(std::string_view module) const {
  if (ignore_ != nullptr && ignore_->match(module)) return std::nullopt;
  std::optional<Matcher::Match> best;
  std::optional<Format> format;
  for (const Group& group : groups_) {
    const std::optional<Matcher::Match> match = group.targets->match(module);
    // Of two groups with one and the same target the later counts.
    if (!match || (best && *best < *match)) continue;
    best = match;
    format = group.format;
  }
  return format;
}

std::string_view Config::method_name() const {
  switch (method_) {
    case Method::none:
      return "none";
    case Method::compressed_tensors:
      return "compressed-tensors";
    case Method::fp8:
      return "fp8";
  }
  return "none";
}

}  // namespace motley::quant
