#include "lora/files/config/pattern_list.h"

#include <algorithm>
#include <string>

#include "base/cat.h"

namespace motley::lora {

namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The trie edges of an expression that is a plain name: its letters, unescaped dots, which match
// any character, and escaped dots ("\.").
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
  last_name_.clear();
  if (const auto edges = edges_of(text, any)) {
    MOTLEY_TRY_VOID(add_name(*edges));
  } else {
    expression_bytes_ += text.size();
    if (others_.size() == max_expressions || expression_bytes_ > max_expression_bytes)
      return Error(ErrorCode::unsupported,
                   cat("more than ", max_expressions, " regular expressions, or than ",
                       max_expression_bytes, " bytes of them"));
    MOTLEY_TRY(text::NamePattern pattern, text::NamePattern::compile(text));
    states_ += pattern.nodes();
    if (states_ > max_states)
      return Error(ErrorCode::unsupported, "regular expressions that are too large together");
    others_.emplace_back(size_, std::move(pattern));
  }
  ++size_;
  return {};
}

Result<void> PatternList::add_name(std::string_view edges) {
  std::size_t node = 0;
  for (const char edge : edges) {
    const auto [next, fresh] = nodes_[node].edges.emplace(edge, nodes_.size());
    node = next->second;
    if (fresh) nodes_.emplace_back();
  }
  nodes_[node].place = std::min(nodes_[node].place, size_);
  if (nodes_.size() <= max_tree_nodes) return {};
  return Error(ErrorCode::unsupported, "more names of modules than a model can have");
}

// Follows both the edge of the character and the edge of an unescaped dot.
std::size_t PatternList::match_whole(std::string_view name) const {
  std::vector<std::size_t> at = {0};
  std::vector<std::size_t> next;
  for (const char c : name) {
    if (!take(at.size())) return none;
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
  if (name.empty() || name != last_name_) {
    last_match_ = search(name);
    last_name_ = name;
  }
  return last_match_;
}

std::optional<std::size_t> PatternList::search(std::string_view name) const {
  std::size_t first = none;
  if (budget_ != nullptr) budget_->charge(spender_);
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
    if (!pattern.matches_end(name, budget_)) continue;
    first = place;
    break;
  }
  if (first == none) return std::nullopt;
  return first;
}

}  // namespace motley::lora
