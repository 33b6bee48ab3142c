#include "text/jinja/syntax/symbols.h"

#include "base/check.h"

namespace motley::text::jinja {

const Symbols* Symbols::owner(const std::string& name) const {
  for (const Symbols* each = this; each != nullptr; each = each->parent_) {
    if (each->positions_.contains(name)) return each;
  }
  return nullptr;
}

void Symbols::define(const std::string& name, Origin origin) {
  const auto [found, is_new] = positions_.try_emplace(name, own_.size());
  if (is_new)
    own_.emplace_back(name, origin);
  else
    own_[found->second].second = origin;
}

void Symbols::load(const std::string& name) {
  if (!knows(name)) define(name, Origin::context);
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  const Symbols* const known = owner(name);
  if (known == this) return;
  define(name, known == nullptr ? Origin::nothing : Origin::alias);
}

void Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  define(name, Origin::parameter);
}

void Symbols::merge(const std::vector<Symbols>& branches) {
  std::set<std::string> stored;
  for (const Symbols& branch : branches)
    stored.insert(branch.stores_.begin(), branch.stores_.end());
  for (const std::string& own : stores_) stored.erase(own);
  for (const Symbols& branch : branches) {
    for (const auto& [name, origin] : branch.own_) define(name, origin);
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  // Not every branch may assign: where none does, the name has its outer meaning.
  for (const std::string& name : stored) {
    const bool known_outside = parent_ != nullptr && parent_->knows(name);
    define(name, known_outside ? Origin::alias : Origin::context);
  }
}

Reference Symbols::reference(const std::string& name, const ActivationLayout& from) const {
  const Symbols* const found = owner(name);
  MOTLEY_CHECK(found != nullptr, "a name that no scope knows");
  Reference reference;
  for (const ActivationLayout* each = &from; each != found->layout_; each = each->outer) {
    MOTLEY_CHECK(each != nullptr, "a variable outside of all activations");
    ++reference.levels;
  }
  reference.slot = found->layout_->slot(found->level_, name);
  return reference;
}

Scope Symbols::scope() const {
  Scope scope;
  for (const auto& [name, origin] : own_) {
    Load load{.from = Load::From::nothing, .slot = layout_->slot(level_, name), .name = {}};
    scope.slots.push_back(load.slot);
    switch (origin) {
      case Origin::parameter:
        continue;
      case Origin::context:
        load.from = Load::From::context;
        load.name = name;
        break;
      case Origin::alias:
        load.from = Load::From::variable;
        load.variable = parent_->reference(name, *layout_);
        break;
      case Origin::nothing:
        break;
    }
    scope.loads.push_back(std::move(load));
  }
  return scope;
}

}  // namespace motley::text::jinja
