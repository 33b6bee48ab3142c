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
#include "server/api/fields/fields.h"
#include "server/api/fields/notices.h"
#include "server/api/fields/token_fields.h"
#include "text/encode_bounds.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"

// The fields that completions and chat completions share.
namespace motley::server {

// What a plan asks of the request that it is made for.
struct Asked {
  const std::atomic<bool>* cancelled = nullptr;  // set when the client has gone
  // An error if the client may not use them; empty: it may use any.
  std::function<Result<void>(std::span<const lora::ScaledAdapter>)> check_adapters = {};
};

// The context of a request.
struct ApiContext {
  std::string base;                           // the id of the base model
  std::span<const std::string> aliases = {};  // other names of it in requests
  std::int64_t vocabulary = 0;
  const text::GenerationConfig* defaults = nullptr;
  std::int64_t max_sequence_tokens = 0;        // 0: any number
  std::size_t longest_token_bytes = 0;         // 0: not known
  const text::Tokenizer* tokenizer = nullptr;  // for fields whose values are words
  Asked asked = {};
  Notices* notices = nullptr;                   // null: fields that would be noted are refused
  int max_logprobs = engine::max_top_logprobs;  // alternatives to a token
  std::function<bool(const std::string&)> is_adapter = {};  // empty: none is
  bool strict_fields = false;                               // unknown fields are refused
  bool request_templates = false;                      // conversations may bring their own template
  std::span<const std::string_view> more_fields = {};  // that the route has read itself

  int max_answer_logprobs() const { return std::min(max_logprobs, engine::max_top_logprobs); }
  std::vector<std::string>* ignored() const {
    return strict_fields || notices == nullptr ? nullptr : &notices->ignored;
  }
};

// A prompt with more tokens than a sequence may have; `has` describes their number. Begins with
// OpenAI's wording, which some clients search for.
Error prompt_too_long(std::int64_t max_sequence_tokens, std::string_view has,
                      std::string_view place);

struct GenerationFields {
  std::string model;  // as the client wrote it
  std::vector<lora::ScaledAdapter> adapters = {};
  engine::SamplingParams sampling = {};
  std::string_view grammar_field = {};  // the field that sampling.grammar comes from
  bool strict_form = false;             // its whole schema must be enforced
  std::optional<std::int64_t> max_tokens = {};
  // Keeps this many last tokens of a prompt; -1: as many as leave space for the answer.
  std::optional<std::int64_t> truncate = {};
  std::optional<bool> add_special_tokens = {};  // around a text; the default depends on the route
  int choices = 1;
  int priority = 0;  // the engine's: higher ones begin first
  std::vector<std::string> stop = {};
  bool include_stop = false;  // in the text
  std::vector<std::int32_t> stop_ids = {};
  bool stream = false;
  bool include_usage = false;
  TokenFields tokens = {};
  bool continuous_usage = false;  // in every event
  std::string request_id = {};    // of the answer; empty: generated
  std::string cache_salt = {};
};

// Refuses a text with more bytes than the tokens of the longest sequence can have, unless it is to
// be truncated.
Result<void> check_prompt_bytes(std::size_t bytes, const GenerationFields& fields,
                                const ApiContext& context, std::string_view place);

// Bounds for tokenising a prompt: it stops once there are certainly too many tokens.
text::EncodeBounds encode_bounds(const GenerationFields& fields, const ApiContext& context);

// Truncates a prompt as `truncate` says; `more` tokens will follow it. Returns whether it removed
// any.
bool truncate_prompt(std::vector<std::int32_t>& tokens, std::size_t more,
                     const GenerationFields& fields, const ApiContext& context);

// `model` with the base's id in place of an alias: ALIAS is BASE, ALIAS:ADAPTER is BASE:ADAPTER.
std::string without_alias(std::string model, std::string_view base,
                          std::span<const std::string> aliases);

// The adapter that BASE:ADAPTER or ADAPTER names.
std::string_view adapter_part(std::string_view model, std::string_view base);

// A list of strings, or a single string.
Result<std::vector<std::string>> read_stop_strings(Fields& fields, std::string_view key);

// Reads all of them; the engine checks whether named adapters exist.
Result<GenerationFields> read_generation_fields(Fields& fields, const ApiContext& context);

}  // namespace motley::server
