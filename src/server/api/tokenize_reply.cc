#include "server/api/tokenize_reply.h"

#include <utility>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::server {

TokenizeReply::TokenizeReply(TokenizePlan plan, std::int64_t max_sequence_tokens,
                             const text::Tokenizer& tokenizer)
    : plan_(std::move(plan)), max_sequence_tokens_(max_sequence_tokens), tokenizer_(tokenizer) {}

std::string TokenizeReply::next_piece() {
  std::string piece;
  if (list_ == 0) {
    if (!place_.open)
      piece = cat("{\"count\":", plan_.ids.size(), ",\"max_model_len\":", max_sequence_tokens_,
                  ",\"tokens\":");
    if (!write_list(piece, place_, plan_.ids.size(), [&](std::string& text, std::size_t at) {
          text += std::to_string(plan_.ids[at]);
        }))
      return piece;
    ++list_;
    piece += plan_.with_strings ? ",\"token_strs\":" : ",\"token_strs\":null}";
    if (!plan_.with_strings) ++list_;
  }
  if (list_ == 1) {
    if (!write_list(piece, place_, plan_.ids.size(), [&](std::string& text, std::size_t at) {
          json::append_string(text, tokenizer_.token_of(plan_.ids[at]).value_or(""));
        }))
      return piece;
    ++list_;
    piece += '}';
  }
  return piece;
}

DetokenizeReply::DetokenizeReply(TokenizePlan plan, const text::Tokenizer& tokenizer)
    : plan_(std::move(plan)), decoder_(tokenizer, plan_.skip_special) {}

std::string DetokenizeReply::next_piece() {
  std::string piece;
  if (ended_) return piece;
  if (!std::exchange(begun_, true)) piece = "{\"prompt\":\"";
  while (next_ < plan_.ids.size()) {
    if (piece.size() >= Reply::piece_bytes) return piece;
    json::append_escaped(piece, decoder_.push(plan_.ids[next_++]));
  }
  json::append_escaped(piece, decoder_.finish());
  ended_ = true;
  return piece += "\"}";
}

}  // namespace motley::server
