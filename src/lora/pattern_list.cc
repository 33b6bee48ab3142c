#include "lora/pattern_list.h"

#include <algorithm>
#include <string>

namespace motley::lora {

namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The edges of an expression that is a name: its letters, dots that stand for any character, and
// dots that stand for themselves ("\.").
std::optional<std::string> edges_of(std::string_view text, char any) {
  std::string edges;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_word(text[i])) {
      edges += text[i];
    } else if (text[i] == '.') {
      edges += any;
    } else if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '.') {
      edges += text[++i];
    } else {
      return std::nullopt;
    }
  }
  if (edges.empty()) return std::nullopt;
  return edges;
}

}  // namespace

Result<void> PatternList::add(std::string_view text) {
  if (const auto edges = edges_of(text, any)) {
    std::size_t node = 0;
    for (const char edge : *edges) {
      const auto [next, fresh] = nodes_[node].edges.emplace(edge, nodes_.size());
      node = next->second;
      if (fresh) nodes_.emplace_back();
    }
    nodes_[node].place = std::min(nodes_[node].place, size_);
  } else {
    MOTLEY_TRY(NamePattern pattern, NamePattern::compile(text));
    others_.emplace_back(size_, std::move(pattern));
  }
  ++size_;
  return {};
}

// Both an edge of the character and one of any character may lead on.
std::size_t PatternList::match_whole(std::string_view name) const {
  std::vector<std::size_t> at = {0};
  std::vector<std::size_t> next;
  for (const char c : name) {
    next.clear();
    for (const std::size_t node : at) {
      const auto& edges = nodes_[node].edges;
      if (const auto own = edges.find(c); own != edges.end() && c != any)
        next.push_back(own->second);
      if (const auto dot = edges.find(any); dot != edges.end() && c != '\n')
        next.push_back(dot->second);
    }
    at.swap(next);
    if (at.empty()) return none;
  }
  std::size_t first = none;
  for (const std::size_t node : at) first = std::min(first, nodes_[node].place);
  return first;
}

std::optional<std::size_t> PatternList::first_match(std::string_view name) const {
  std::size_t first = none;
  if (nodes_.size() > 1) {
    for (std::string_view rest = name;;) {
      first = std::min(first, match_whole(rest));
      const std::size_t dot = rest.find('.');
      if (dot == std::string_view::npos) break;
      rest.remove_prefix(dot + 1);
    }
  }
  for (const auto& [place, pattern] : others_) {
    if (place >= first) break;
    if (!pattern.matches_end(name)) continue;
    first = place;
    break;
  }
  if (first == none) return std::nullopt;
  return first;
}

}  // namespace motley::lora
