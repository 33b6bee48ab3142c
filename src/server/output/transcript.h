#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "engine/events.h"
#include "server/output/choice_text.h"

namespace motley::server {

// What the engine reports of a request, kept beyond the call that reports it.
struct PromptScores {
  std::int64_t first = 0;  // token of the prompt that the first entry is of
  std::vector<float> logprobs;
  std::vector<engine::TopLogprob> top;  // [logprobs, top_logprobs]

  // Of an entry, at most so many.
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
  std::size_t prompt = 0;  // which prompt of the HTTP request
  std::variant<engine::StartEvent, PromptScores, ChoiceToken, engine::ChoiceEvent, engine::Usage,
               Error>
      what;
};

enum class EndOfChoice : std::uint8_t { stop, length };

// What is new of a choice. Choices of all prompts are counted through.
struct ChoiceUpdate {
  std::size_t index = 0;
  ChoiceText::Piece piece;
  std::optional<EndOfChoice> end;
  std::optional<std::size_t> stop = {};  // which of the rules' stop strings has ended it
};

struct TokenCounts {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t completion = 0;
};

// The answer to an HTTP request as it grows: the texts of all choices of all its prompts.
class Transcript {
 public:
  static Result<Transcript> make(TextRules rules, std::size_t prompts, std::size_t choices);

  std::optional<ChoiceUpdate> take(EngineNews news);

  // Choices that a stop string has ended since the last call, as (prompt, choice): the engine still
  // works on them.
  std::vector<std::pair<std::size_t, int>> take_stopped() { return std::exchange(stopped_, {}); }

  // No more news comes of any prompt.
  void fail(Error error) {
    failure_ = std::move(error);
    prompts_done_ = prompts_;
  }

  // Every prompt has had its last news.
  bool done() const { return prompts_done_ == prompts_; }
  const std::optional<Error>& failure() const { return failure_; }
  const TokenCounts& counts() const { return counts_; }
  // Of the prompts that have begun to run: known before counts() is whole.
  const TokenCounts& counts_at_start() const { return counts_at_start_; }
  // What the engine reported of a prompt's tokens so far.
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

  std::unique_ptr<TextRules> rules_;  // at one place, for the choices
  std::size_t prompts_;
  std::size_t choices_each_;
  std::vector<Choice> choices_;
  std::vector<std::pair<std::size_t, int>> stopped_;
  std::vector<PromptScores> scores_;  // by prompt
  std::size_t prompts_done_ = 0;
  std::optional<Error> failure_;
  TokenCounts counts_;
  TokenCounts counts_at_start_;
};

}  // namespace motley::server
