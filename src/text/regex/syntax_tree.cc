#include "text/regex/syntax_tree.h"

#include <algorithm>

namespace motley::text::regex {
namespace {

std::uint32_t saturated(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, unlimited));
}

std::uint32_t sum(std::uint32_t a, std::uint32_t b) { return saturated(std::uint64_t{a} + b); }

std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  if (a == 0 || b == 0) return 0;
  return saturated(std::uint64_t{a} * b);
}

}  // namespace

Width width(const Node& node) {
  switch (node.kind) {
    case NodeKind::set:
      return {.min = 1, .max = 1};
    case NodeKind::look:
    case NodeKind::anchor:
      return {};
    case NodeKind::atomic:
      return width(node.children[0]);
    case NodeKind::repeat: {
      const Width once = width(node.children[0]);
      return {.min = product(once.min, node.min), .max = product(once.max, node.max)};
    }
    case NodeKind::sequence: {
      Width whole;
      for (const Node& child : node.children) {
        const Width part = width(child);
        whole = {.min = sum(whole.min, part.min), .max = sum(whole.max, part.max)};
      }
      return whole;
    }
    case NodeKind::choice:
      break;
  }
  Width any{.min = unlimited, .max = 0};
  for (const Node& child : node.children) {
    const Width one = width(child);
    any = {.min = std::min(any.min, one.min), .max = std::max(any.max, one.max)};
  }
  return any;
}

}  // namespace motley::text::regex
