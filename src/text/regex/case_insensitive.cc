#include "text/regex/case_insensitive.h"

#include <string>
#include <utility>

#include "text/unicode/case_folding.h"

namespace motley::text::regex {
namespace {

using unicode::CaseFolding;
using unicode::CodeSet;

CodeSet set_of(std::span<const char32_t> characters) {
  CodeSet set;
  for (const char32_t c : characters) set.add({.first = c, .last = c});
  return set;
}

Node set_node(CodeSet set) { return {.kind = NodeKind::set, .set = std::move(set)}; }

Node equals_node(char32_t c) {
  const std::span<const char32_t> equals = CaseFolding::standard().equals(c);
  return set_node(equals.empty() ? CodeSet{{.first = c, .last = c}} : set_of(equals));
}

Node several_node(std::u32string_view folded) {
  Node sequence{.kind = NodeKind::sequence};
  for (const char32_t c : folded) sequence.children.push_back(equals_node(c));
  return sequence;
}

// Matches one of the characters that fold to this sequence, or the sequence.
Node either_node(const CaseFolding::Several& several) {
  Node choice{.kind = NodeKind::choice};
  choice.children.push_back(set_node(set_of(several.characters)));
  choice.children.push_back(several_node(several.folded));
  return choice;
}

// The longest prefix of the text to which a single character folds; null if there is none.
const CaseFolding::Several* longest_several(std::u32string_view text) {
  const CaseFolding& folding = CaseFolding::standard();
  for (std::size_t length = 3; length >= 2; --length) {
    if (text.size() < length) continue;
    std::u32string folded;
    for (const char32_t c : text.substr(0, length)) folded += folding.fold(c);
    if (const auto* several = folding.several(folded); several != nullptr) return several;
  }
  return nullptr;
}

}  // namespace

Node case_insensitive_text(std::u32string_view text, FoldWidth folds) {
  Node sequence{.kind = NodeKind::sequence};
  while (!text.empty()) {
    const auto* several = folds == FoldWidth::any ? longest_several(text) : nullptr;
    const auto* own = CaseFolding::standard().several_of(text.front());
    std::size_t taken = 1;
    if (several != nullptr) {
      sequence.children.push_back(either_node(*several));
      taken = several->folded.size();
    } else if (own != nullptr && folds == FoldWidth::any) {
      sequence.children.push_back(either_node(*own));
    } else if (own != nullptr) {
      sequence.children.push_back(set_node(set_of(own->characters)));
    } else {
      sequence.children.push_back(equals_node(text.front()));
    }
    text.remove_prefix(taken);
  }
  return sequence;
}

Node case_insensitive_class(const CharacterClass& parsed, FoldWidth folds) {
  CharacterClass folded = parsed;
  CaseFolding::standard().close(folded.members);
  Node alone = set_node(folded.set());
  if (folded.negated || folds == FoldWidth::single) return alone;

  Node choice{.kind = NodeKind::choice};
  choice.children.push_back(std::move(alone));
  for (const CaseFolding::Several& several : CaseFolding::standard().all_several())
    if (folded.members.contains(several.characters.front()))
      choice.children.push_back(several_node(several.folded));
  if (choice.children.size() == 1) return std::move(choice.children.front());
  return choice;
}

}  // namespace motley::text::regex
