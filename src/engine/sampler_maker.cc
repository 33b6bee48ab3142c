#include "engine/sampler_maker.h"

#include <utility>

#include "engine/sampling_state.h"
#include "kernels/sampling_arithmetic.h"

namespace motley::engine {

SamplerMaker::SamplerMaker(std::optional<GrammarVocabulary> vocabulary, std::uint64_t seed,
                           const GrammarCompiler::Options& options)
    : seed_(seed) {
  if (!vocabulary) return;
  compiler_ = std::make_unique<GrammarCompiler>(
      [tokens = *std::move(vocabulary)](const GrammarSpec& spec) {
        return Grammar::compile(spec, tokens);
      },
      options);
}

std::uint64_t SamplerMaker::next_seed() {
  return kernels::sampling::random_bits(seed_, requests_.fetch_add(1));
}

void SamplerMaker::prepare(const Request& request, Executor::Prepared done) {
  const std::optional<GrammarSpec>& spec = request.sampling.grammar;
  if (!spec) {
    done(std::unique_ptr<Sampler>(
        std::make_unique<SamplingState>(request, std::nullopt, next_seed())));
    return;
  }
  if (compiler_ == nullptr) {
    done(Error(ErrorCode::unsupported, "this model's tokens can't follow a grammar", "grammar",
               "leave it out"));
    return;
  }
  compiler_->submit(
      *spec, [request, seed = next_seed(), done = std::move(done)](const Result<Grammar>& grammar) {
        if (!grammar.ok()) return done(grammar.error());
        done(std::unique_ptr<Sampler>(std::make_unique<SamplingState>(request, *grammar, seed)));
      });
}

}  // namespace motley::engine
