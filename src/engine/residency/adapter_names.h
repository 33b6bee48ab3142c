#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/residency/adapter_entry.h"

namespace motley::engine {

// A list of entries. An entry is in it once or not at all; neither way allocates.
template <EntryLink AdapterEntry::* link>
class EntryList {
 public:
  void insert(AdapterEntry& entry) {
    EntryLink& own = entry.*link;
    if (std::exchange(own.listed, true)) return;
    own.before = last_;
    own.after = nullptr;
    (last_ == nullptr ? first_ : (last_->*link).after) = &entry;
    last_ = &entry;
  }
  void remove(AdapterEntry& entry) {
    EntryLink& own = entry.*link;
    if (!std::exchange(own.listed, false)) return;
    (own.before == nullptr ? first_ : (own.before->*link).after) = own.after;
    (own.after == nullptr ? last_ : (own.after->*link).before) = own.before;
  }
  // Calls look(entry) for each, in the order in which they were inserted; it may remove that one.
  // Returns their number.
  template <class Look>
  std::uint64_t each(Look look) const {
    std::uint64_t count = 0;
    for (AdapterEntry* entry = first_; entry != nullptr; ++count) {
      AdapterEntry* const after = (entry->*link).after;
      look(*entry);
      entry = after;
    }
    return count;
  }

 private:
  AdapterEntry* first_ = nullptr;
  AdapterEntry* last_ = nullptr;
};

// All adapters by name. There may be thousands, so neither a step nor a load may look at each of
// them: every look is counted, which tests compare.
class AdapterNames {
 public:
  using Map = std::map<std::string, std::unique_ptr<AdapterEntry>, std::less<>>;

  std::size_t size() const { return map_.size(); }
  bool empty() const { return map_.empty(); }
  // Null: there is none.
  AdapterEntry* find(std::string_view name) const {
    const auto found = map_.find(name);
    return found == map_.end() ? nullptr : found->second.get();
  }
  // An entry that is in no names yet.
  static Map::node_type make(const std::string& name) {
    Map one;
    one.emplace(name, std::make_unique<AdapterEntry>());
    return one.extract(one.begin());
  }
  // Takes an entry whose name is not in here. Does not allocate.
  AdapterEntry& add(Map::node_type entry) {
    return *map_.insert(std::move(entry)).position->second;
  }
  Map::node_type take(std::string_view name) { return map_.extract(map_.find(name)); }

  // Calls look(name, entry) for each, in order of name.
  template <class Look>
  void each(Look look) const {
    for (const auto& [name, entry] : map_) look(name, *entry);
    looks_ += map_.size();
  }
  // Of each() so far, and of walks through lists of entries.
  std::uint64_t looks() const { return looks_; }
  void count_looks(std::uint64_t looks) const { looks_ += looks; }

 private:
  Map map_;
  mutable std::uint64_t looks_ = 0;
};

}  // namespace motley::engine
