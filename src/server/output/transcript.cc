#include "server/output/transcript.h"

namespace motley::server {

Result<Transcript> Transcript::make(TextRules rules, std::size_t prompts, std::size_t choices) {
  Transcript transcript(std::make_unique<TextRules>(std::move(rules)), prompts, choices);
  MOTLEY_TRY(const auto stops, text::StopStrings::make(transcript.rules_->stop));
  transcript.choices_.reserve(prompts * choices);
  for (std::size_t i = 0; i < prompts * choices; ++i)
    transcript.choices_.push_back({.text = ChoiceText(*transcript.rules_, stops)});
  return transcript;
}

std::optional<ChoiceUpdate> Transcript::take(EngineNews news) {
  if (auto* const token = std::get_if<ChoiceToken>(&news.what))
    return take_token(news.prompt, std::move(*token));
  if (const auto* const end = std::get_if<engine::ChoiceEvent>(&news.what))
    return take_end(news.prompt, *end);
  if (auto* const scores = std::get_if<PromptScores>(&news.what)) {
    take_scores(news.prompt, std::move(*scores));
  } else if (const auto* const start = std::get_if<engine::StartEvent>(&news.what)) {
    counts_at_start_.prompt += start->prompt_tokens;
    counts_at_start_.cached += start->cached_tokens;
  } else if (const auto* const usage = std::get_if<engine::Usage>(&news.what)) {
    counts_.prompt += usage->prompt_tokens;
    counts_.cached += usage->cached_tokens;
    end_prompt(std::nullopt);
  } else if (auto* const error = std::get_if<Error>(&news.what)) {
    end_prompt(std::move(*error));
  }
  return std::nullopt;
}

std::optional<ChoiceUpdate> Transcript::take_token(std::size_t prompt, ChoiceToken token) {
  const std::size_t index = prompt * choices_each_ + static_cast<std::size_t>(token.choice);
  Choice& choice = choices_[index];
  if (choice.ended) return std::nullopt;
  ++counts_.completion;
  ChoiceUpdate update{.index = index, .piece = choice.text.push(std::move(token.token))};
  if (choice.text.stopped()) {
    choice.ended = true;
    update.end = EndOfChoice::stop;
    update.stop = choice.text.stop();
    stopped_.push_back(
        {.prompt = prompt, .choice = token.choice, .kept_tokens = choice.text.kept_tokens()});
  }
  return update;
}

std::optional<ChoiceUpdate> Transcript::take_end(std::size_t prompt,
                                                 const engine::ChoiceEvent& event) {
  const std::size_t index = prompt * choices_each_ + static_cast<std::size_t>(event.choice);
  Choice& choice = choices_[index];
  if (choice.ended) return std::nullopt;
  choice.ended = true;
  if (event.reason == engine::FinishReason::cancelled) {
    // Unless we cancelled it: events after a stop string are ignored.
    if (!failure_)
      failure_ = Error(ErrorCode::unavailable, "the answer was cut off", "",
                       "the server is shutting down: ask again, elsewhere");
    return std::nullopt;
  }
  ChoiceUpdate update{.index = index, .piece = choice.text.finish(event.stop_token.has_value())};
  const bool stopped = choice.text.stopped() || event.reason == engine::FinishReason::stop;
  update.end = stopped ? EndOfChoice::stop : EndOfChoice::length;
  update.stop = choice.text.stop();
  return update;
}

void Transcript::take_scores(std::size_t prompt, PromptScores scores) {
  PromptScores& all = scores_[prompt];
  if (all.logprobs.empty()) all.first = scores.first;
  all.logprobs.insert(all.logprobs.end(), scores.logprobs.begin(), scores.logprobs.end());
  all.ranks.insert(all.ranks.end(), scores.ranks.begin(), scores.ranks.end());
  all.top.insert(all.top.end(), scores.top.begin(), scores.top.end());
}

void Transcript::end_prompt(std::optional<Error> failure) {
  ++prompts_done_;
  if (failure && !failure_) failure_ = std::move(failure);
}

}  // namespace motley::server
