#include "text/unicode/case_folding.h"

#include <algorithm>
#include <utility>

#include "text/unicode/tables.h"

namespace motley::text::unicode {

CaseFolding::CaseFolding() {
  tables::TableReader table(tables::foldings);
  classes_.resize(table.number());
  std::int32_t folded = 0;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    classes_[i].resize(table.number());
    folded += table.signed_number();
    for (std::size_t member = 0; member < classes_[i].size(); ++member) {
      const std::int32_t distance = member == 0 ? 0 : table.signed_number();
      classes_[i][member] = static_cast<char32_t>(folded + distance);
      class_of_.emplace(classes_[i][member], i);
    }
  }
  several_.resize(table.number());
  for (std::size_t i = 0; i < several_.size(); ++i) {
    several_[i].folded.resize(table.number());
    for (char32_t& c : several_[i].folded) c = table.number();
    several_[i].characters.resize(table.number());
    for (char32_t& c : several_[i].characters) {
      c = table.number();
      several_of_.emplace(c, i);
    }
  }
}

const CaseFolding& CaseFolding::standard() {
  static const CaseFolding folding;
  return folding;
}

std::span<const char32_t> CaseFolding::equals(char32_t code_point) const {
  const auto found = class_of_.find(code_point);
  if (found == class_of_.end()) return {};
  return classes_[found->second];
}

char32_t CaseFolding::fold(char32_t code_point) const {
  const auto found = class_of_.find(code_point);
  return found == class_of_.end() ? code_point : classes_[found->second].front();
}

const CaseFolding::Several* CaseFolding::several_of(char32_t code_point) const {
  const auto found = several_of_.find(code_point);
  return found == several_of_.end() ? nullptr : &several_[found->second];
}

const CaseFolding::Several* CaseFolding::several(std::u32string_view folded) const {
  const auto before = [](const Several& entry, std::u32string_view searched) {
    const std::u32string_view own = entry.folded;
    return own.size() != searched.size() ? own.size() < searched.size() : own < searched;
  };
  const auto found = std::lower_bound(several_.begin(), several_.end(), folded, before);
  return found == several_.end() || found->folded != folded ? nullptr : &*found;
}

void CaseFolding::close(CodeSet& set) const {
  CodeSet more;
  const auto add_equals = [&](const std::vector<char32_t>& together) {
    if (std::any_of(together.begin(), together.end(), [&](char32_t c) { return set.contains(c); }))
      for (const char32_t c : together) more.add({.first = c, .last = c});
  };
  for (const std::vector<char32_t>& together : classes_) add_equals(together);
  for (const Several& together : several_) add_equals(together.characters);
  set.add(more);
}

}  // namespace motley::text::unicode
