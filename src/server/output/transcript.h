#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "engine/requests/events.h"
#include "server/output/choice_text.h"

namespace motley::server {

// A copy of the engine's PromptEvent.
struct PromptScores {
  std::int64_t first = 0;  // the prompt token of the first entry
  std::vector<float> logprobs;
  std::vector<std::int32_t> ranks;      // empty: not known
  std::vector<engine::TopLogprob> top;  // [logprobs, prompt_top]

  // The alternatives of an entry, at most `most`.
  std::span<const engine::TopLogprob> likeliest(std::size_t entry, std::size_t most) const {
    const std::size_t width = top.size() / logprobs.size();
    return std::span(top).subspan(entry * width, std::min(width, most));
  }
};
struct ChoiceToken {
  int choice = 0;
  SampledToken token;
};
struct EngineNews {
  std::size_t prompt = 0;  // index of the prompt in the HTTP request
  std::variant<engine::StartEvent, PromptScores, ChoiceToken, engine::ChoiceEvent, engine::Usage,
               Error>
      what;
};

enum class EndOfChoice : std::uint8_t { stop, length };

// New text and tokens of a choice. Choices are numbered across all prompts.
struct ChoiceUpdate {
  std::size_t index = 0;
  ChoiceText::Piece piece;
  std::optional<EndOfChoice> end;
  std::optional<std::size_t> stop = {};  // index of the stop string that ended it, if one did
};

struct TokenCounts {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t completion = 0;
};

// The growing answer to an HTTP request: the texts of all choices of all its prompts.
class Transcript {
 public:
  static Result<Transcript> make(TextRules rules, std::size_t prompts, std::size_t choices);

  std::optional<ChoiceUpdate> take(EngineNews news);

  // Choices that a stop string has ended since the last call; the engine still generates them.
  struct Stopped {
    std::size_t prompt = 0;
    int choice = 0;
    std::int64_t kept_tokens = 0;  // before the stop string
  };
  std::vector<Stopped> take_stopped() { return std::exchange(stopped_, {}); }

  // No more events will arrive.
  void fail(Error error) {
    failure_ = std::move(error);
    prompts_done_ = prompts_;
  }

  // The last event of every prompt has arrived.
  bool done() const { return prompts_done_ == prompts_; }
  const std::optional<Error>& failure() const { return failure_; }
  const TokenCounts& counts() const { return counts_; }
  // For prompts that have begun to run: available before counts() is final.
  const TokenCounts& counts_at_start() const { return counts_at_start_; }
  // The engine's scores of the prompt's tokens so far.
  const std::vector<PromptScores>& prompt_scores() const { return scores_; }

 private:
  struct Choice {
    ChoiceText text;
    bool ended = false;
  };

  Transcript(std::unique_ptr<TextRules> rules, std::size_t prompts, std::size_t choices)
      : rules_(std::move(rules)), prompts_(prompts), choices_each_(choices), scores_(prompts) {}

  std::optional<ChoiceUpdate> take_token(std::size_t prompt, ChoiceToken token);
  std::optional<ChoiceUpdate> take_end(std::size_t prompt, const engine::ChoiceEvent& event);
  void take_scores(std::size_t prompt, PromptScores scores);
  void end_prompt(std::optional<Error> failure);

  std::unique_ptr<TextRules> rules_;  // at a fixed address, because choices refer to it
  std::size_t prompts_;
  std::size_t choices_each_;
  std::vector<Choice> choices_;
  std::vector<Stopped> stopped_;
  std::vector<PromptScores> scores_;  // by prompt
  std::size_t prompts_done_ = 0;
  std::optional<Error> failure_;
  TokenCounts counts_;
  TokenCounts counts_at_start_;
};

}  // namespace motley::server
