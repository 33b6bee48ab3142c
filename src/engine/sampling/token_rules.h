#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/sampling_params.h"

namespace motley::engine {

// Which tokens a request lets be drawn by their ids: `allowed_tokens` and `banned` of its
// parameters. The beginnings of all banned sequences form an Aho-Corasick automaton.
class TokenRules {
 public:
  // All that the next draw depends on: the longest end of the tokens drawn that begins a banned
  // sequence. 0 where nothing was drawn.
  using State = std::uint32_t;

  TokenRules() = default;  // all
  explicit TokenRules(const SamplingParams& params);

  bool empty() const { return allowed_.empty() && nodes_.empty(); }

  // Both return how many states and ends of sequences they looked at. A token costs accept() two
  // states on average, however long the sequences are; apply() looks at nothing that does not hold.

  // Takes a token that was drawn.
  std::size_t accept(State& state, std::int32_t token) const;
  // Takes out of a mask (bit i % 32 of word i / 32 is token i) what may not follow.
  std::size_t apply(State state, std::span<std::uint32_t> mask) const;

 private:
  // A beginning of banned sequences without their last token; node 0 is the empty one. By rising
  // length, so that the children of a node are neighbours and end where those of the next begin.
  struct Node {
    std::int32_t token = 0;         // its last
    std::uint32_t first_child = 0;  // in nodes_; children stand by rising token
    std::uint32_t first_end = 0;    // in ends_, likewise
    State shorter = 0;              // its longest proper end that is a node
    State next_with_ends = 0;       // the longest such that has ends; 0 in any case
  };

  // 0 where there is none.
  State child(State state, std::int32_t token) const;

  std::vector<std::uint32_t> allowed_;  // a mask up to the largest id; empty: all are
  std::vector<Node> nodes_;             // and one behind the last; empty where nothing is banned
  std::vector<std::int32_t> ends_;      // last tokens of sequences
};

}  // namespace motley::engine
