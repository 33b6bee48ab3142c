#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/test_waits.h"
#include "engine/requests/events.h"

// Sinks that record a request's events.
namespace motley::engine::test {

// The experts of a token in FakeExecutor's model.
inline constexpr std::size_t routed_bytes = 6;

class MemorySink final : public EventSink {
 public:
  explicit MemorySink(int choices = 1)
      : tokens(static_cast<std::size_t>(choices)), routed(tokens.size()) {
    reasons.resize(tokens.size());
  }

  void take(Event event) override {
    MOTLEY_CHECK(!closed(), "nothing follows the last event");
    std::visit([this](auto& each) { keep(each); }, event);
  }
  bool closed() const { return usage || error; }

  struct Version {
    std::string version = {};
    std::size_t tokens_before = 0;  // of all choices
  };

  std::optional<StartEvent> start;
  std::vector<Version> versions;
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<float> logprobs;
  std::int64_t first_scored = 0;            // token of the prompt
  std::vector<float> scores;                // of prompt tokens from there on
  std::vector<float> named;                 // of the tokens that are named for these
  std::optional<std::int64_t> routed_from;  // the first position with experts
  std::vector<std::uint8_t> routed_prompt;
  std::vector<std::vector<std::uint8_t>> routed;  // by choice
  std::vector<std::optional<FinishReason>> reasons;
  std::optional<Usage> usage;
  std::optional<Error> error;

 private:
  void keep(const StartEvent& event) {
    MOTLEY_CHECK(!start, "a request starts once");
    start = event;
    versions.push_back({.version = event.adapter_version});
  }
  void keep(const VersionEvent& event) {
    MOTLEY_CHECK(start && event.adapter_version != versions.back().version, "a version changes");
    std::size_t so_far = 0;
    for (const auto& each : tokens) so_far += each.size();
    versions.push_back({.version = event.adapter_version, .tokens_before = so_far});
  }
  void keep(const PromptEvent& event) {
    if (scores.empty()) first_scored = event.first;
    MOTLEY_CHECK(event.first == first_scored + std::ssize(scores),
                 "pieces of a prompt come in order");
    scores.insert(scores.end(), event.logprobs.begin(), event.logprobs.end());
    named.insert(named.end(), event.named.begin(), event.named.end());
  }
  void keep(const RoutedExpertsEvent& event) {
    std::vector<std::uint8_t>& ids =
        event.choice ? routed[static_cast<std::size_t>(*event.choice)] : routed_prompt;
    const std::size_t before = routed_prompt.size() + (event.choice ? ids.size() : 0);
    if (!routed_from) routed_from = event.first;
    MOTLEY_CHECK(event.first == *routed_from + static_cast<std::int64_t>(before / routed_bytes),
                 "experts come in order, each once");
    ids.insert(ids.end(), event.ids.begin(), event.ids.end());
  }
  void keep(const TokenEvent& event) {
    MOTLEY_CHECK(!reasons[static_cast<std::size_t>(event.choice)], "no token behind the end");
    tokens[static_cast<std::size_t>(event.choice)].push_back(event.id);
    logprobs.push_back(event.logprob);
  }
  void keep(const ChoiceEvent& event) {
    auto& reason = reasons[static_cast<std::size_t>(event.choice)];
    MOTLEY_CHECK(!reason, "a choice finishes once");
    reason = event.reason;
  }
  void keep(const Usage& all) { usage = all; }
  void keep(Error& why) { error = std::move(why); }
};

// Lets a test wait for what an engine's thread brings.
class WaitingSink final : public EventSink {
 public:
  explicit WaitingSink(int choices = 1) : memory_(choices) {}

  void take(Event event) override {
    monitor_.change([&] { memory_.take(std::move(event)); });
  }

  const MemorySink& wait() const {
    monitor_.wait("the request ends", [this] { return memory_.closed(); });
    return memory_;
  }
  void wait_for_tokens(std::size_t count) const {
    monitor_.wait("the request has its first tokens",
                  [&] { return memory_.closed() || memory_.tokens[0].size() >= count; });
  }
  bool closed() const {
    return monitor_.look([this] { return memory_.closed(); });
  }
  std::size_t tokens() const {
    return monitor_.look([this] { return memory_.tokens[0].size(); });
  }

 private:
  motley::test::Monitor monitor_;
  MemorySink memory_;
};

}  // namespace motley::engine::test
