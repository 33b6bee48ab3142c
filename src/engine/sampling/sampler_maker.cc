#include "engine/sampling/sampler_maker.h"

#include <utility>

#include "base/system/out_of_memory.h"
#include "engine/sampling/sampling_state.h"
#include "kernels/sampling_arithmetic.h"

namespace motley::engine {

SamplerMaker::SamplerMaker(std::optional<grammar::Tokens> tokens, std::uint64_t seed,
                           const grammar::Service::Options& options)
    : seed_(seed) {
  if (tokens) grammars_ = std::make_unique<grammar::Service>(*std::move(tokens), options);
}

std::uint64_t SamplerMaker::next_seed() {
  return kernels::sampling::random_bits(seed_, requests_.fetch_add(1));
}

void SamplerMaker::set_wake(std::function<void()> wake) {
  if (grammars_) grammars_->set_wake(std::move(wake));
}

grammar::Stats SamplerMaker::grammar_stats() const {
  return grammars_ ? grammars_->stats() : grammar::Stats{};
}

SamplerFactory::Abandon SamplerMaker::prepare(const Request& request, Prepared done) {
  const std::optional<grammar::Spec>& spec = request.sampling.grammar;
  if (!spec) {
    done(std::unique_ptr<Sampler>(std::make_unique<SamplingState>(request, nullptr, next_seed())));
    return {};
  }
  if (grammars_ == nullptr) {
    done(Error(ErrorCode::unsupported, "this model's tokens can't follow a grammar", "grammar",
               "leave it out"));
    return {};
  }
  // A grammar's text needs a token that ends it: the model's own even with ignore_eos, so these are
  // not choice_ends().
  std::vector<std::int32_t> ends = request.end_ids;
  ends.insert(ends.end(), request.stop_ids.begin(), request.stop_ids.end());
  // Shared, because std::function must be copyable.
  auto state = std::make_shared<std::unique_ptr<SamplingState>>(
      std::make_unique<SamplingState>(request, nullptr, next_seed()));
  const auto begin = [this, state, ends = std::move(ends),
                      done = std::move(done)](const Result<grammar::Service::Ref>& grammar) {
    if (!grammar.ok()) return done(grammar.error());
    const Result<void> begun =
        within_memory([&] { (*state)->follow(grammars_->begin_text(*grammar, ends)); });
    if (!begun.ok()) return done(begun.error());
    done(std::unique_ptr<Sampler>(std::move(*state)));
  };
  const grammar::Service::Ticket ticket =
      grammars_->submit(*spec, request.client, request.client_weight, begin);
  return [this, ticket] { grammars_->abandon(ticket); };
}

}  // namespace motley::engine
