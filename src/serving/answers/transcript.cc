#include "serving/answers/transcript.h"

#include <algorithm>
#include <utility>

#include "base/overloaded.h"

namespace motley::serving {

Result<Transcript> Transcript::make(TextRules rules, std::size_t prompts, std::size_t choices) {
  Transcript transcript(std::make_unique<TextRules>(std::move(rules)), prompts, choices);
  MOTLEY_TRY(const auto stops, text::StopStrings::make(transcript.rules_->stop));
  transcript.choices_.reserve(prompts * choices);
  for (std::size_t i = 0; i < prompts * choices; ++i)
    transcript.choices_.push_back({.text = ChoiceText(*transcript.rules_, stops)});
  return transcript;
}

std::optional<ChoiceUpdate> Transcript::take(engine::EventQueue::Entry arrived) {
  const std::size_t prompt = arrived.request;
  std::optional<ChoiceUpdate> update;
  std::visit(Overloaded{
                 [&](const engine::StartEvent& start) {
                   usage_at_start_.prompt_tokens += start.prompt_tokens;
                   usage_at_start_.cached_tokens += start.cached_tokens;
                   first_versions_[prompt] = start.adapter_version;
                   add_versions(start.adapter_version);
                 },
                 [&](const engine::VersionEvent& next) { take_version(prompt, next); },
                 [&](engine::PromptEvent& scores) { take_scores(prompt, std::move(scores)); },
                 [&](engine::TokenEvent& token) { update = take_token(prompt, std::move(token)); },
                 [&](const engine::RoutedExpertsEvent& routed) { take_routed(prompt, routed); },
                 [&](const engine::ChoiceEvent& end) { update = take_end(prompt, end); },
                 [&](const engine::Usage& usage) {
                   usage_.prompt_tokens += usage.prompt_tokens;
                   usage_.cached_tokens += usage.cached_tokens;
                   end_prompt(std::nullopt);
                 },
                 [&](Error& error) { end_prompt(std::move(error)); },
             },
             arrived.event);
  return update;
}

void Transcript::take_version(std::size_t prompt, const engine::VersionEvent& event) {
  for (std::size_t i = prompt * choices_each_; i < (prompt + 1) * choices_each_; ++i) {
    Choice& choice = choices_[i];
    // None was drawn with the one before.
    if (!choice.switches.empty() && choice.switches.back().first == choice.drawn)
      choice.switches.pop_back();
    choice.switches.push_back({.version = event.adapter_version, .first = choice.drawn});
  }
  add_versions(event.adapter_version);
}

std::vector<VersionSpan> Transcript::versions_of(std::size_t index) const {
  std::vector<VersionSpan> spans = {{.version = first_versions_[index / choices_each_]}};
  const std::vector<VersionSpan>& later = choices_[index].switches;
  spans.insert(spans.end(), later.begin(), later.end());
  return spans;
}

// No version has a comma.
void Transcript::add_versions(std::string_view versions) {
  while (!versions.empty()) {
    const std::size_t end = std::min(versions.find(','), versions.size());
    const std::string_view version = versions.substr(0, end);
    if (std::ranges::find(versions_, version) == versions_.end()) versions_.emplace_back(version);
    versions.remove_prefix(std::min(end + 1, versions.size()));
  }
}

std::optional<ChoiceUpdate> Transcript::take_token(std::size_t prompt, engine::TokenEvent token) {
  const int number = token.choice;
  const std::size_t index = prompt * choices_each_ + static_cast<std::size_t>(number);
  Choice& choice = choices_[index];
  if (choice.ended) return std::nullopt;
  ++usage_.completion_tokens;
  ++choice.drawn;
  ChoiceUpdate update{.index = index, .piece = choice.text.push(std::move(token))};
  if (choice.text.stopped()) {
    choice.ended = true;
    update.end = engine::FinishReason::stop;
    update.stop = choice.text.stop();
    stopped_.push_back(
        {.prompt = prompt, .choice = number, .kept_tokens = choice.text.kept_tokens()});
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
  update.end = choice.text.stopped() ? engine::FinishReason::stop : event.reason;
  update.stop = choice.text.stop();
  if (!update.stop) update.stop_token = event.stop_token;
  return update;
}

void Transcript::take_scores(std::size_t prompt, engine::PromptEvent scores) {
  engine::PromptEvent& all = scores_[prompt];
  if (all.logprobs.empty()) {
    all = std::move(scores);
    return;
  }
  all.logprobs.insert(all.logprobs.end(), scores.logprobs.begin(), scores.logprobs.end());
  all.ranks.insert(all.ranks.end(), scores.ranks.begin(), scores.ranks.end());
  all.top.insert(all.top.end(), scores.top.begin(), scores.top.end());
  all.named.insert(all.named.end(), scores.named.begin(), scores.named.end());
}

// Experts of tokens behind a stop string are as little of the answer as these tokens.
void Transcript::take_routed(std::size_t prompt, const engine::RoutedExpertsEvent& event) {
  if (!event.choice) return routed_.take_prompt(prompt, event.ids);
  const std::size_t index = prompt * choices_each_ + static_cast<std::size_t>(*event.choice);
  if (!choices_[index].ended) routed_.take_choice(index, event.ids);
}

void Transcript::end_prompt(std::optional<Error> failure) {
  ++prompts_done_;
  if (failure && !failure_) failure_ = std::move(failure);
}

}  // namespace motley::serving
