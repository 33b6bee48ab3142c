#include "server/api/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/cat.h"
#include "server/api/grammar_fields.h"

namespace motley::server {
namespace {

constexpr std::size_t most_stops = 16;
constexpr std::size_t longest_stop = 1000;  // bytes
constexpr std::size_t most_biases = 1000;
constexpr std::size_t most_adapters = 16;
constexpr std::size_t longest_name = 200;
constexpr double most_scale = 1000;
constexpr std::int64_t most_tokens = std::int64_t{1} << 31;

Error wrong(std::string what, std::string place, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(place), std::move(fix)};
}

Result<float> number_or(Fields& fields, std::string_view key, double least, double most,
                        double otherwise) {
  MOTLEY_TRY(const auto given, fields.number(key, least, most));
  return static_cast<float>(given.value_or(otherwise));
}

Result<std::vector<engine::LogitBias>> read_logit_bias(Fields& fields, std::int64_t vocabulary) {
  std::vector<engine::LogitBias> list;
  MOTLEY_TRY(const json::Object* const biases, fields.object("logit_bias"));
  if (biases == nullptr) return list;
  if (biases->size() > most_biases)
    return wrong(cat(biases->size(), " biases"), "logit_bias", cat("give at most ", most_biases));
  for (const auto& [key, value] : biases->members()) {
    std::int32_t token = 0;
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, token);
    if (parsed.ec != std::errc() || parsed.ptr != end || token < 0 || token >= vocabulary)
      return wrong(cat("not a token id: ", quote(key)), "logit_bias",
                   cat("use ids from 0 to ", vocabulary - 1));
    MOTLEY_TRY(const double bias, read_number(value, cat("logit_bias.", token), -100, 100));
    list.push_back({.token = token, .bias = static_cast<float>(bias)});
  }
  std::ranges::sort(list, {}, &engine::LogitBias::token);
  const auto twice = std::ranges::adjacent_find(list, {}, &engine::LogitBias::token);
  if (twice != list.end())
    return wrong(cat("token ", twice->token, " twice"), "logit_bias", "give each id once");
  return list;
}

Result<engine::SamplingParams> read_sampling(Fields& fields, const ApiContext& context) {
  const text::GenerationConfig& defaults = *context.defaults;
  engine::SamplingParams params;
  MOTLEY_TRY(params.temperature,
             number_or(fields, "temperature", 0, 2, defaults.temperature.value_or(1)));
  MOTLEY_TRY(const float top_p, number_or(fields, "top_p", 0, 1, defaults.top_p.value_or(1)));
  // 0 asks for the likeliest token, which the smallest share holds alone.
  params.top_p = std::max(top_p, 1e-9F);
  // More than there are is all of them.
  MOTLEY_TRY(const auto top_k, fields.integer("top_k", -1, most_tokens));
  params.top_k = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(top_k.value_or(defaults.top_k.value_or(0)), 0, context.vocabulary));
  MOTLEY_TRY(params.min_p, number_or(fields, "min_p", 0, 1, defaults.min_p.value_or(0)));
  MOTLEY_TRY(params.repetition_penalty, number_or(fields, "repetition_penalty", 0.01, 100,
                                                  defaults.repetition_penalty.value_or(1)));
  MOTLEY_TRY(params.frequency_penalty, number_or(fields, "frequency_penalty", -2, 2, 0));
  MOTLEY_TRY(params.presence_penalty, number_or(fields, "presence_penalty", -2, 2, 0));
  MOTLEY_TRY(params.logit_bias, read_logit_bias(fields, context.vocabulary));
  MOTLEY_TRY(const auto seed, fields.integer("seed"));
  if (seed) params.seed = static_cast<std::uint64_t>(*seed);
  MOTLEY_TRY(const auto min_tokens, fields.integer("min_tokens", 0, most_tokens));
  params.min_tokens = min_tokens.value_or(0);
  MOTLEY_TRY(const auto ignore_eos, fields.boolean("ignore_eos"));
  params.ignore_eos = ignore_eos.value_or(false);
  return params;
}

Result<std::vector<engine::ScaledAdapter>> read_adapters(const json::Value& value) {
  MOTLEY_TRY(const json::Array* const list, value.as_array("adapters"));
  if (list->size() > most_adapters)
    return wrong(cat(list->size(), " adapters"), "adapters", cat("give at most ", most_adapters));
  std::vector<engine::ScaledAdapter> adapters;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = cat("adapters[", i, "]");
    MOTLEY_TRY(const json::Object* const object, (*list)[i].as_object(place));
    Fields fields(*object, place);
    MOTLEY_TRY(auto name, fields.string("name"));
    MOTLEY_TRY(const auto scale, fields.number("scale", -most_scale, most_scale));
    MOTLEY_TRY_VOID(fields.refuse_others());
    if (!name || !is_adapter_name(*name))
      return wrong(name ? cat("not an adapter's name: ", quote(*name)) : "an adapter without name",
                   cat(place, ".name"), "name a loaded adapter; GET /v1/models lists them");
    if (std::ranges::find(adapters, *name, &engine::ScaledAdapter::name) != adapters.end())
      return wrong(cat("adapter ", quote(*name), " twice"), cat(place, ".name"),
                   "give it once, with the sum of the scales");
    adapters.push_back({.name = *std::move(name), .scale = static_cast<float>(scale.value_or(1))});
  }
  return adapters;
}

// Whom `model` means: nobody is the base.
Result<std::optional<std::string>> adapter_of(std::string_view model, const std::string& base) {
  if (model == base) return std::optional<std::string>();
  const std::string_view adapter = adapter_part(model, base);
  if (!is_adapter_name(adapter))
    return Error(ErrorCode::not_found, cat("no model ", quote(model)), "model",
                 "GET /v1/models lists those there are");
  return std::optional(std::string(adapter));
}

Result<void> read_model(Fields& fields, const ApiContext& context, GenerationFields& into) {
  MOTLEY_TRY(auto model, fields.string("model"));
  into.model = model ? *std::move(model) : context.base;
  MOTLEY_TRY(auto adapter, adapter_of(into.model, context.base));
  if (const json::Value* const several = fields.take("adapters")) {
    if (adapter)
      return wrong("both an adapter as the model and a list of adapters", "adapters",
                   cat("let model name the base, ", quote(context.base)));
    MOTLEY_TRY(into.adapters, read_adapters(*several));
  } else if (adapter) {
    into.adapters.push_back({.name = *std::move(adapter)});
  }
  return {};
}

Result<void> read_stop(Fields& fields, const ApiContext& context, GenerationFields& into) {
  MOTLEY_TRY(into.stop, fields.strings("stop", most_stops));
  for (const std::string& stop : into.stop) {
    if (stop.empty() || stop.size() > longest_stop)
      return wrong(stop.empty() ? std::string("an empty stop string")
                                : cat("a stop string of ", stop.size(), " bytes"),
                   "stop", cat("give strings of 1 to ", longest_stop, " bytes"));
  }
  MOTLEY_TRY(const auto include, fields.boolean("include_stop_str_in_output"));
  into.include_stop = include.value_or(false);
  MOTLEY_TRY(into.stop_ids, fields.token_ids("stop_token_ids", context.vocabulary));
  return {};
}

Result<void> read_stream(Fields& fields, GenerationFields& into) {
  MOTLEY_TRY(const auto stream, fields.boolean("stream"));
  into.stream = stream.value_or(false);
  MOTLEY_TRY(const json::Object* const options, fields.object("stream_options"));
  if (options == nullptr) return {};
  if (!into.stream)
    return wrong("stream_options without stream", "stream_options", "set \"stream\": true");
  Fields inner(*options, "stream_options");
  MOTLEY_TRY(const auto usage, inner.boolean("include_usage"));
  into.include_usage = usage.value_or(false);
  // Padding against observers of lengths, which we do not do.
  inner.accept({"include_obfuscation"});
  return inner.refuse_others();
}

}  // namespace

bool is_adapter_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_name && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '/' || c == '-';
  });
}

std::string_view adapter_part(std::string_view model, std::string_view base) {
  const bool prefixed =
      model.size() > base.size() && model.starts_with(base) && model[base.size()] == ':';
  return prefixed ? model.substr(base.size() + 1) : model;
}

Result<GenerationFields> read_generation_fields(Fields& fields, const ApiContext& context) {
  GenerationFields read;
  MOTLEY_TRY_VOID(read_model(fields, context, read));
  MOTLEY_TRY(read.sampling, read_sampling(fields, context));
  MOTLEY_TRY(auto grammar, read_grammar(fields));
  if (grammar) {
    read.sampling.grammar = std::move(grammar->spec);
    read.grammar_field = grammar->name;
  }
  MOTLEY_TRY(read.max_tokens, fields.integer("max_tokens", 0, most_tokens));
  MOTLEY_TRY(const auto choices, fields.integer("n", 1, engine::most_choices));
  read.choices = static_cast<int>(choices.value_or(1));
  MOTLEY_TRY(const auto priority, fields.integer("priority", -1000, 1000));
  read.priority = static_cast<int>(priority.value_or(0));
  MOTLEY_TRY_VOID(read_stop(fields, context, read));
  MOTLEY_TRY_VOID(read_stream(fields, read));
  // What OpenAI's clients send along, for its accounts, storage and routing.
  fields.accept({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention"});
  return read;
}

}  // namespace motley::server
