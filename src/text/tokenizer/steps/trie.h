#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace motley::text {

// Finds any of many strings in a text.
class Trie {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t value = -1;
  };

  bool empty() const { return nodes_.size() == 1; }

  // Adds a non-empty string with a value of at least 0. Returns the value of an equal string that
  // is there already, else -1.
  std::int32_t add(std::string_view string, std::int32_t value) {
    std::uint32_t node = 0;
    for (const char byte : string) node = step_or_grow(node, static_cast<std::uint8_t>(byte));
    if (nodes_[node].value < 0) return std::exchange(nodes_[node].value, value);
    return nodes_[node].value;
  }

  // The first match that begins at `from` or later, and of those the longest that `accepts(match)`.
  // Its value is -1 if there is none.
  template <class Accepts>
  Match find(std::string_view text, std::size_t from, Accepts accepts) const {
    for (std::size_t begin = from; begin < text.size(); ++begin) {
      std::uint32_t node = first_[static_cast<std::uint8_t>(text[begin])];
      Match longest;
      for (std::size_t end = begin + 1; node != 0; ++end) {
        const Match match{.begin = begin, .end = end, .value = nodes_[node].value};
        if (match.value >= 0 && accepts(match)) longest = match;
        node = end < text.size() ? step(node, static_cast<std::uint8_t>(text[end])) : 0;
      }
      if (longest.value >= 0) return longest;
    }
    return {};
  }

 private:
  struct Node {
    std::int32_t value = -1;
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;
  };

  // The child of a node, or the root (0) if it has none.
  std::uint32_t step(std::uint32_t node, std::uint8_t byte) const {
    for (const auto& [key, child] : nodes_[node].children)
      if (key == byte) return child;
    return 0;
  }

  std::uint32_t step_or_grow(std::uint32_t node, std::uint8_t byte) {
    const std::uint32_t known = node == 0 ? first_[byte] : step(node, byte);
    if (known != 0) return known;
    const auto child = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
    if (node == 0)
      first_[byte] = child;
    else
      nodes_[node].children.emplace_back(byte, child);
    return child;
  }

  std::array<std::uint32_t, 256> first_{};  // children of the root
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace motley::text
