#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/grammar/grammar.h"
#include "engine/request.h"
#include "engine/sampling_params.h"
#include "kernels/sampling.h"

namespace motley::engine {

// Biases of one row, the request's own and those that keep it from ending: what validate() lets
// pass of either.
inline constexpr std::int64_t most_row_biases = 2048;

// What the tokens of one choice are drawn by, between steps: how many there are, where they stand
// in their grammar, which random numbers come next. Owned by the choice's sequence; what a device
// keeps of it (counts of its tokens) can be made again from it at any time.
class SamplingState final : public Sampler {
 public:
  // The first choice's, of a request that is in range. `seed` counts where it has none of its own.
  SamplingState(const Request& request, std::optional<Grammar> grammar, std::uint64_t seed);

  // Another choice: the same so far, other random numbers from here on.
  std::unique_ptr<Sampler> fork(int choice) const override;

  // The next draw; rows of tables are the caller's to add.
  kernels::SampleChoice choice() const;
  // Of the next draw: at most most_row_biases, by rising id, each id once.
  std::span<const LogitBias> biases() const;

  bool has_penalties() const { return rules_->penalties; }
  bool has_grammar() const { return grammar_.has_value(); }
  void fill_mask(std::span<std::uint32_t> words) { grammar_->fill_mask(words); }

  // Takes the token that was drawn. True where the grammar ends with it.
  bool accept(std::int32_t token);

  // Prompt and drawn tokens, kept where penalties need them.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::int64_t prompt_tokens() const { return rules_->prompt; }
  std::int64_t drawn() const { return drawn_; }
  // Unlike that of every other state, whenever it lives.
  std::uint64_t id() const { return id_; }

 private:
  // What all choices of a request share.
  struct Rules {
    kernels::SampleChoice choice;
    bool penalties = false;
    std::int64_t prompt = 0;
    std::size_t tokens = 0;  // with all that may be drawn
    std::int64_t min_tokens = 0;
    std::vector<LogitBias> biases;
    std::vector<LogitBias> early_biases;  // before min_tokens: with what ends a choice ruled out
  };

  SamplingState(const SamplingState& other, int choice);

  std::shared_ptr<const Rules> rules_;
  std::uint64_t id_;
  std::uint64_t seed_ = 0;
  std::int64_t drawn_ = 0;
  std::vector<std::int32_t> tokens_;
  std::optional<GrammarState> grammar_;
};

}  // namespace motley::engine
