#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "engine/requests/event_queue.h"
#include "serving/answers/choice_text.h"
#include "serving/answers/routed_tokens.h"

namespace motley::serving {

// New text and tokens of a choice. Choices are numbered across all prompts.
struct ChoiceUpdate {
  std::size_t index = 0;
  ChoiceText::Piece piece;
  std::optional<engine::FinishReason> end;  // `stop`, `length` or `aborted`
  std::optional<std::size_t> stop = {};     // index of the stop string that ended it, if one did
  std::optional<std::int32_t> stop_token = {};  // the token that ended it, if one did
};

// The version of the adapter's content that a choice's tokens were made with, from token `first`
// on. Empty: the base.
struct VersionSpan {
  std::string version;
  std::int64_t first = 0;
};

// The growing answer to an HTTP request: the texts of all choices of all its prompts.
class Transcript {
 public:
  static Result<Transcript> make(TextRules rules, std::size_t prompts, std::size_t choices);

  std::optional<ChoiceUpdate> take(engine::EventQueue::Entry arrived);

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
  const engine::Usage& usage() const { return usage_; }
  // For prompts that have begun to run: available before usage() is final.
  const engine::Usage& usage_at_start() const { return usage_at_start_; }
  // Of the adapters' content, as the events have it; of several contents all, with commas between.
  std::string adapter_version() const { return join(versions_, ","); }
  // Of a choice, in order.
  std::vector<VersionSpan> versions_of(std::size_t index) const;
  // The tokens of a choice so far.
  std::int64_t drawn(std::size_t index) const { return choices_[index].drawn; }
  // The engine's scores of the prompt's tokens so far.
  const std::vector<engine::PromptEvent>& prompt_scores() const { return scores_; }
  // The experts of tokens so far.
  const RoutedTokens& routed() const { return routed_; }

 private:
  struct Choice {
    ChoiceText text;
    std::int64_t drawn = 0;  // tokens
    bool ended = false;
    std::vector<VersionSpan> switches = {};  // after the prompt's first version
  };

  Transcript(std::unique_ptr<TextRules> rules, std::size_t prompts, std::size_t choices)
      : rules_(std::move(rules)),
        prompts_(prompts),
        choices_each_(choices),
        scores_(prompts),
        routed_(prompts, choices),
        first_versions_(prompts) {}

  std::optional<ChoiceUpdate> take_token(std::size_t prompt, engine::TokenEvent token);
  std::optional<ChoiceUpdate> take_end(std::size_t prompt, const engine::ChoiceEvent& event);
  void take_scores(std::size_t prompt, engine::PromptEvent scores);
  void take_routed(std::size_t prompt, const engine::RoutedExpertsEvent& event);
  void end_prompt(std::optional<Error> failure);
  void take_version(std::size_t prompt, const engine::VersionEvent& event);
  void add_versions(std::string_view versions);

  std::unique_ptr<TextRules> rules_;  // at a fixed address, because choices refer to it
  std::size_t prompts_;
  std::size_t choices_each_;
  std::vector<Choice> choices_;
  std::vector<Stopped> stopped_;
  std::vector<engine::PromptEvent> scores_;  // by prompt
  RoutedTokens routed_;
  std::size_t prompts_done_ = 0;
  std::optional<Error> failure_;
  engine::Usage usage_;
  engine::Usage usage_at_start_;
  std::vector<std::string> first_versions_;  // by prompt
  std::vector<std::string> versions_;        // of adapters, each once
};

}  // namespace motley::serving
