#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/name_pattern.h"

namespace motley::lora {

// Regular expressions over module names; the first match wins. As in PEFT's rank_pattern, an
// expression matches the end of a name, from its start or after a dot. Files may list every module
// by name, so expressions that are plain names are kept in a trie: a search costs the length of the
// name, however many there are. The number, bytes and states of the others are limited together,
// and the cost of searches is counted.
class PatternList {
 public:
  static constexpr std::size_t max_expressions = 4096;
  static constexpr std::size_t max_expression_bytes = std::size_t{1} << 20;
  static constexpr std::size_t max_states = 1'000'000;
  static constexpr std::size_t max_tree_nodes = 1'500'000;

  PatternList() : nodes_(1) {}

  // `spender` names searches here in the budget; null: nothing is counted.
  void count_in(text::MatchBudget* budget, std::string_view spender) {
    budget_ = budget;
    spender_ = spender;
  }
  Result<void> add(std::string_view text);
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // The index of the first match. Not thread-safe: the last answer is cached, because a module is
  // looked up several times in a row.
  std::optional<std::size_t> first_match(std::string_view name) const;

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static constexpr char any = '\0';  // the trie edge of an unescaped dot

  struct Node {
    std::map<char, std::size_t> edges;
    std::size_t place = none;  // index of the first expression that ends here
  };

  std::optional<std::size_t> search(std::string_view name) const;
  std::size_t match_whole(std::string_view name) const;
  Result<void> add_name(std::string_view edges);
  bool take(std::size_t steps) const { return budget_ == nullptr || budget_->take(steps); }

  std::size_t size_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::size_t, text::NamePattern>> others_;  // by place
  std::size_t expression_bytes_ = 0;
  std::size_t states_ = 0;
  text::MatchBudget* budget_ = nullptr;
  std::string_view spender_;
  mutable std::string last_name_;
  mutable std::optional<std::size_t> last_match_;
};

// Values for such patterns.
template <class T>
class PatternMap {
 public:
  void count_in(text::MatchBudget* budget, std::string_view spender) {
    patterns_.count_in(budget, spender);
  }
  Result<void> add(std::string_view pattern, T value) {
    MOTLEY_TRY_VOID(patterns_.add(pattern));
    values_.push_back(std::move(value));
    return {};
  }
  std::size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  // Null if no pattern matches.
  const T* find(std::string_view name) const {
    const auto place = patterns_.first_match(name);
    return place ? &values_[*place] : nullptr;
  }

 private:
  PatternList patterns_;
  std::vector<T> values_;
};

}  // namespace motley::lora
