#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"

// What the engine says about a request. Events own what they hold, and are moved from the engine's
// thread to the one that answers.
namespace motley::engine {

struct TopLogprob {
  std::int32_t token = 0;
  float logprob = 0;
};

// Sent when the request begins to run.
struct StartEvent {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  // Of the adapter's content, which the answer is made with up to a VersionEvent; of several
  // adapters all of them, with commas between. Empty: the base.
  std::string adapter_version = {};
};

// The adapter was replaced by content to which running requests switch: the tokens that follow, of
// all choices, are drawn with it.
struct VersionEvent {
  std::string adapter_version = {};
};

// Log-probabilities of a piece of the prompt, in order of tokens: entry i is that of token `first +
// i` given those before it. The first token of a prompt has none, so the first piece begins at 1,
// or where the request says.
struct PromptEvent {
  std::int64_t first = 0;
  std::vector<float> logprobs = {};  // [pieces]
  // [pieces], or empty: among all tokens by log-probability, from 1 on; equal ones by rising id.
  std::vector<std::int32_t> ranks = {};
  std::vector<TopLogprob> top = {};  // [pieces, prompt_top]: the most probable tokens there
  std::vector<float> named = {};     // [pieces, width]: of the tokens that the request names there

  // The alternatives of an entry, at most `most`.
  std::span<const TopLogprob> likeliest(std::size_t entry, std::size_t most) const {
    const std::size_t width = top.size() / logprobs.size();
    return std::span(top).subspan(entry * width, std::min(width, most));
  }
};

// The next token of a choice.
struct TokenEvent {
  int choice = 0;
  std::int32_t id = 0;
  float logprob = 0;      // if the request asks for log-probabilities
  std::int32_t rank = 0;  // among all tokens, from 1 on, if the request asks for ranks
  // The most probable first; or those that the request names, in its order.
  std::vector<TopLogprob> top = {};
  std::vector<std::int32_t> top_ranks = {};  // of named ones, if the request asks for ranks
};

// The experts of adjacent tokens, sent when the model has computed them. Those of the last token of
// an answer never come: it is no input of the model.
struct RoutedExpertsEvent {
  std::optional<int> choice = {};      // whose tokens they are; nothing: the prompt's
  std::int64_t first = 0;              // position of the first, in prompt and answer
  std::vector<std::uint8_t> ids = {};  // by token, as RoutedExpertsSizes says
};

enum class FinishReason : std::uint8_t {
  stop,       // a token of end_ids or stop_ids, or the grammar has ended
  length,     // max_tokens, or the longest sequence that the model or the memory allows
  cancelled,  // by cancel()
  aborted,    // by abort() or a pause: the choice keeps what it has
};

struct ChoiceEvent {
  int choice = 0;
  FinishReason reason = FinishReason::stop;
  std::optional<std::int32_t> stop_token = {};  // the token that ended it, if any
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;  // of all choices
};

// The last one is Usage, when all choices are finished, or Error: the request has failed, whatever
// came before.
using Event = std::variant<StartEvent, VersionEvent, PromptEvent, TokenEvent, RoutedExpertsEvent,
                           ChoiceEvent, Usage, Error>;

inline bool is_last(const Event& event) {
  return std::holds_alternative<Usage>(event) || std::holds_alternative<Error>(event);
}

// Receives the events of a request, on the engine's thread, one at a time; the engine releases it
// after the last one.
class EventSink {
 public:
  virtual ~EventSink() = default;

  // Must not block, call the engine and wait for the result (cancel() is fine), or throw: a sink
  // that runs out of memory reports that to its client itself.
  virtual void take(Event event) = 0;
};

// Ends a request with this error, or, where there is no memory for its copy, with one that says so.
void report_failure(EventSink& sink, const Error& error);

}  // namespace motley::engine
