#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "server/api/fields/fields.h"
#include "server/api/fields/notices.h"
#include "server/api/fields/token_fields.h"
#include "text/encode_bounds.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"

// The fields that completions and chat completions share.
namespace motley::server {

// What requests may refer to.
struct ApiContext {
  std::string base;  // the id of the base model
  std::int64_t vocabulary = 0;
  const text::GenerationConfig* defaults = nullptr;
  std::int64_t max_sequence_tokens = 0;                // 0: any number
  std::size_t longest_token_bytes = 0;                 // 0: not known
  const text::Tokenizer* tokenizer = nullptr;          // for words that are fields' values
  const std::atomic<bool>* cancelled = nullptr;        // the client has gone
  Notices* notices = nullptr;                          // null: what they are for is refused
  bool strict_fields = false;                          // unknown fields are refused
  bool request_templates = false;                      // conversations may bring their own
  std::span<const std::string_view> more_fields = {};  // that the route has taken itself

  std::vector<std::string>* ignored() const {
    return strict_fields || notices == nullptr ? nullptr : &notices->ignored;
  }
};

// A prompt that has more tokens than a sequence can have: `has` says how many, as far as that is
// known. OpenAI's words begin so, and some clients look for them.
Error prompt_too_long(std::int64_t max_sequence_tokens, std::string_view has,
                      std::string_view place);

struct GenerationFields {
  std::string model;  // as the client wrote it
  std::vector<engine::ScaledAdapter> adapters = {};
  engine::SamplingParams sampling = {};
  std::string_view grammar_field = {};  // that sampling.grammar comes from
  bool strict_form = false;             // its schema is to be held whole
  std::optional<std::int64_t> max_tokens = {};
  // Of a prompt so many last tokens are kept; -1: as many as leave space for the answer.
  std::optional<std::int64_t> truncate = {};
  std::optional<bool> add_special_tokens = {};  // around a text; each route has its own default
  int choices = 1;
  int priority = 0;
  std::vector<std::string> stop = {};
  bool include_stop = false;  // in the text
  std::vector<std::int32_t> stop_ids = {};
  bool stream = false;
  bool include_usage = false;
  TokenFields tokens = {};
  bool continuous_usage = false;  // in every event
  std::string request_id = {};    // of the answer; empty: one of ours
  std::string cache_salt = {};
};

// Refuses a text of more bytes than the longest sequence's tokens have, unless it is to be
// truncated.
Result<void> check_prompt_bytes(std::size_t bytes, const GenerationFields& fields,
                                const ApiContext& context, std::string_view place);

// For a prompt's tokens: an end where they are sure to be too many.
text::EncodeBounds encode_bounds(const GenerationFields& fields, const ApiContext& context);

// Keeps of a prompt what `truncate` says; `more` tokens will stand behind it. Whether it took any
// away.
bool truncate_prompt(std::vector<std::int32_t>& tokens, std::size_t more,
                     const GenerationFields& fields, const ApiContext& context);

// Whether it is one of the names that adapters may have: letters, digits, '.', '_', '/' and '-', 1
// to 200 of them.
bool is_adapter_name(std::string_view name);

// The adapter that BASE:ADAPTER or ADAPTER names.
std::string_view adapter_part(std::string_view model, std::string_view base);

// A list of them, or one alone.
Result<std::vector<std::string>> read_stop_strings(Fields& fields, std::string_view key);

// Takes all of them; whether named adapters exist is the engine's to say.
Result<GenerationFields> read_generation_fields(Fields& fields, const ApiContext& context);

}  // namespace motley::server
