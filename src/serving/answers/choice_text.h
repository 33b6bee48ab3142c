#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "engine/requests/events.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace motley::serving {

// How tokens become text; the same for all choices of a request.
struct TextRules {
  const text::Tokenizer* tokenizer = nullptr;
  std::vector<std::string> stop = {};
  // Whether the text includes the stop string, or the token's text, that ended the choice.
  bool include_stop = false;
  // A stop string ends a choice only if it completes after this many tokens.
  std::int64_t min_tokens = 0;
  // Tokens that may end a choice.
  std::unordered_set<std::int32_t> ends = {};
  // Special tokens are not part of the text, except the visible ones.
  bool skip_special = true;
  std::unordered_set<std::int32_t> visible = {};
  // If false, a special token after another adds only its own text.
  bool spaces_between_special = true;
};

// Converts a choice's tokens to text as they arrive, up to the token or stop string that ends it.
class ChoiceText {
 public:
  // New text, and newly accepted tokens. Text may lag behind its tokens: within a character, or
  // within a possible stop string.
  struct Piece {
    std::string text;
    // All drawn tokens, including the one that ended the choice.
    std::vector<engine::TokenEvent> tokens;
    // By token: the number of characters of all tokens before it, with special ones as written.
    std::vector<std::int64_t> offsets;
  };

  // `stops` are those of the rules, which must outlive this.
  ChoiceText(const TextRules& rules, std::shared_ptr<const text::StopStrings> stops)
      : rules_(&rules),
        decoder_(*rules.tokenizer, false),
        matcher_(std::move(stops), rules.include_stop) {}

  // Must not be called after stopped().
  Piece push(engine::TokenEvent token);
  // Call at the end of the choice, for the rest; `by_token`: the last token ended it.
  Piece finish(bool by_token);

  // Whether a stop string has completed.
  bool stopped() const { return stop_.has_value(); }
  // The index of that stop string in the rules.
  std::optional<std::size_t> stop() const { return stop_; }
  // The tokens whose text was passed on as a whole, or is hidden.
  std::int64_t kept_tokens() const { return kept_tokens_; }

 private:
  // Adds an accepted token, and its text unless it is a hidden end.
  void take(engine::TokenEvent token, bool shown, Piece& piece);
  void take_text(std::string_view decoded, Piece& piece);
  void count_kept();
  bool shows(std::int32_t id) const;
  std::string decode(std::int32_t id);

  const TextRules* rules_;
  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  std::optional<engine::TokenEvent> held_;  // may be the token that ends the choice
  std::int64_t tokens_ = 0;
  std::int64_t kept_tokens_ = 0;
  std::int64_t decoded_bytes_ = 0;
  std::int64_t passed_bytes_ = 0;
  // Where the texts of tokens end that are not counted as kept yet, in bytes of decoded text.
  std::deque<std::int64_t> ends_;
  std::int64_t characters_ = 0;
  bool after_special_ = false;  // that is shown
  std::optional<std::size_t> stop_;
};

}  // namespace motley::serving
