#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

// The variables of one activation: of the template, a macro, a loop's filter. Scopes of one level
// that follow each other share slots, as they share names in the Python that Jinja makes.
struct ActivationLayout {
  const ActivationLayout* outer = nullptr;
  std::map<std::pair<int, std::string>, std::uint32_t> slots;  // by level and name

  std::uint32_t slot(int level, const std::string& name) {
    return slots.try_emplace({level, name}, static_cast<std::uint32_t>(slots.size())).first->second;
  }
};

// What a scope knows of its names before it runs: Jinja decides from the text alone which of them
// are its own, and where those begin.
class Symbols {
 public:
  enum class Origin : std::uint8_t { parameter, context, alias, nothing };

  Symbols(Symbols* parent, ActivationLayout& layout)
      : parent_(parent), layout_(&layout), level_(parent == nullptr ? 0 : parent->level_ + 1) {}

  void load(const std::string& name);
  void store(const std::string& name);
  void declare_parameter(const std::string& name);
  // Takes over what the branches of an `if` found out; each began as a copy of this.
  void merge(const std::vector<Symbols>& branches);

  // The variable of a name as seen from an activation; the name must be known.
  Reference reference(const std::string& name, const ActivationLayout& from) const;
  bool knows(const std::string& name) const { return owner(name) != nullptr; }

  Scope scope() const;

 private:
  const Symbols* owner(const std::string& name) const;
  void define(const std::string& name, Origin origin);

  Symbols* parent_;
  ActivationLayout* layout_;
  int level_;
  std::vector<std::pair<std::string, Origin>> own_;  // in the order in which they were met
  std::map<std::string, std::size_t> positions_;     // in own_
  std::set<std::string> stores_;
};

}  // namespace motley::text::jinja
