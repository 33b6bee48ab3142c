#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/grammar/cursor.h"
#include "engine/request.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/sampling_params.h"
#include "engine/sampling/token_rules.h"
#include "kernels/sampling.h"

namespace motley::engine {

// Biases of one row, the request's own and those that keep it from ending: what validate() lets
// pass of either.
inline constexpr std::int64_t max_row_biases = 2048;

// What the tokens of one choice are drawn by, between steps: how many there are, where they stand
// in their grammar, which random numbers come next. Owned by the choice's sequence; what a device
// keeps of it (counts of its tokens) can be made again from it at any time.
class SamplingState final : public Sampler {
 public:
  // The first choice's, of a request that is in range. `seed` counts where it has none of its own.
  // `grammar` is null where the text is free.
  SamplingState(const Request& request, std::unique_ptr<GrammarCursor> grammar, std::uint64_t seed);

  // The grammar of a choice that was made without one, before anything was drawn.
  void follow(std::unique_ptr<GrammarCursor> grammar) { grammar_ = std::move(grammar); }

  // Another choice: the same so far, other random numbers from here on.
  std::unique_ptr<Sampler> fork(int choice) const override;
  bool ready() const override { return !grammar_ || grammar_->ready(); }
  std::optional<Error> failure() const override {
    return grammar_ ? grammar_->failure() : std::nullopt;
  }

  // The next draw; rows of tables are the caller's to add.
  kernels::SampleChoice choice() const;
  // Of the next draw: at most max_row_biases, by rising id, each id once.
  std::span<const LogitBias> biases() const;

  bool has_penalties() const { return rules_->penalties; }
  // Whether allow() of the next draw may rule anything out.
  bool has_token_rules() const { return !rules_->tokens_allowed.empty(); }
  // Leaves in a mask what the request allows next.
  void allow(std::span<std::uint32_t> mask) const {
    rules_->tokens_allowed.apply(token_rules_, mask);
  }
  // Null where the text is free.
  GrammarCursor* grammar() const { return grammar_.get(); }

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
    TokenRules tokens_allowed;
    std::vector<LogitBias> biases;
    std::vector<LogitBias> early_biases;  // before min_tokens: with what ends a choice ruled out
  };

  SamplingState(const SamplingState& other, int choice);

  std::shared_ptr<const Rules> rules_;
  std::uint64_t id_;
  std::uint64_t seed_ = 0;
  std::int64_t drawn_ = 0;
  std::vector<std::int32_t> tokens_;
  TokenRules::State token_rules_ = 0;
  std::unique_ptr<GrammarCursor> grammar_;
};

}  // namespace motley::engine
