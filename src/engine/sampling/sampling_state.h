#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/requests/request.h"
#include "engine/requests/sampling_params.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/token_rules.h"
#include "grammar/cursor.h"
#include "kernels/sampling.h"

namespace motley::engine {

// The limit of biases of one row, both the request's own and those that keep it from ending, as
// validate() ensures.
inline constexpr std::int64_t max_row_biases = 2048;

// The sampler of one choice between steps: its number of tokens, its position in a grammar, its
// next random numbers. Owned by the choice's sequence; what a device caches of it (counts of its
// tokens) can be made again at any time.
class SamplingState final : public Sampler {
 public:
  // For the first choice of a valid request. `seed` is used if it has none. `grammar` is null if
  // the text is free.
  SamplingState(const Request& request, std::unique_ptr<grammar::Cursor> grammar,
                std::uint64_t seed);

  // Sets the grammar of a choice that was made without one, before anything was drawn.
  void follow(std::unique_ptr<grammar::Cursor> grammar) { grammar_ = std::move(grammar); }

  // Another choice: the same so far, with other random numbers from here on.
  std::unique_ptr<Sampler> fork(int choice) const override;
  bool ready() const override { return !grammar_ || grammar_->ready(); }
  bool may_wait() const override { return grammar_ != nullptr; }
  std::optional<Error> failure() const override {
    return grammar_ ? grammar_->failure() : std::nullopt;
  }

  // The next draw; the caller sets the rows of tables.
  kernels::SampleChoice choice() const;
  // Of the next draw: at most max_row_biases, by rising id, each id once.
  std::span<const LogitBias> biases() const;

  // The tokens whose log-probabilities each draw has; empty: those of the most probable ones.
  std::span<const std::int32_t> logprob_tokens() const { return rules_->logprob_tokens; }
  bool has_penalties() const { return rules_->penalties; }
  // Whether allow() may rule anything out in the next draw.
  bool has_token_rules() const { return !rules_->tokens_allowed.empty(); }
  // Removes from a mask what the request does not allow next.
  void allow(std::span<std::uint32_t> mask) const {
    rules_->tokens_allowed.apply(token_rules_, mask);
  }
  // Null if the text is free.
  grammar::Cursor* grammar() const { return grammar_.get(); }

  // Takes the drawn token. True if the grammar ends with it.
  bool accept(std::int32_t token);

  // Prompt and drawn tokens; kept if penalties need them.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::int64_t prompt_tokens() const { return rules_->prompt; }
  std::int64_t drawn() const { return drawn_; }
  // Unique among all states, past and present.
  std::uint64_t id() const { return id_; }

 private:
  // Shared by all choices of a request.
  struct Rules {
    kernels::SampleChoice choice;
    bool penalties = false;
    std::int64_t prompt = 0;
    std::size_t tokens = 0;  // including all that may still be drawn
    std::int64_t min_tokens = 0;
    TokenRules tokens_allowed;
    std::vector<std::int32_t> logprob_tokens;
    std::vector<LogitBias> biases;
    std::vector<LogitBias> early_biases;  // before min_tokens: with the ends of a choice ruled out
  };

  SamplingState(const SamplingState& other, int choice);

  std::shared_ptr<const Rules> rules_;
  std::uint64_t id_;
  std::uint64_t seed_ = 0;
  std::int64_t drawn_ = 0;
  std::vector<std::int32_t> tokens_;
  TokenRules::State token_rules_ = 0;
  std::unique_ptr<grammar::Cursor> grammar_;
};

}  // namespace motley::engine
