#include "server/api/tokens/generate_request.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/refused_fields.h"
#include "server/api/fields/routed_fields.h"

namespace motley::server {
namespace {

constexpr std::string_view sampling_key = "sampling_params";

// Of other parts of a server that is spread over several, and of prompts that are no text.
constexpr std::array<RefusedField, 4> refused_of_body = {{
    {"features", Neutral::empty, "a prompt with features of images"},
    {"content_parts", Neutral::empty, "a prompt with images or sound"},
    {"kv_transfer_params", Neutral::empty, "a transfer of keys and values"},
    {"ec_transfer_params", Neutral::empty, "a transfer of encodings"},
}};

constexpr std::array<RefusedField, 5> refused_of_sampling = {{
    {"extra_args", Neutral::empty, "what arguments of a plugin say"},
    {"thinking_token_budget", Neutral::none, "a budget of reasoning"},
    {"repetition_detection", Neutral::empty, "an end at repetitions"},
    {"trace_decode_token_ids", Neutral::empty, "an answer that is given"},
    {"watermarking", Neutral::off, "a watermark"},
}};

// The field of an error stands in `sampling_params`.
Error in_sampling(const Error& error) {
  if (error.where().empty() || error.where().starts_with(sampling_key)) return error;
  return {error.code(), error.what(), cat(sampling_key, ".", error.where()), error.fix()};
}

// Named tokens need no other field to be listed. With them `logprobs` is their number, as in vLLM.
Result<void> read_logprobs(Fields& sampling, const ApiContext& context,
                           engine::SamplingParams& params) {
  MOTLEY_TRY_VOID(read_named_logprobs(sampling, context.token_bounds(), params));
  const auto named = static_cast<int>(params.logprob_tokens.size());
  MOTLEY_TRY_VOID(
      read_number_of_logprobs(sampling, std::max(context.max_answer_logprobs(), named), params));
  if (named > 0) {
    params.logprobs = true;
    params.top_logprobs = 0;
  }
  params.ranks = params.logprobs;
  return {};
}

Result<void> read_sampling(Fields& sampling, const ApiContext& context, GenerationFields& into) {
  MOTLEY_TRY_VOID(read_sampling_fields(sampling, context, into));
  MOTLEY_TRY_VOID(read_logprobs(sampling, context, into.sampling));
  MOTLEY_TRY_VOID(settle_prompt_scores(into, into.stream));
  MOTLEY_TRY_VOID(refuse(sampling, refused_of_sampling));
  // Clients name the first token with experts in any case.
  if (context.routed_experts.kept())
    MOTLEY_TRY_VOID(
        read_routed_fields(sampling, context.routed_experts, RoutedInStreams::yes, into));
  else
    sampling.accept({"routed_experts_prompt_start"});
  // How vLLM's parts pass on what they have.
  sampling.accept({"detokenize", "output_kind", "stream_interval", "skip_clone", "flat_logprobs",
                   "skip_reading_prefix_cache"});
  // Both belong into the body.
  if (std::exchange(into.tokens.return_ids, false)) sampling.leave("return_token_ids");
  return sampling.finish();
}

Result<bool> read_output_mode(Fields& fields) {
  MOTLEY_TRY(const auto mode, fields.string("output_mode"));
  if (!mode || *mode == "tokens") return false;
  if (*mode == "text") return true;
  if (*mode == "derender")
    return Error(ErrorCode::unsupported,
                 "a parsed message is not something this route answers with", "output_mode",
                 "use text, or /v1/chat/completions");
  return wrong(cat("no such mode: ", quote(mode->substr(0, 100))), "output_mode",
               "use tokens or text");
}

Result<std::vector<std::int32_t>> read_tokens(Fields& fields, const ApiContext& context,
                                              const GenerationFields& settings) {
  constexpr std::string_view key = "token_ids";
  const json::Value* const value = fields.take(key);
  if (value == nullptr) return wrong("no prompt", std::string(key), "give a list of token ids");
  if (const json::Array* const ids = value->if_array();
      ids != nullptr && ids->size() > field_limits::prompt_tokens.most)
    return wrong(cat("a prompt of ", ids->size(), " tokens"), std::string(key),
                 cat("give at most ", field_limits::prompt_tokens.most));
  MOTLEY_TRY(auto tokens, fields.token_ids(key, context.vocabulary));
  if (tokens.empty())
    return wrong("a prompt without tokens", std::string(key), "give at least one");
  serving::truncate_prompt(tokens, 0, settings, context.bounds);
  return tokens;
}

}  // namespace

Result<GenerateRequest> read_generate_request(const json::Value& body, const ApiContext& context) {
  static const json::Object no_parameters;
  static const text::GenerationConfig no_defaults;
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object, "", context.ignored());
  GenerateRequest request;
  MOTLEY_TRY_VOID(read_request_fields(fields, context, request.fields));
  MOTLEY_TRY(const json::Object* const parameters, fields.object(sampling_key));
  Fields sampling =
      fields.inside(parameters == nullptr ? no_parameters : *parameters, sampling_key);
  ApiContext neutral = context;
  neutral.defaults = &no_defaults;
  if (const Result<void> read = read_sampling(sampling, neutral, request.fields); !read.ok())
    return in_sampling(read.error());
  MOTLEY_TRY(const auto ids, fields.boolean("return_token_ids"));
  request.fields.tokens.return_ids = ids.value_or(false);
  MOTLEY_TRY(request.with_text, read_output_mode(fields));
  MOTLEY_TRY_VOID(refuse(fields, refused_of_body));
  // What vLLM's route of rendering adds, for its other routes.
  fields.accept({"token_offsets", "reasoning_ended", "reasoning_parser_kwargs", "parse_context"});
  fields.accept({"token_ids"});
  MOTLEY_TRY_VOID(fields.finish());
  // All other fields are checked before.
  MOTLEY_TRY(request.tokens, read_tokens(fields, context, request.fields));
  return request;
}

}  // namespace motley::server
