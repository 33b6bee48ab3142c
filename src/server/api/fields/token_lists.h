#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/fields/generation_fields.h"
#include "server/api/reply.h"
#include "serving/answers/transcript.h"
#include "text/tokenizer.h"

// Lists of tokens in answers, written in pieces.
namespace motley::server {

// The position in a list.
struct ListPlace {
  std::size_t entry = 0;
  bool open = false;
};

// Appends the list, or its rest, until the piece is long enough; `append(piece, i)` writes an
// entry. True at the list's end; the position is reset then.
template <class Append>
bool write_list(std::string& piece, ListPlace& place, std::size_t size, const Append& append) {
  if (!place.open) piece += '[';
  place.open = true;
  for (; place.entry < size && piece.size() < Reply::piece_bytes; ++place.entry) {
    if (place.entry > 0) piece += ',';
    append(piece, place.entry);
  }
  if (place.entry < size) return false;
  piece += ']';
  place = {};
  return true;
}

// "[1,2]".
std::string id_list(std::span<const std::int32_t> ids);

// The text of a single token, or "token_id:7".
std::string token_name(const text::Tokenizer& tokenizer, std::int32_t id, bool as_id);

// The entry of `prompt_logprobs` for a token of the prompt: null for the first, else an object with
// the token and the `top` most probable ones by id. If the token is not among those, its rank is
// not known: null.
void append_prompt_entry(std::string& text, std::span<const std::int32_t> prompt, std::size_t at,
                         const engine::PromptEvent& scores, std::size_t top,
                         const text::Tokenizer& tokenizer);

// Adds a member to the object of a complete event.
void add_to_event(std::string& event, std::string_view name, std::string_view json);

// How tokens with log-probabilities are listed.
struct TokenListing {
  bool as_ids = false;
  bool drawn_first = false;  // among the alternatives, too
};
// Alternatives that the request names are listed as in vLLM: after the token itself.
TokenListing listing_of(const GenerationFields& fields);

// A token with its log-probability and alternatives, as chats and responses list them.
json::Object scored_token(const text::Tokenizer& tokenizer, std::int32_t id, float logprob,
                          std::span<const engine::TopLogprob> top, const TokenListing& listing);

}  // namespace motley::server
