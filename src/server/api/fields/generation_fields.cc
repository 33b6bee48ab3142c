#include "server/api/fields/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/cat.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "engine/adapter_name.h"
#include "server/api/calls/grammar_fields.h"
#include "server/api/fields/ban_fields.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/refused_fields.h"
#include "server/http/messages/message.h"

namespace motley::server {
namespace {

constexpr std::size_t max_id = 200;
constexpr double max_scale = 1000;
constexpr double max_bias = 100;
constexpr std::int64_t max_count = std::int64_t{1} << 31;

constexpr double any_number = std::numeric_limits<double>::max();

Result<float> number_or(Fields& fields, std::string_view key, double least, double most,
                        double otherwise) {
  MOTLEY_TRY(const auto given, fields.number(key, least, most));
  return static_cast<float>(given.value_or(otherwise));
}

Result<std::vector<engine::LogitBias>> read_logit_bias(Fields& fields, std::int64_t vocabulary) {
  std::vector<engine::LogitBias> list;
  MOTLEY_TRY(const json::Object* const biases, fields.object("logit_bias"));
  if (biases == nullptr) return list;
  if (biases->size() > field_limits::logit_biases.most)
    return wrong(cat(biases->size(), " biases"), "logit_bias",
                 cat("give at most ", field_limits::logit_biases.most));
  for (const auto& [key, value] : biases->members()) {
    std::int32_t token = 0;
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, token);
    if (parsed.ec != std::errc() || parsed.ptr != end || token < 0 || token >= vocabulary)
      return wrong(cat("not a token id: ", quote(key)), "logit_bias",
                   cat("use ids from 0 to ", vocabulary - 1));
    MOTLEY_TRY(const double bias,
               read_number(value, cat("logit_bias.", token), -any_number, any_number));
    list.push_back(
        {.token = token, .bias = static_cast<float>(std::clamp(bias, -max_bias, max_bias))});
  }
  std::ranges::sort(list, {}, &engine::LogitBias::token);
  const auto twice = std::ranges::adjacent_find(list, {}, &engine::LogitBias::token);
  if (twice != list.end())
    return wrong(cat("token ", twice->token, " twice"), "logit_bias", "give each id once");
  return list;
}

Result<engine::SamplingParams> read_sampling(Fields& fields, const ApiContext& context) {
  engine::SamplingParams params = serving::default_sampling(*context.defaults, context.vocabulary);
  MOTLEY_TRY(const auto temperature, fields.number("temperature", 0, any_number));
  if (temperature)
    params.temperature = static_cast<float>(std::min(*temperature, serving::max_temperature));
  MOTLEY_TRY(const float top_p, number_or(fields, "top_p", 0, 1, params.top_p));
  params.top_p = std::max(top_p, serving::least_top_p);
  MOTLEY_TRY(const auto top_k, fields.integer("top_k", -1, max_count));
  if (top_k)
    params.top_k =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(*top_k, 0, context.vocabulary));
  MOTLEY_TRY(params.min_p, number_or(fields, "min_p", 0, 1, params.min_p));
  MOTLEY_TRY(params.repetition_penalty,
             number_or(fields, "repetition_penalty", 0.01, 100, params.repetition_penalty));
  MOTLEY_TRY(params.frequency_penalty, number_or(fields, "frequency_penalty", -2, 2, 0));
  MOTLEY_TRY(params.presence_penalty, number_or(fields, "presence_penalty", -2, 2, 0));
  MOTLEY_TRY(params.logit_bias, read_logit_bias(fields, context.vocabulary));
  MOTLEY_TRY(const auto seed, fields.integer("seed"));
  if (seed) params.seed = static_cast<std::uint64_t>(*seed);
  MOTLEY_TRY(const auto min_tokens, fields.integer("min_tokens", 0, max_count));
  params.min_tokens = min_tokens.value_or(0);
  MOTLEY_TRY(const auto ignore_eos, fields.boolean("ignore_eos"));
  params.ignore_eos = ignore_eos.value_or(false);
  return params;
}

Result<std::vector<lora::ScaledAdapter>> read_adapters(const Fields& body,
                                                       const json::Value& value) {
  MOTLEY_TRY(const json::Array* const list, value.as_array("adapters"));
  if (list->size() > field_limits::adapters.most)
    return wrong(cat(list->size(), " adapters"), "adapters",
                 cat("give at most ", field_limits::adapters.most));
  std::vector<lora::ScaledAdapter> adapters;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = cat("adapters[", i, "]");
    MOTLEY_TRY(const json::Object* const object, (*list)[i].as_object(place));
    Fields fields = body.inside(*object, place);
    MOTLEY_TRY(auto name, fields.string("name"));
    MOTLEY_TRY(const auto scale, fields.number("scale", -max_scale, max_scale));
    MOTLEY_TRY_VOID(fields.finish());
    if (!name || !engine::is_adapter_name(*name))
      return wrong(name ? cat("not an adapter's name: ", quote(*name)) : "an adapter without name",
                   cat(place, ".name"), "name a loaded adapter; GET /v1/models lists them");
    if (std::ranges::find(adapters, *name, &lora::ScaledAdapter::name) != adapters.end())
      return wrong(cat("adapter ", quote(*name), " twice"), cat(place, ".name"),
                   "give it once, with the sum of the scales");
    adapters.push_back({.name = *std::move(name), .scale = static_cast<float>(scale.value_or(1))});
  }
  return adapters;
}

// The adapter that `model` names; nothing for the base.
Result<std::optional<std::string>> adapter_of(std::string_view model, const ApiContext& context) {
  if (model == context.base) return std::optional<std::string>();
  const std::string_view adapter = adapter_part(model, context.base);
  if (!engine::is_adapter_name(adapter))
    return Error(ErrorCode::not_found, cat("no model ", quote(model)), "model",
                 "GET /v1/models lists those there are");
  return std::optional(std::string(adapter));
}

// Of a request that names the base and no list of adapters. A key without a right to the default
// adapter has the base.
void take_default(const ApiContext& context, GenerationFields& into) {
  if (context.default_adapter.empty()) return;
  const lora::ScaledAdapter adapter{.name = context.default_adapter};
  if (context.asked.check_adapters && !context.asked.check_adapters({&adapter, 1}).ok()) return;
  // One that has the base's name answers by that name alone.
  if (adapter.name != context.base) into.model = cat(context.base, ":", adapter.name);
  into.adapters.push_back(adapter);
}

Result<void> read_model(Fields& fields, const ApiContext& context, GenerationFields& into) {
  MOTLEY_TRY(auto model, fields.string("model"));
  into.model = model ? *std::move(model) : context.base;
  std::optional<std::string> adapter;
  // An adapter's whole name goes before BASE:ADAPTER.
  const bool has_colon = into.model.find(':') != std::string::npos;
  if (has_colon && context.is_adapter && context.is_adapter(into.model)) {
    adapter = into.model;
  } else {
    into.model = without_alias(std::move(into.model), context.base, context.aliases);
    MOTLEY_TRY(adapter, adapter_of(into.model, context));
  }
  if (const json::Value* const several = fields.take("adapters")) {
    if (adapter)
      return wrong("both an adapter as the model and a list of adapters", "adapters",
                   cat("let model name the base, ", quote(context.base)));
    MOTLEY_TRY(into.adapters, read_adapters(fields, *several));
  } else if (adapter) {
    into.adapters.push_back({.name = *std::move(adapter)});
  } else {
    take_default(context, into);
  }
  return context.asked.check_adapters ? context.asked.check_adapters(into.adapters)
                                      : Result<void>();
}

Result<void> read_stop(Fields& fields, const ApiContext& context, GenerationFields& into) {
  MOTLEY_TRY(into.stop, read_stop_strings(fields, "stop"));
  MOTLEY_TRY(const auto include, fields.boolean("include_stop_str_in_output"));
  into.include_stop = include.value_or(false);
  MOTLEY_TRY(into.stop_ids, fields.token_ids("stop_token_ids", context.vocabulary));
  return {};
}

// Whether any option is set.
bool asks_for_something(const json::Object* options) {
  if (options == nullptr) return false;
  return std::ranges::any_of(options->members(), [](const json::Member& member) {
    const bool* const flag = member.value.if_boolean();
    return !member.value.is_null() && (flag == nullptr || *flag);
  });
}

Result<void> read_stream(Fields& fields, GenerationFields& into) {
  MOTLEY_TRY(const auto stream, fields.boolean("stream"));
  into.stream = stream.value_or(false);
  MOTLEY_TRY(const json::Object* const options, fields.object("stream_options"));
  if (!into.stream) {
    // Clients send these with requests that do not stream, where they have no effect.
    if (asks_for_something(options)) fields.leave("stream_options");
    return {};
  }
  if (options == nullptr) return {};
  Fields inner = fields.inside(*options, "stream_options");
  MOTLEY_TRY(const auto usage, inner.boolean("include_usage"));
  into.include_usage = usage.value_or(false);
  MOTLEY_TRY(const auto continuous, inner.boolean("continuous_usage_stats"));
  into.continuous_usage = into.include_usage && continuous.value_or(false);
  // Padding against observers of lengths, which is not implemented.
  inner.accept({"include_obfuscation"});
  return inner.finish();
}

// The prefix cache keeps a salt with the pages of its prompts, so a long one is known by its hash.
std::string kept_salt(std::string salt) {
  constexpr std::size_t most = 256;
  if (salt.size() <= most) return salt;
  Sha256 hash;
  hash.add(salt);
  return cat("sha256:", to_hex(hash.digest()));
}

Result<std::string> read_salt(Fields& fields) {
  MOTLEY_TRY(auto salt, fields.string("cache_salt"));
  if (!salt) return std::string();
  const auto length = static_cast<std::size_t>(utf8::count(*salt));
  if (length > field_limits::cache_salt.most)
    return wrong(cat("a salt of ", length, " characters"), "cache_salt",
                 cat("use at most ", field_limits::cache_salt.most));
  return kept_salt(*std::move(salt));
}

Result<void> read_names(Fields& fields, GenerationFields& into) {
  MOTLEY_TRY(const auto id, fields.string("request_id"));
  if (id && !is_request_id(*id))
    return wrong(cat("not an id: ", quote(id->substr(0, max_id))), "request_id",
                 "use 1 to 128 letters, digits, '-', '_', '.' and ':'");
  into.request_id = id.value_or("");
  MOTLEY_TRY(into.cache_salt, read_salt(fields));
  return {};
}

}  // namespace

Result<std::vector<std::string>> read_stop_strings(Fields& fields, std::string_view key) {
  MOTLEY_TRY(std::vector<std::string> stops, fields.strings(key, field_limits::stops.most));
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > field_limits::stop_bytes.most)
      return wrong(stop.empty() ? std::string("an empty stop string")
                                : cat("a stop string of ", stop.size(), " bytes"),
                   std::string(key),
                   cat("give strings of 1 to ", field_limits::stop_bytes.most, " bytes"));
  }
  return stops;
}

std::string without_alias(std::string model, std::string_view base,
                          std::span<const std::string> aliases) {
  if (model == base) return model;
  for (const std::string& alias : aliases) {
    if (model == alias) return std::string(base);
    const std::string_view adapter = adapter_part(model, alias);
    if (adapter.size() < model.size()) return cat(base, ":", adapter);
  }
  return model;
}

std::string_view adapter_part(std::string_view model, std::string_view base) {
  const bool prefixed =
      model.size() > base.size() && model.starts_with(base) && model[base.size()] == ':';
  return prefixed ? model.substr(base.size() + 1) : model;
}

Result<void> read_request_fields(Fields& fields, const ApiContext& context,
                                 GenerationFields& into) {
  MOTLEY_TRY_VOID(read_model(fields, context, into));
  // Lower ones are earlier, as in vLLM.
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  MOTLEY_TRY(const auto priority, fields.integer("priority", -most, most));
  into.priority = -static_cast<int>(priority.value_or(0));
  MOTLEY_TRY_VOID(read_stream(fields, into));
  MOTLEY_TRY_VOID(read_names(fields, into));
  // Fields for OpenAI's accounts, storage and routing, or for a faster answer.
  fields.accept({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "verbosity", "prediction",
                 "guided_decoding_backend"});
  return {};
}

Result<void> read_sampling_fields(Fields& fields, const ApiContext& context,
                                  GenerationFields& into) {
  MOTLEY_TRY(into.sampling, read_sampling(fields, context));
  MOTLEY_TRY(auto grammar, read_grammar(fields));
  if (grammar) {
    into.sampling.grammar = std::move(grammar->spec);
    into.grammar_field = grammar->name;
    into.strict_form = grammar->strict;
  }
  MOTLEY_TRY_VOID(read_bans(fields, context, into.sampling));
  MOTLEY_TRY(into.max_tokens, fields.integer("max_tokens", 0, max_count));
  MOTLEY_TRY(into.truncate, fields.integer("truncate_prompt_tokens", -1, max_count));
  if (into.truncate == 0)
    return wrong("a prompt without tokens", "truncate_prompt_tokens",
                 "keep one at least, or -1 for as many as fit");
  MOTLEY_TRY(into.add_special_tokens, fields.boolean("add_special_tokens"));
  MOTLEY_TRY(const auto choices, fields.integer("n", 1, engine::max_choices));
  into.choices = static_cast<int>(choices.value_or(1));
  MOTLEY_TRY_VOID(read_stop(fields, context, into));
  MOTLEY_TRY(into.tokens, read_token_fields(fields, context.token_bounds(), into));
  return refuse_unsupported(fields, into.choices);
}

Result<GenerationFields> read_generation_fields(Fields& fields, const ApiContext& context) {
  GenerationFields read;
  MOTLEY_TRY_VOID(read_request_fields(fields, context, read));
  MOTLEY_TRY_VOID(read_sampling_fields(fields, context, read));
  return read;
}

}  // namespace motley::server
