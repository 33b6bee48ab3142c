#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "engine/requests/request.h"
#include "engine/stats/stats.h"

namespace motley::engine {

// Draws one sequence's tokens: its parameters and everything they depend on, such as counts of its
// tokens, its random numbers and its position in a grammar. Belongs to the sequence, also while it
// is preempted, so that nothing is drawn twice.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // For another choice of the same request, before anything was drawn.
  virtual std::unique_ptr<Sampler> fork(int choice) const = 0;
  // Whether the next token can be drawn: a grammar's mask is computed concurrently with steps.
  virtual bool ready() const { return true; }
  // Whether a draw may come to nothing because of that, so that its row is computed again.
  virtual bool may_wait() const { return false; }
  // Why no further token can be drawn: the request fails, and nothing else does.
  virtual std::optional<Error> failure() const { return std::nullopt; }
};

// Makes the samplers of an executor.
class SamplerFactory {
 public:
  virtual ~SamplerFactory() = default;

  // Receives the sampler of a request's first choice, at once or later, on any thread: grammars
  // take time. Called exactly once, with an error if the request's grammar is invalid.
  using Prepared = std::function<void(Result<std::unique_ptr<Sampler>>)>;
  // Ends a preparation: `done` is called soon. Null if there is nothing to end.
  using Abandon = std::function<void()>;
  virtual Abandon prepare(const Request& request, Prepared done) = 0;

  // Called from any thread when a sampler has become ready.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it
  virtual void set_wake(std::function<void()> /*wake*/) {}
  virtual grammar::Stats grammar_stats() const { return {}; }
};

}  // namespace motley::engine
