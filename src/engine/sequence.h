#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/events.h"
#include "engine/executor.h"
#include "engine/fair_order.h"
#include "engine/kv_pages.h"
#include "engine/request.h"
#include "engine/residency.h"

namespace motley::engine {

// A request from its arrival to its last event. It holds nothing that others wait for: what a
// sequence needs to run belongs to the sequence, by the state it is in.
struct Job {
  RequestId id = 0;
  Request request;
  std::shared_ptr<RequestSink> sink;
  TimePoint accepted;
  NamedAdapters adapters;
  std::uint64_t tag = 0;
  std::vector<std::int32_t> ends;  // that end a choice; ascending

  bool started = false;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  // Of the prompt, with a log-probability that was delivered; the first has none.
  std::int64_t scored = 1;
  std::vector<bool> closed;  // choices that have finished
  int open = 0;              // choices that have not

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.tokens.size()); }
  bool scoring() const { return request.prompt_logprobs && scored < prompt_tokens(); }
};

// The tokens of one choice; or, unborn, the prompt of several that nothing was drawn for yet.
struct Sequence {
  std::shared_ptr<Job> job;
  int choice = 0;   // the first
  int choices = 1;  // how many; born, it is one
  bool born = true;
  std::vector<std::int32_t> tokens;
  std::int64_t generated = 0;
  std::unique_ptr<Sampler> sampler;  // unborn: what those of the choices are forked from
  TimePoint last_token;

  Order order() const { return {job->request.priority, job->tag, job->id, choice}; }
  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  // Choices of this sequence that have not been cancelled.
  int open() const {
    int count = 0;
    for (int i = choice; i < choice + choices; ++i)
      count += job->closed[static_cast<std::size_t>(i)] ? 0 : 1;
    return count;
  }
};

// Has adapters at most, and nothing else that others could use.
struct WaitingSequence {
  Sequence sequence;
  std::optional<Claim> claim = {};
  // Since when it waits for adapters that were not there; nothing once they are.
  std::optional<TimePoint> asked = {};
  Duration without_adapters{};  // how long it has, before
  bool in_line = false;         // room is being made for its adapters
};

struct RunningSequence {
  Sequence sequence;
  Claim claim;
  SequencePages pages;
  std::int64_t computed = 0;  // tokens whose keys and values are in the pages
  bool done = false;          // goes at the end of the step

  std::int64_t remaining() const { return sequence.length() - computed; }
};

}  // namespace motley::engine
