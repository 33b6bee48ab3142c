#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/system/clock.h"
#include "engine/execution/executor.h"
#include "engine/memory/kv_pages.h"
#include "engine/memory/state_slots.h"
#include "engine/requests/events.h"
#include "engine/requests/request.h"
#include "engine/residency/residency.h"
#include "engine/sequences/clients.h"
#include "engine/sequences/order.h"

namespace motley::engine {

// A request from its arrival to its last event. Resources belong to its sequences, according to
// their state.
struct Job {
  RequestId id = 0;
  Request request;
  std::shared_ptr<EventSink> sink;
  TimePoint accepted;
  TimePoint begun;  // once it has started
  TimePoint first_token;
  TimePoint last_token;
  NamedAdapters adapters;
  Client* client = nullptr;
  std::uint64_t tag = 0;           // its order among the client's requests
  std::uint64_t cost = 0;          // in tokens
  std::uint64_t turn = 0;          // of the client, once the request has started
  std::vector<std::int32_t> ends;  // tokens that end a choice; ascending

  bool started = false;
  std::string versions;  // of its adapters' content, as its client knows them
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  // The next prompt token whose log-probability is delivered; those before the request's first one
  // have none.
  std::int64_t scored = 1;
  std::vector<bool> closed;  // choices that have finished
  int open = 0;              // choices that have not finished
  // An error found during other work: the job fails after that.
  std::optional<Error> failure;

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.tokens.size()); }
  bool scoring() const { return request.prompt_logprobs && scored < prompt_tokens(); }
};

// The tokens of one choice; or, before the first draw, the prompt of several choices.
struct Sequence {
  std::shared_ptr<Job> job;
  int choice = 0;   // the first
  int choices = 1;  // the number of choices; 1 after forking
  bool forked = true;
  std::vector<std::int32_t> tokens;
  std::int64_t generated = 0;
  // If the job asks for experts: the first token whose experts were not delivered.
  std::int64_t routed_to = 0;
  std::unique_ptr<Sampler> sampler;  // before forking: the one from which those of the choices fork
  TimePoint last_token;

  Order order() const { return {job->request.priority, job->tag, job->id, choice}; }
  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  // Its first tokens, those that may be found in the prefix cache: results of others are needed.
  std::span<const std::int32_t> findable() const {
    std::size_t most = tokens.size();
    // A score needs the token before its own.
    if (job->scoring()) most = std::min(most, static_cast<std::size_t>(job->scored));
    // One more, because the last one is computed in any case.
    if (job->request.routed_experts_from)
      most = std::min(most, static_cast<std::size_t>(routed_to) + 1);
    return std::span(tokens).first(most);
  }
  // Choices of this sequence that have not been cancelled.
  int open() const {
    int count = 0;
    for (int i = choice; i < choice + choices; ++i)
      count += job->closed[static_cast<std::size_t>(i)] ? 0 : 1;
    return count;
  }
};

// Holds at most claims on adapters, and nothing else that others could use.
struct WaitingSequence {
  Sequence sequence;
  std::optional<Claim> claim = {};
  // Since when it waits for adapters that are not ready; nothing once they are.
  std::optional<TimePoint> asked = {};
  Duration without_adapters{};  // the time it waited for them before
  bool in_line = false;         // adapters are closing for it
  bool paused = false;          // it does not begin
};

using WaitingSequences = std::map<Order, WaitingSequence>;

// The place that a running sequence takes when it is preempted, allocated in advance so that
// preemption cannot fail.
inline WaitingSequences::node_type make_waiting_place() {
  WaitingSequences one;
  one.try_emplace(Order{});
  return one.extract(one.begin());
}

struct RunningSequence {
  Sequence sequence;
  Claim claim;
  SequencePages pages;
  StateSlot slot;
  WaitingSequences::node_type place;  // for when it is preempted
  std::int64_t computed = 0;          // tokens whose keys and values are in the pages
  std::int64_t anchor = 0;            // where its state stands
  std::int64_t saved = 0;             // the last position whose state was saved or restored
  std::int64_t matched = 0;           // at its begin: tokens whose pages were known
  // The copy that brings its state from the host: it is in no step before that has ended. 0: none.
  std::uint64_t loading = 0;
  bool done = false;      // removed at the end of the step
  bool paused = false;    // it is in no step
  bool held = false;      // its last draw waits: it is in no step until its sampler is ready
  std::int64_t rank = 0;  // index among the client's running sequences, by its weight

  std::int64_t remaining() const { return sequence.length() - computed; }
};

}  // namespace motley::engine
