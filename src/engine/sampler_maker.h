#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/executor.h"
#include "engine/grammar/compiler.h"
#include "engine/grammar/grammar.h"
#include "engine/request.h"

namespace motley::engine {

// Makes the first choice's sampler of a request: Executor::prepare() of executors that draw through
// SamplingBatch.
class SamplerMaker {
 public:
  // Without a vocabulary requests with grammars are refused. `seed` begins the seeds of requests
  // that have none of their own.
  SamplerMaker(std::optional<GrammarVocabulary> vocabulary, std::uint64_t seed,
               const GrammarCompiler::Options& options = {});

  // At once, or from a thread of the compiler where a grammar has to be compiled. What it makes is
  // a SamplingState.
  void prepare(const Request& request, Executor::Prepared done);

 private:
  std::uint64_t next_seed();

  std::uint64_t seed_;
  std::atomic<std::uint64_t> requests_ = 0;
  std::unique_ptr<GrammarCompiler> compiler_;
};

}  // namespace motley::engine
