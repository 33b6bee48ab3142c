#include "engine/residency/adapter_directory.h"

#include <utility>

#include "lora/files/content.h"

namespace motley::engine {

namespace {

AdapterInfo describe(const std::string& name, const AdapterEntry& entry) {
  AdapterState state = AdapterState::absent;
  if (entry.is<AdapterEntry::Loading>()) state = AdapterState::loading;
  if (entry.handle() != nullptr) state = AdapterState::ready;
  if (entry.unloading) state = AdapterState::closing;
  const lora::AdapterContent* const content = entry.spec.content.get();
  return {.name = name,
          .path = entry.spec.path.string(),
          .version = entry.version_name,
          .checksum = content == nullptr ? std::string() : content->checksum(),
          .state = state,
          .pinned = entry.spec.pinned,
          .rank = entry.rank,
          .modules = entry.modules,
          .pages = entry.pages,
          .broken = entry.broken,
          .non_finite_logits = entry.non_finite_logits,
          .running = entry.running,
          .waiting = entry.waiting,
          .traffic = entry.traffic == nullptr
                         ? nullptr
                         : std::make_shared<const AdapterTraffic>(*entry.traffic)};
}

}  // namespace

AdapterDirectory::Changes AdapterDirectory::changes_of(const Residency& residency) {
  Changes changes;
  residency.each_change([&](const std::string& name, const AdapterEntry* entry) {
    Shared& now = changes[name];
    if (entry == nullptr) return;
    now = std::make_shared<const Named>(Named{.info = describe(name, *entry),
                                              .version = entry->version,
                                              .exclusive = entry->exclusive,
                                              .ready = !entry->is<AdapterEntry::Absent>()});
  });
  return changes;
}

AdapterDirectory::Changes AdapterDirectory::apply(Changes changes) {
  Changes before;
  while (!changes.empty()) {
    Changes::node_type now = changes.extract(changes.begin());
    if (now.mapped() == nullptr) {
      before.insert(named_.extract(now.key()));
      continue;
    }
    auto placed = named_.insert(std::move(now));
    if (placed.inserted) continue;
    std::swap(placed.position->second, placed.node.mapped());
    before.insert(std::move(placed.node));
  }
  return before;
}

AdapterDirectory::Shared AdapterDirectory::find(std::string_view name) const {
  const auto found = named_.find(name);
  if (found == named_.end() || found->second->info.state == AdapterState::closing) return {};
  return found->second;
}

std::vector<AdapterDirectory::Shared> AdapterDirectory::list() const {
  std::vector<Shared> all;
  all.reserve(named_.size());
  for (const auto& [name, each] : named_) all.push_back(each);
  return all;
}

}  // namespace motley::engine
