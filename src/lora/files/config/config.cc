#include "lora/files/config/config.h"

#include <cmath>

#include "base/cat.h"
#include "base/json/json.h"
#include "lora/files/adapter.h"

namespace motley::lora {

namespace {

// Budget for the patterns of a whole load: besides reading files, a load takes less than a second
// of processor time.
constexpr std::uint64_t match_steps = 100'000'000;
constexpr std::size_t max_parameters = 4096;

// The configuration's object, with what error messages need.
class Reader {
 public:
  Reader(const json::Object& object, std::string_view where) : object_(object), where_(where) {}

  const json::Value* find(std::string_view key) const { return object_.find_set(key); }
  std::string place(std::string_view key) const { return cat(where_, ", ", key); }
  Error unsupported(std::string_view key, std::string_view what, std::string_view fix = {}) const {
    return Error(ErrorCode::unsupported, std::string(what), place(key), std::string(fix));
  }
  Error bad(std::string_view key, std::string_view what) const {
    return Error(ErrorCode::bad_file, std::string(what), place(key));
  }

  Result<bool> flag(std::string_view key) const {
    const json::Value* value = find(key);
    if (value == nullptr) return false;
    auto result = value->as_boolean(place(key));
    if (!result.ok()) return std::move(result).error().as(ErrorCode::bad_file);
    return *result;
  }
  Result<std::string> text(std::string_view key) const {
    const json::Value* value = find(key);
    if (value == nullptr) return std::string();
    auto result = value->as_string(place(key));
    if (!result.ok()) return std::move(result).error().as(ErrorCode::bad_file);
    return **result;
  }
  Result<std::vector<std::string>> texts(std::string_view key) const {
    std::vector<std::string> items;
    const json::Value* value = find(key);
    if (value == nullptr) return items;
    auto array = value->as_array(place(key));
    if (!array.ok()) return std::move(array).error().as(ErrorCode::bad_file);
    for (const json::Value& item : **array) {
      auto string = item.as_string(place(key));
      if (!string.ok()) return std::move(string).error().as(ErrorCode::bad_file);
      items.push_back(**string);
    }
    return items;
  }
  Result<double> number(const json::Value& value, std::string_view key) const {
    auto result = value.as_number(place(key));
    if (!result.ok()) return std::move(result).error().as(ErrorCode::bad_file);
    if (!std::isfinite(static_cast<float>(*result)))
      return bad(key, cat("a value of ", *result, " is beyond every float32"));
    return *result;
  }
  Result<std::int64_t> rank(const json::Value& value, std::string_view key) const {
    auto result = value.as_integer(place(key));
    if (!result.ok()) return std::move(result).error().as(ErrorCode::bad_file);
    if (*result < 1) return bad(key, cat("a rank of ", *result, " is not positive"));
    if (*result > max_rank) {
      return unsupported(key, cat("a rank of ", *result, " is more than motley's ", max_rank));
    }
    return *result;
  }

  // Calls read(value, place) for each member of an object of patterns.
  template <class Number, class Read>
  Result<void> patterns(std::string_view key, PatternMap<Number>& into, text::MatchBudget* budget,
                        Read read) const {
    const json::Value* value = find(key);
    if (value == nullptr) return {};
    into.count_in(budget, key);
    auto object = value->as_object(place(key));
    if (!object.ok()) return std::move(object).error().as(ErrorCode::bad_file);
    for (const json::Member& member : (*object)->members()) {
      const std::string inner = cat(key, ", ", quote(member.key));
      MOTLEY_TRY(const Number number, read(member.value, inner));
      auto added = into.add(member.key, number);
      if (!added.ok()) return std::move(added).error().within(place(key));
    }
    return {};
  }

 private:
  const json::Object& object_;
  std::string_view where_;
};

// Whether a value means "on": true, a non-empty array, or any object (even an empty one is a
// configuration).
bool is_on(const json::Value* value) {
  if (value == nullptr) return false;
  if (const bool* flag = value->if_boolean()) return *flag;
  if (const json::Array* array = value->if_array()) return !array->empty();
  return true;
}

Result<void> refuse_kinds(const Reader& reader) {
  MOTLEY_TRY(const std::string type, reader.text("peft_type"));
  if (!type.empty() && type != "LORA") {
    return reader.unsupported("peft_type", cat("adapters of type ", quote(type), " are not LoRA"));
  }
  struct Kind {
    std::string_view key;
    std::string_view why;
  };
  static constexpr Kind kinds[] = {
      {"kasa_config", "KaSA (kasa) trains a changed base and a diagonal of its own"},
      {"arrow_config", "arrow routes among other adapters"},
      {"layer_replication", "layer_replication makes a model with more layers"},
      {"use_bdlora", "block-diagonal factors (bdlora) are not supported"},
      {"use_qalora", "pooled inputs (qalora) are not supported"},
      {"trainable_token_indices", "trainable tokens are not supported"},
  };
  for (const Kind& kind : kinds) {
    if (is_on(reader.find(kind.key))) return reader.unsupported(kind.key, kind.why);
  }
  // An empty list counts, too: PEFT treats it as an activation that never happens.
  if (reader.find("alora_invocation_tokens") != nullptr) {
    return reader.unsupported("alora_invocation_tokens",
                              "activated LoRA (alora_invocation_tokens) is not supported");
  }
  const json::Value* init = reader.find("init_lora_weights");
  const std::string* method = init == nullptr ? nullptr : init->if_string();
  if (method == nullptr) return {};
  for (const std::string_view changed : {"pissa", "olora", "corda", "lora_ga", "loftq"}) {
    if (method->starts_with(changed)) {
      return reader.unsupported(
          "init_lora_weights", cat("factors made by ", quote(*method), " belong to a changed base"),
          "convert the adapter to plain LoRA when saving it (PEFT: path_initial_model_for_weight_"
          "conversion)");
    }
  }
  for (const std::string_view plain : {"gaussian", "orthogonal", "eva", "mica"}) {
    if (*method == plain) return {};
  }
  return reader.unsupported("init_lora_weights",
                            cat("the method ", quote(*method), " may belong to a changed base"));
}

}  // namespace

std::int64_t Config::rank_of(std::string_view module) const {
  const std::int64_t* own = rank_pattern.find(module);
  return own == nullptr ? rank : *own;
}

Result<void> Config::within_budget() const {
  if (budget == nullptr || !budget->spent()) return {};
  return Error(ErrorCode::unsupported,
               cat("its patterns take too long to match against the model's modules"),
               cat("adapter_config.json, ", budget->spender()),
               "list modules by their names, or use fewer and simpler patterns");
}

float Config::scale_of(std::string_view module) const {
  const double* own = alpha_pattern.find(module);
  const double numerator = own == nullptr ? alpha : *own;
  const auto r = static_cast<double>(rank_of(module));
  return static_cast<float>(numerator / (rslora ? std::sqrt(r) : r));
}

bool names_module(const std::vector<std::string>& targets, std::string_view module) {
  for (const std::string& target : targets) {
    if (module == target) return true;
    if (module.size() > target.size() && module.ends_with(target) &&
        module[module.size() - target.size() - 1] == '.')
      return true;
  }
  return false;
}

Result<Config> parse_adapter_config(std::string_view text, std::string_view where) {
  auto parsed = json::parse(text, where, {.values = 1'000'000});
  if (!parsed.ok()) return std::move(parsed).error().as(ErrorCode::bad_file);
  auto object = parsed->as_object(where);
  if (!object.ok()) return std::move(object).error().as(ErrorCode::bad_file);
  const Reader reader(**object, where);
  MOTLEY_TRY_VOID(refuse_kinds(reader));

  Config config;
  config.budget = std::make_shared<text::MatchBudget>(match_steps);
  for (const std::string_view key : {"r", "lora_alpha"}) {
    if (reader.find(key) == nullptr) return reader.bad(key, "is missing, and has no default here");
  }
  MOTLEY_TRY(config.rank, reader.rank(*reader.find("r"), "r"));
  MOTLEY_TRY(config.alpha, reader.number(*reader.find("lora_alpha"), "lora_alpha"));
  MOTLEY_TRY(config.rslora, reader.flag("use_rslora"));
  MOTLEY_TRY_VOID(reader.patterns(
      "rank_pattern", config.rank_pattern, config.budget.get(),
      [&](const json::Value& value, std::string_view key) { return reader.rank(value, key); }));
  MOTLEY_TRY_VOID(reader.patterns(
      "alpha_pattern", config.alpha_pattern, config.budget.get(),
      [&](const json::Value& value, std::string_view key) { return reader.number(value, key); }));
  MOTLEY_TRY(config.targets, Targets::parse(**object, where, config.budget.get()));
  MOTLEY_TRY(config.target_parameters, reader.texts("target_parameters"));
  if (config.target_parameters.size() > max_parameters)
    return reader.bad("target_parameters", cat("more than ", max_parameters, " names"));
  for (const std::string& target : config.target_parameters) {
    if (target.ends_with("bias")) {
      return reader.unsupported("target_parameters",
                                cat("factors on the biases ", quote(target), " are not supported"));
    }
  }
  MOTLEY_TRY(config.modules_to_save, reader.texts("modules_to_save"));
  MOTLEY_TRY(const std::string bias, reader.text("bias"));
  if (bias == "all") {
    config.bias = Config::Bias::all;
  } else if (bias == "lora_only") {
    config.bias = Config::Bias::lora_only;
  } else if (!bias.empty() && bias != "none") {
    return reader.bad("bias", cat(quote(bias), " is none of 'none', 'all' and 'lora_only'"));
  }
  MOTLEY_TRY(config.lora_bias, reader.flag("lora_bias"));
  MOTLEY_TRY(config.dora, reader.flag("use_dora"));
  if (config.dora && config.lora_bias) {
    return reader.unsupported("lora_bias", "DoRA with a bias behind B is not defined");
  }
  MOTLEY_TRY(config.ties_weights, reader.flag("ensure_weight_tying"));
  MOTLEY_TRY(const std::string layout, reader.text("lora_B_layout"));
  if (layout == "rank_major") {
    config.b_columns = BColumns::rank_major;
  } else if (layout == "grouped_by_expert") {
    config.b_columns = BColumns::expert_major;
  } else if (!layout.empty()) {
    return reader.bad("lora_B_layout",
                      cat(quote(layout), " is neither 'rank_major' nor 'grouped_by_expert'"));
  }
  MOTLEY_TRY(config.peft_version, reader.text("peft_version"));
  return config;
}

}  // namespace motley::lora
