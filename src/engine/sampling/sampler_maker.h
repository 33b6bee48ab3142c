#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/grammar/service.h"
#include "engine/sampling/sampler.h"

namespace motley::engine {

// Makes SamplingStates, for executors that use SamplingBatch. Must outlive them.
class SamplerMaker final : public SamplerFactory {
 public:
  // Without `tokens`, requests with grammars are refused. `seed` derives the seeds of requests that
  // have none.
  SamplerMaker(std::optional<GrammarTokens> tokens, std::uint64_t seed,
               const GrammarService::Options& options = {});

  // At once, or on the grammars' thread if one has to be compiled.
  Abandon prepare(const Request& request, Prepared done) override;
  void set_wake(std::function<void()> wake) override;
  GrammarStats grammar_stats() const override;

 private:
  std::uint64_t next_seed();

  std::uint64_t seed_;
  std::atomic<std::uint64_t> requests_ = 0;
  std::unique_ptr<GrammarService> grammars_;
};

}  // namespace motley::engine
