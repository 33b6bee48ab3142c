#include "serving/answers/choice_text.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace motley::serving {

ChoiceText::Piece ChoiceText::push(engine::TokenEvent token) {
  Piece piece;
  if (held_) take(*std::exchange(held_, std::nullopt), true, piece);
  if (stopped()) return piece;
  if (rules_->ends.contains(token.id))
    held_ = std::move(token);
  else
    take(std::move(token), true, piece);
  return piece;
}

ChoiceText::Piece ChoiceText::finish(bool by_token) {
  Piece piece;
  if (stopped()) return piece;
  if (held_) {
    const bool hidden = rules_->skip_special && rules_->tokenizer->is_special(held_->id);
    const bool shown = !by_token || (rules_->include_stop && !hidden);
    take(*std::exchange(held_, std::nullopt), shown, piece);
  }
  if (stopped()) return piece;
  take_text(decoder_.finish(), piece);
  if (!stopped()) piece.text += matcher_.finish();
  return piece;
}

void ChoiceText::take(engine::TokenEvent token, bool shown, Piece& piece) {
  const std::int32_t id = token.id;
  ++tokens_;
  piece.offsets.push_back(characters_);
  piece.tokens.push_back(std::move(token));
  if (!shown) return;
  if (shows(id))
    take_text(decode(id), piece);
  else
    characters_ += utf8::count(rules_->tokenizer->decode(std::span(&id, 1), false));
  ends_.push_back(decoded_bytes_);
  count_kept();
}

void ChoiceText::count_kept() {
  for (; !ends_.empty() && ends_.front() <= passed_bytes_; ends_.pop_front()) ++kept_tokens_;
}

bool ChoiceText::shows(std::int32_t id) const {
  return !rules_->skip_special || !rules_->tokenizer->is_special(id) ||
         rules_->visible.contains(id);
}

std::string ChoiceText::decode(std::int32_t id) {
  std::string text = decoder_.push(id);
  const bool special = rules_->tokenizer->is_special(id);
  const bool after_special = std::exchange(after_special_, special);
  if (!special || !after_special || rules_->skip_special || rules_->spaces_between_special)
    return text;
  return std::string(rules_->tokenizer->token_of(id).value_or(""));
}

void ChoiceText::take_text(std::string_view decoded, Piece& piece) {
  characters_ += utf8::count(decoded);
  text::StopMatcher::Output output = matcher_.push(decoded, tokens_ > rules_->min_tokens);
  piece.text += output.text;
  stop_ = output.stop;
  decoded_bytes_ += std::ssize(decoded);
  passed_bytes_ += std::ssize(output.text);
}

}  // namespace motley::serving
