#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/sampling/sampler.h"
#include "grammar/service.h"

namespace motley::engine {

// Makes SamplingStates, for executors that use SamplingBatch. Must outlive them.
class SamplerMaker final : public SamplerFactory {
 public:
  // Without `tokens`, requests with grammars are refused. `seed` derives the seeds of requests that
  // have none.
  SamplerMaker(std::optional<grammar::Tokens> tokens, std::uint64_t seed,
               const grammar::Service::Options& options = {});

  // At once, or on the grammars' thread if one has to be compiled.
  Abandon prepare(const Request& request, Prepared done) override;
  void set_wake(std::function<void()> wake) override;
  grammar::Stats grammar_stats() const override;

 private:
  std::uint64_t next_seed();

  std::uint64_t seed_;
  std::atomic<std::uint64_t> requests_ = 0;
  std::unique_ptr<grammar::Service> grammars_;
};

}  // namespace motley::engine
