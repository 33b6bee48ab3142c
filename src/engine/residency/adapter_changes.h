#pragma once

#include <string>
#include <utility>

#include "base/function_ref.h"
#include "engine/residency/adapter_entry.h"
#include "engine/residency/adapter_names.h"

namespace motley::engine {

// Adapters that were added, changed or removed since forget(), for those who publish them.
class AdapterChanges {
 public:
  // Does not allocate.
  void note(AdapterEntry& entry) { changed_.insert(entry); }
  // Takes an adapter that is in the names no more. Does not allocate.
  void remove(AdapterNames::Map::node_type entry) {
    changed_.remove(*entry.mapped());
    removed_.insert(std::move(entry));
  }
  // Calls see(name, entry) for each; null: it is gone.
  void each(const AdapterNames& names,
            FunctionRef<void(const std::string&, const AdapterEntry*)> see) const {
    for (const auto& [name, entry] : removed_) {
      if (names.find(name) == nullptr) see(name, nullptr);
    }
    names.count_looks(
        changed_.each([&](const AdapterEntry& entry) { see(entry.spec.name, &entry); }));
  }
  void forget() {
    removed_.clear();
    changed_.each([this](AdapterEntry& entry) { changed_.remove(entry); });
  }

 private:
  EntryList<&AdapterEntry::changed> changed_;
  AdapterNames::Map removed_;
};

}  // namespace motley::engine
