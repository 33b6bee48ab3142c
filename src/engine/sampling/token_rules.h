#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/requests/sampling_params.h"

namespace motley::engine {

// Rules that allow or ban tokens by id: the request's `allowed_tokens` and `banned`. The prefixes
// of all banned sequences form an Aho-Corasick automaton.
class TokenRules {
 public:
  // The state of the automaton: the longest suffix of the drawn tokens that is a prefix of a banned
  // sequence. 0 before anything is drawn.
  using State = std::uint32_t;

  TokenRules() = default;  // all
  explicit TokenRules(const SamplingParams& params);

  bool empty() const { return allowed_.empty() && nodes_.empty(); }

  // Both return the number of states and ends that they looked at. accept() looks at two states per
  // token on average, whatever the length of the sequences; apply() looks only at what applies.

  // Takes a token that was drawn.
  std::size_t accept(State& state, std::int32_t token) const;
  // Removes what may not follow from a mask (bit i % 32 of word i / 32 is token i).
  std::size_t apply(State state, std::span<std::uint32_t> mask) const;

 private:
  // A proper prefix of banned sequences; node 0 is the empty one. By rising length, so that the
  // children of a node are adjacent and end where those of the next node begin.
  struct Node {
    std::int32_t token = 0;         // its last
    std::uint32_t first_child = 0;  // in nodes_; children are sorted by token
    std::uint32_t first_end = 0;    // in ends_, likewise
    State shorter = 0;              // its longest proper suffix that is a node
    State next_with_ends = 0;       // the longest such suffix that has ends; 0 in any case
  };

  // 0 if there is none.
  State child(State state, std::int32_t token) const;

  std::vector<std::uint32_t> allowed_;  // a mask up to the largest id; empty: all allowed
  std::vector<Node> nodes_;             // with a sentinel; empty if nothing is banned
  std::vector<std::int32_t> ends_;      // last tokens of sequences
};

}  // namespace motley::engine
