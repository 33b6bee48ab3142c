#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "engine/request.h"
#include "engine/stats.h"

namespace motley::engine {

// How one sequence's tokens are drawn: its parameters and what they depend on, such as counts of
// its tokens, its place among random numbers, where it stands in its grammar. Belongs to the
// sequence and goes with it when it is preempted, so that nothing is drawn twice.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // Of another choice of the same request, before anything was drawn.
  virtual std::unique_ptr<Sampler> fork(int choice) const = 0;
  // Whether the next token can be drawn: a grammar's mask is made beside steps and takes its time.
  virtual bool ready() const { return true; }
  // Why no token can be drawn any more: the request fails, and nothing else does.
  virtual std::optional<Error> failure() const { return std::nullopt; }
};

// Makes the samplers that an executor draws with.
class SamplerFactory {
 public:
  virtual ~SamplerFactory() = default;

  // The sampler of a request's first choice, at once or later and on any thread: grammars take
  // their time. Calls `done` exactly once, with an error where the request's grammar has one.
  using Prepared = std::function<void(Result<std::unique_ptr<Sampler>>)>;
  // Ends a preparation: `done` is called soon. Null where there is nothing to end.
  using Abandon = std::function<void()>;
  virtual Abandon prepare(const Request& request, Prepared done) = 0;

  // Called from any thread when a sampler that was not ready has become so.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it
  virtual void set_wake(std::function<void()> /*wake*/) {}
  virtual GrammarStats grammar_stats() const { return {}; }
};

}  // namespace motley::engine
