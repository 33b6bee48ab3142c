#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/reply.h"
#include "server/output/transcript.h"
#include "text/tokenizer.h"

// Lists of tokens that answers have beside their text, written in pieces.
namespace motley::server {

// Where a list goes on.
struct ListPlace {
  std::size_t entry = 0;
  bool open = false;
};

// Appends the list, or its rest, until the piece is long enough; `append(piece, i)` writes an
// entry. True at the list's end, where the place is a new list's.
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

// The text of a token alone, or "token_id:7".
std::string token_name(const text::Tokenizer& tokenizer, std::int32_t id, bool as_id);

// The entry of `prompt_logprobs` for a token of the prompt: null for the first, else an object of
// the token and the `top` likeliest ones by id. The rank of a token that is none of those is not
// known: null.
void append_prompt_entry(std::string& text, std::span<const std::int32_t> prompt, std::size_t at,
                         const PromptScores& scores, std::size_t top,
                         const text::Tokenizer& tokenizer);

// Adds a member to the object of a finished event.
void add_to_event(std::string& event, std::string_view name, std::string_view json);

// A token with its log-probability as chats and responses list it, and with its likeliest
// alternatives.
json::Object scored_token(const text::Tokenizer& tokenizer, std::int32_t id, float logprob,
                          std::span<const engine::TopLogprob> top, bool as_id = false);

}  // namespace motley::server
