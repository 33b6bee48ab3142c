#include "server/output/choice_text.h"

#include <algorithm>
#include <utility>

namespace motley::server {
namespace {

std::int64_t count_characters(std::string_view utf8) {
  return std::ranges::count_if(
      utf8, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

}  // namespace

Result<ChoiceText> ChoiceText::make(const TextRules& rules) {
  MOTLEY_TRY(text::StopMatcher matcher, text::StopMatcher::make(rules.stop, rules.include_stop));
  return ChoiceText(rules, std::move(matcher));
}

ChoiceText::Piece ChoiceText::push(SampledToken token) {
  Piece piece;
  if (held_) take(*std::exchange(held_, std::nullopt), true, piece);
  if (stopped_) return piece;
  if (rules_->ends.contains(token.id))
    held_ = std::move(token);
  else
    take(std::move(token), true, piece);
  return piece;
}

ChoiceText::Piece ChoiceText::finish(bool by_token) {
  Piece piece;
  if (stopped_) return piece;
  if (held_) {
    const bool special = rules_->tokenizer->is_special(held_->id);
    const bool shown = !by_token || (rules_->include_stop && !special);
    take(*std::exchange(held_, std::nullopt), shown, piece);
  }
  if (stopped_) return piece;
  take_text(decoder_.finish(), piece);
  if (!stopped_) piece.text += matcher_.finish();
  return piece;
}

void ChoiceText::take(SampledToken token, bool shown, Piece& piece) {
  const std::int32_t id = token.id;
  ++tokens_;
  piece.offsets.push_back(characters_);
  piece.tokens.push_back(std::move(token));
  if (!shown) return;
  const text::Tokenizer& tokenizer = *rules_->tokenizer;
  if (tokenizer.is_special(id) && !rules_->visible.contains(id))
    characters_ += count_characters(tokenizer.decode(std::span(&id, 1), false));
  else
    take_text(decoder_.push(id), piece);
}

void ChoiceText::take_text(std::string_view decoded, Piece& piece) {
  characters_ += count_characters(decoded);
  text::StopMatcher::Output output = matcher_.push(decoded, tokens_ > rules_->min_tokens);
  piece.text += output.text;
  stopped_ = output.stop.has_value();
}

}  // namespace motley::server
