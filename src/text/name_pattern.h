#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::text {

// A shared budget of work for matching, in steps of a few nanoseconds. Once it is spent, results
// are meaningless.
class MatchBudget {
 public:
  explicit MatchBudget(std::uint64_t steps) : left_(steps) {}

  // Names the spender of the following steps, for a message.
  void charge(std::string_view spender) {
    if (!spent_) spender_ = spender;
  }
  // False if there are not enough steps left; then the budget is spent.
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

// A regular expression in Python's syntax over module names, as in configs of adapters and
// quantised models. Its time is bounded by its size and the length of the name. What goes beyond
// ASCII classes or a finite automaton (look-behind, back references) is refused.
class NamePattern {
 public:
  static Result<NamePattern> compile(std::string_view text);

  // Whether the name, or the part after some dot, matches as a whole.
  bool matches_end(std::string_view name, MatchBudget* budget = nullptr) const;

  // Whether a prefix of the name matches.
  bool matches_start(std::string_view name) const;

  // Its size; the time of a match is at most proportional to this times the name's length.
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
    // split: the second alternative; byte_class: index into classes_; ahead, not_ahead: the first
    // node of the look-ahead, which has its own accept node.
    std::uint32_t other = 0;
  };
  using Bytes = std::bitset<256>;

  std::vector<Node> nodes_;
  std::vector<Bytes> classes_;
  std::uint32_t start_ = 0;
  std::string literal_;  // occurs in every match
};

}  // namespace motley::text
