#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/requests/request.h"
#include "engine/requests/routed_experts.h"
#include "server/api/api_error.h"
#include "server/api/fields/fields.h"
#include "server/api/fields/token_fields.h"
#include "serving/prompts/generation_settings.h"
#include "serving/prompts/notices.h"
#include "serving/prompts/prompt_bounds.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"

// The fields that completions and chat completions share.
namespace motley::server {

// Who asks, and what a plan asks of that.
struct Asked {
  const std::atomic<bool>* cancelled = nullptr;  // set when the client has gone
  std::string client = {};                       // as the engine's requests name it
  std::uint32_t weight = 1;
  ErrorWriter write_error = openai_error;  // of the route
  // An error if the client may not use them; empty: it may use any.
  std::function<Result<void>(std::span<const lora::ScaledAdapter>)> check_adapters = {};
};

// The context of a request.
struct ApiContext {
  std::string base;                           // the id of the base model
  std::span<const std::string> aliases = {};  // other names of it in requests
  std::int64_t vocabulary = 0;
  const text::GenerationConfig* defaults = nullptr;
  serving::PromptBounds bounds = {};
  const text::Tokenizer* tokenizer = nullptr;  // for fields whose values are words
  Asked asked = {};
  serving::Notices* notices = nullptr;          // null: fields that would be noted are refused
  int max_logprobs = engine::max_top_logprobs;  // alternatives to a token
  std::function<bool(const std::string&)> is_adapter = {};  // empty: none is
  std::string default_adapter = {};                // of requests that name the base; empty: none
  bool strict_fields = false;                      // unknown fields are refused
  bool request_templates = false;                  // conversations may bring their own template
  engine::RoutedExpertsSizes routed_experts = {};  // that requests may ask for
  std::span<const std::string_view> more_fields = {};  // that the route has read itself

  TokenBounds token_bounds() const {
    return {.prompt_top = max_logprobs, .vocabulary = vocabulary};
  }
  int max_answer_logprobs() const { return std::min(max_logprobs, engine::max_top_logprobs); }
  std::vector<std::string>* ignored() const {
    return strict_fields || notices == nullptr ? nullptr : &notices->ignored;
  }
};

struct GenerationFields : serving::GenerationSettings {
  std::string model;  // as the client wrote it
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // in every event
  TokenFields tokens;
  engine::RoutedExpertsSizes routed_experts = {};  // kept: the answer has the experts of tokens
  std::string request_id;                          // of the answer; empty: generated
};

// `model` with the base's id in place of an alias: ALIAS is BASE, ALIAS:ADAPTER is BASE:ADAPTER.
std::string without_alias(std::string model, std::string_view base,
                          std::span<const std::string> aliases);

// The adapter that BASE:ADAPTER or ADAPTER names.
std::string_view adapter_part(std::string_view model, std::string_view base);

// A list of strings, or a single string.
Result<std::vector<std::string>> read_stop_strings(Fields& fields, std::string_view key);

// Reads all of them; the engine checks whether named adapters exist.
Result<GenerationFields> read_generation_fields(Fields& fields, const ApiContext& context);
// In two parts: who answers, how it is sent and under which names; and what is generated. Protocols
// that have them in two objects read each from its own.
Result<void> read_request_fields(Fields& fields, const ApiContext& context, GenerationFields& into);
Result<void> read_sampling_fields(Fields& fields, const ApiContext& context,
                                  GenerationFields& into);

}  // namespace motley::server
