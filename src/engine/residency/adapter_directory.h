#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/residency/residency.h"
#include "engine/stats/stats.h"

namespace motley::engine {

// The adapters that readers of other threads see, by name. Entries are immutable and shared, so a
// change of one copies no other, and a reader keeps what it has found. Not thread-safe itself.
class AdapterDirectory {
 public:
  struct Named {
    AdapterInfo info;
    lora::ContentVersion version;
    std::string exclusive;  // why it cannot be mixed or scaled; empty if it can
    bool ready = false;     // where steps read it, or on its way there
  };
  using Shared = std::shared_ptr<const Named>;
  // By name; null: it is gone.
  using Changes = std::map<std::string, Shared, std::less<>>;

  // What has changed since Residency::forget_changes().
  static Changes changes_of(const Residency& residency);
  // Takes them over. Returns what they replace, to be freed without a lock. Does not allocate.
  [[nodiscard]] Changes apply(Changes changes);

  // Null if no request can name it.
  Shared find(std::string_view name) const;
  // All, in order of name; with those that are unloading.
  std::vector<Shared> list() const;

 private:
  std::map<std::string, Shared, std::less<>> named_;
};

}  // namespace motley::engine
