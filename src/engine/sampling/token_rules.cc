#include "engine/sampling/token_rules.h"

#include <algorithm>
#include <iterator>

namespace motley::engine {
namespace {

using Tokens = std::span<const std::int32_t>;

std::vector<Tokens> sorted(const std::vector<std::vector<std::int32_t>>& sequences) {
  std::vector<Tokens> each(sequences.begin(), sequences.end());
  std::ranges::sort(each, std::ranges::lexicographical_compare);
  const auto repeated = std::ranges::unique(each, std::ranges::equal);
  each.erase(repeated.begin(), repeated.end());
  return each;
}

void rule_out(std::int32_t token, std::span<std::uint32_t> mask) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(std::uint32_t{1} << (token % 32));
}

}  // namespace

TokenRules::TokenRules(const SamplingParams& params) {
  for (const std::int32_t token : params.allowed_tokens) {
    const auto word = static_cast<std::size_t>(token) / 32;
    if (word >= allowed_.size()) allowed_.resize(word + 1);
    allowed_[word] |= std::uint32_t{1} << (token % 32);
  }
  if (params.banned.empty()) return;
  const std::vector<Tokens> sequences = sorted(params.banned);
  // The sequences below a node: they share its `length` first tokens.
  struct Group {
    std::size_t begin;
    std::size_t end;
    std::size_t length;
  };
  std::vector<Group> groups = {{.begin = 0, .end = sequences.size(), .length = 0}};
  nodes_.emplace_back();
  // Shorter nodes are complete, and accept() and apply() look only at those.
  for (State state = 0; state < nodes_.size(); ++state) {
    const Group group = groups[state];
    const State shorter = nodes_[state].shorter;
    nodes_[state].first_child = static_cast<std::uint32_t>(nodes_.size());
    nodes_[state].first_end = static_cast<std::uint32_t>(ends_.size());
    if (state > 0) {
      const bool ends = nodes_[shorter].first_end < nodes_[shorter + 1].first_end;
      nodes_[state].next_with_ends = ends ? shorter : nodes_[shorter].next_with_ends;
    }
    for (std::size_t i = group.begin; i < group.end;) {
      const std::int32_t token = sequences[i][group.length];
      std::size_t end = i;
      while (end < group.end && sequences[end][group.length] == token) ++end;
      if (sequences[i].size() == group.length + 1) {
        ends_.push_back(token);
        ++i;
      }
      if (i < end) {
        State longest = shorter;
        if (state > 0) accept(longest, token);
        nodes_.push_back({.token = token, .shorter = longest});
        groups.push_back({.begin = i, .end = end, .length = group.length + 1});
      }
      i = end;
    }
  }
  nodes_.push_back({.first_child = static_cast<std::uint32_t>(nodes_.size()),
                    .first_end = static_cast<std::uint32_t>(ends_.size())});
}

TokenRules::State TokenRules::child(State state, std::int32_t token) const {
  const auto begin = nodes_.begin() + nodes_[state].first_child;
  const auto end = nodes_.begin() + nodes_[state + 1].first_child;
  const auto found = std::ranges::lower_bound(begin, end, token, {}, &Node::token);
  return found != end && found->token == token ? static_cast<State>(found - nodes_.begin()) : 0;
}

std::size_t TokenRules::accept(State& state, std::int32_t token) const {
  if (nodes_.empty()) return 0;
  std::size_t looked_at = 1;
  State next = child(state, token);
  for (; next == 0 && state != 0; ++looked_at) {
    state = nodes_[state].shorter;
    next = child(state, token);
  }
  state = next;
  return looked_at;
}

std::size_t TokenRules::apply(State state, std::span<std::uint32_t> mask) const {
  if (!allowed_.empty()) {
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= i < allowed_.size() ? allowed_[i] : 0;
  }
  if (nodes_.empty()) return 0;
  std::size_t looked_at = 0;
  for (bool last = false; !last; state = nodes_[state].next_with_ends) {
    const std::uint32_t end = nodes_[state + 1].first_end;
    for (std::uint32_t i = nodes_[state].first_end; i < end; ++i) rule_out(ends_[i], mask);
    looked_at += 1 + end - nodes_[state].first_end;
    last = state == 0;
  }
  return looked_at;
}

}  // namespace motley::engine
