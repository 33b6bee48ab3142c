#include "text/regex/states.h"

#include <algorithm>
#include <utility>

namespace motley::text::regex {
namespace {

constexpr std::size_t max_states = 4'000;

// Builds the states of a tree from its end to its begin.
class StateBuilder {
 public:
  explicit StateBuilder(SetList& sets) : sets_(sets) { states_.push_back({}); }

  // The first state of a node that is followed by `next`; nothing if states cannot express it.
  std::optional<std::uint32_t> build(const Node& node, std::uint32_t next) {
    if (states_.size() > max_states) return std::nullopt;
    switch (node.kind) {
      case NodeKind::set:
        return add({.kind = StateKind::set, .set = sets_.number(node.set), .next = {next}});
      case NodeKind::sequence: {
        std::optional<std::uint32_t> first = next;
        for (std::size_t i = node.children.size(); i > 0 && first.has_value(); --i)
          first = build(node.children[i - 1], *first);
        return first;
      }
      case NodeKind::choice: {
        State split{.kind = StateKind::split};
        for (const Node& child : node.children) {
          const std::optional<std::uint32_t> first = build(child, next);
          if (!first.has_value()) return std::nullopt;
          split.next.push_back(*first);
        }
        return add(std::move(split));
      }
      case NodeKind::repeat:
        return build_repeat(node, next);
      case NodeKind::look:
        return build_look(node, next);
      case NodeKind::atomic:
        return build_atomic(node.children.front(), next);
      case NodeKind::anchor:
        break;
    }
    if (node.anchor == Anchor::line_end)
      return add_peek({{.first = '\n', .last = '\n'}}, false, true, next);
    if (node.anchor == Anchor::text_end) return add_peek({}, false, true, next);
    return std::nullopt;
  }

  std::vector<State> take() { return std::move(states_); }

 private:
  std::uint32_t add(State state) {
    states_.push_back(std::move(state));
    return static_cast<std::uint32_t>(states_.size()) - 1;
  }

  std::uint32_t add_peek(const unicode::CodeSet& set, bool negated, bool at_end,
                         std::uint32_t next) {
    return add({.kind = StateKind::peek,
                .negated = negated,
                .at_end = at_end,
                .set = sets_.number(set),
                .next = {next}});
  }

  std::uint32_t add_split(std::uint32_t first, std::uint32_t second, Greed greed) {
    if (greed == Greed::lazy) std::swap(first, second);
    return add({.kind = StateKind::split, .next = {first, second}});
  }

  std::optional<std::uint32_t> build_repeat(const Node& node, std::uint32_t next) {
    const Node& child = node.children.front();
    const bool endless = node.max == unlimited;
    if (std::max(node.min, endless ? 0 : node.max) > max_states) return std::nullopt;
    // Empty iterations of unbounded repeats are left to the backtracker.
    if (endless && width(child).min == 0) return std::nullopt;
    std::uint32_t first = next;
    if (endless) {
      first = add({.kind = StateKind::split});
      const std::optional<std::uint32_t> again = build(child, first);
      if (!again.has_value()) return std::nullopt;
      states_[first].next = {*again, next};
      if (node.greed == Greed::lazy) std::swap(states_[first].next[0], states_[first].next[1]);
    } else {
      for (std::uint32_t i = node.min; i < node.max; ++i) {
        const std::optional<std::uint32_t> taken = build(child, first);
        if (!taken.has_value()) return std::nullopt;
        first = add_split(*taken, next, node.greed);
      }
    }
    for (std::uint32_t i = 0; i < node.min; ++i) {
      const std::optional<std::uint32_t> taken = build(child, first);
      if (!taken.has_value()) return std::nullopt;
      first = *taken;
    }
    return first;
  }

  std::optional<std::uint32_t> build_look(const Node& node, std::uint32_t next) {
    const Node& child = node.children.front();
    if (node.direction == Direction::behind || child.kind != NodeKind::set) return std::nullopt;
    return add_peek(child.set, node.negated, node.negated, next);
  }

  // A possessive repeat of one set ends where no other character of it follows, or after its
  // maximum.
  std::optional<std::uint32_t> build_atomic(const Node& child, std::uint32_t next) {
    if (child.kind == NodeKind::set) return build(child, next);
    if (child.kind != NodeKind::repeat || child.greed != Greed::greedy ||
        child.children.front().kind != NodeKind::set)
      return std::nullopt;
    const Node& set = child.children.front();
    const std::uint32_t end = add_peek(set.set, true, true, next);
    if (child.max == unlimited) return build_repeat(child, end);
    if (child.max > max_states) return std::nullopt;
    std::optional<std::uint32_t> first = next;
    for (std::uint32_t i = child.max; i > 0; --i) {
      first = build(set, *first);
      if (!first.has_value()) return std::nullopt;
      if (i > child.min) first = add_split(*first, end, Greed::greedy);
    }
    return first;
  }

  SetList& sets_;
  std::vector<State> states_;  // 0 is the match
};

}  // namespace

std::optional<States> states_of(const Node& tree, SetList& sets) {
  StateBuilder builder(sets);
  const std::optional<std::uint32_t> start = builder.build(tree, 0);
  if (!start.has_value()) return std::nullopt;
  return States{.list = builder.take(), .start = *start};
}

}  // namespace motley::text::regex
