#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley {

// Work that matches may take together, in steps of a few nanoseconds each. What is answered once it
// is spent means nothing.
class MatchBudget {
 public:
  explicit MatchBudget(std::uint64_t steps) : left_(steps) {}

  // Who matches from here on, for a message.
  void charge(std::string_view spender) {
    if (!spent_) spender_ = spender;
  }
  // False where so much is not left; from then on nothing is.
  bool take(std::uint64_t steps) {
    spent_ = spent_ || steps > left_;
    left_ -= spent_ ? left_ : steps;
    return !spent_;
  }
  bool spent() const { return spent_; }
  std::string_view spender() const { return spender_; }

 private:
  std::uint64_t left_;
  bool spent_ = false;
  std::string_view spender_;
};

// A regular expression in Python's syntax over names of modules, as configs of adapters and of
// quantised models hold them. It runs in time bounded by its size and the name's, whatever it is.
// What leaves ASCII's classes or needs more than a finite automaton (look-behind, back references)
// is refused.
class NamePattern {
 public:
  static Result<NamePattern> compile(std::string_view text);

  // Whether the name, or a part of it that begins behind a dot, matches as a whole.
  bool matches_end(std::string_view name, MatchBudget* budget = nullptr) const;

  // Whether some beginning of the name matches.
  bool matches_start(std::string_view name) const;

  // How large it is; a match takes time in proportion to this and the name's length at most.
  std::size_t nodes() const { return nodes_.size(); }

 private:
  friend class PatternParser;
  friend class PatternRun;
  enum class Op : std::uint8_t {
    byte_class,
    split,
    begin,
    end,
    boundary,
    not_boundary,
    ahead,
    not_ahead,
    accept,
  };
  struct Node {
    Op op = Op::accept;
    std::uint32_t next = 0;
    // split: the second way; byte_class: place in classes_; ahead, not_ahead: where what must or
    // must not follow starts, with an accept of its own.
    std::uint32_t other = 0;
  };
  using Bytes = std::bitset<256>;

  std::vector<Node> nodes_;
  std::vector<Bytes> classes_;
  std::uint32_t start_ = 0;
  std::string literal_;  // stands in every match
};

}  // namespace motley
