#pragma once

#include <cstdint>
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
  bool include_stop = false;
  // Tokens that may end a choice. The one that did is no part of the text.
  std::unordered_set<std::int32_t> ends = {};
  // Special tokens that stay in the text all the same.
  std::unordered_set<std::int32_t> visible = {};
};

// A choice's tokens as text: decoded as they come, up to the token or the stop string that ends it.
class ChoiceText {
 public:
  // New text, and the tokens that belong to the answer from now on. Text may come later than its
  // tokens: in the middle of a character, or of what may become a stop string.
  struct Piece {
    std::string text;
    std::vector<SampledToken> tokens;
    // For each token, how many characters of decoded text stood before it.
    std::vector<std::int64_t> offsets;
  };

  // Refuses an empty stop string.
  static Result<ChoiceText> make(const TextRules& rules);

  // Nothing may be pushed once stopped().
  Piece push(SampledToken token);
  // The rest, where the choice has ended; `by_token` if the last token ended it.
  Piece finish(bool by_token);

  // A stop string is complete.
  bool stopped() const { return stopped_; }

 private:
  ChoiceText(const TextRules& rules, text::StopMatcher matcher)
      : rules_(&rules), decoder_(*rules.tokenizer, false), matcher_(std::move(matcher)) {}

  void take(SampledToken token, Piece& piece);
  void take_text(std::string_view decoded, Piece& piece);

  const TextRules* rules_;
  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  std::optional<SampledToken> held_;  // may be the one that ends the choice
  std::int64_t characters_ = 0;
  bool stopped_ = false;
};

}  // namespace motley::server
