#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "engine/events.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace motley::server {

// A token as it came from the engine, to be kept.
struct SampledToken {
  std::int32_t id = 0;
  float logprob = 0;
  std::vector<engine::TopLogprob> top = {};
};

// How the tokens of choices become text; the same for all choices of a request.
struct TextRules {
  const text::Tokenizer* tokenizer = nullptr;
  std::vector<std::string> stop = {};
  // The stop string, or the text of the token, that ended a choice is part of the text.
  bool include_stop = false;
  // A stop string ends a choice only if it is complete in the text of tokens after these.
  std::int64_t min_tokens = 0;
  // Tokens that may end a choice.
  std::unordered_set<std::int32_t> ends = {};
  // Special tokens are no part of the text, but for the visible ones.
  bool skip_special = true;
  std::unordered_set<std::int32_t> visible = {};
  // Without them a special token behind another adds what it is called and nothing else.
  bool spaces_between_special = true;
};

// A choice's tokens as text: decoded as they come, up to the token or the stop string that ends it.
class ChoiceText {
 public:
  // New text, and the tokens that belong to the answer from now on. Text may come later than its
  // tokens: in the middle of a character, or of what may become a stop string.
  struct Piece {
    std::string text;
    // All that were drawn, the one that ended the choice too.
    std::vector<SampledToken> tokens;
    // For each token, how many characters all tokens before it have, special ones as they are
    // written.
    std::vector<std::int64_t> offsets;
  };

  // `stops` are those of the rules, which must outlive the choice.
  ChoiceText(const TextRules& rules, std::shared_ptr<const text::StopStrings> stops)
      : rules_(&rules),
        decoder_(*rules.tokenizer, false),
        matcher_(std::move(stops), rules.include_stop) {}

  // Nothing may be pushed once stopped().
  Piece push(SampledToken token);
  // The rest, where the choice has ended; `by_token` if the last token ended it.
  Piece finish(bool by_token);

  // A stop string is complete.
  bool stopped() const { return stop_.has_value(); }
  // Which of those of the rules.
  std::optional<std::size_t> stop() const { return stop_; }

 private:
  // Adds a token to those of the answer, and its text unless it is the end that shows none.
  void take(SampledToken token, bool shown, Piece& piece);
  void take_text(std::string_view decoded, Piece& piece);
  bool shows(std::int32_t id) const;
  std::string decode(std::int32_t id);

  const TextRules* rules_;
  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  std::optional<SampledToken> held_;  // may be the one that ends the choice
  std::int64_t tokens_ = 0;
  std::int64_t characters_ = 0;
  bool after_special_ = false;  // that is shown
  std::optional<std::size_t> stop_;
};

}  // namespace motley::server
