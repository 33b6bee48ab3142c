#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motley::server {

// The holder of a key. Turns, the queue, and the memory of bodies and requests go by its name, as
// those of requests without a holder go by their address (HttpHead::client()).
struct Principal {
  std::string name;          // begins with a letter, so that it is no address
  std::uint32_t weight = 1;  // of its turns, where others wait, too
  // Adapters that it may use, by their names or by how they begin ("team-*"); nothing: all.
  std::optional<std::vector<std::string>> adapters = {};

  bool operator==(const Principal&) const = default;
  bool may_use(std::string_view adapter) const {
    return !adapters || std::ranges::any_of(*adapters, [&](std::string_view allowed) {
      if (!allowed.ends_with('*')) return adapter == allowed;
      allowed.remove_suffix(1);
      return adapter.starts_with(allowed);
    });
  }
};

}  // namespace motley::server
