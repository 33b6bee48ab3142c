#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

// The variables of one activation: of the template, a macro, or a loop's filter. Consecutive scopes
// of one level share slots, as they share names in Jinja's generated Python.
struct ActivationLayout {
  const ActivationLayout* outer = nullptr;
  std::map<std::pair<int, std::string>, std::uint32_t> slots;  // by level and name

  std::uint32_t slot(int level, const std::string& name) {
    return slots.try_emplace({level, name}, static_cast<std::uint32_t>(slots.size())).first->second;
  }
};

// The names of a scope, known before it runs: Jinja decides from the text alone which names belong
// to it, and from where on.
class Symbols {
 public:
  enum class Origin : std::uint8_t { parameter, context, alias, nothing };

  Symbols(Symbols* parent, ActivationLayout& layout)
      : parent_(parent), layout_(&layout), level_(parent == nullptr ? 0 : parent->level_ + 1) {}

  void load(const std::string& name);
  void store(const std::string& name);
  void declare_parameter(const std::string& name);
  // Merges the branches of an `if`; each began as a copy of this.
  void merge(const std::vector<Symbols>& branches);

  // The variable of a name, seen from an activation; the name must be known.
  Reference reference(const std::string& name, const ActivationLayout& from) const;
  bool knows(const std::string& name) const { return owner(name) != nullptr; }

  Scope scope() const;

 private:
  const Symbols* owner(const std::string& name) const;
  void define(const std::string& name, Origin origin);

  Symbols* parent_;
  ActivationLayout* layout_;
  int level_;
  std::vector<std::pair<std::string, Origin>> own_;  // in order of first occurrence
  std::map<std::string, std::size_t> positions_;     // in own_
  std::set<std::string> stores_;
};

}  // namespace motley::text::jinja
