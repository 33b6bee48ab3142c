#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lora/site.h"

namespace motley::lora {

struct Adapter;

// The sites that adapters change, and how.
class SiteSet {
 public:
  enum Kind : std::uint8_t {
    touched = 1,
    replaced = 2,  // a whole weight of its own
    scaled = 4,    // gains
  };

  SiteSet() = default;
  explicit SiteSet(const Adapter& adapter);

  void add(Site site, std::uint8_t kinds);
  void include(const SiteSet& other);
  bool covers(const SiteSet& other) const;
  // The names of the projections that are touched in any layer, each once.
  std::vector<std::string_view> projections() const;
  bool has(Site site, Kind kind) const {
    const std::size_t at = index_of(site);
    return at < kinds_.size() && (kinds_[at] & kind) != 0;
  }
  bool empty() const { return kinds_.empty(); }
  // Keeps its memory.
  void clear() { kinds_.clear(); }
  // Reserves memory, so that sites of this many layers are added without allocation.
  void reserve(std::int32_t layers) {
    kinds_.reserve(static_cast<std::size_t>(layers + 1) * projection_count);
  }

  friend bool operator==(const SiteSet&, const SiteSet&) = default;

 private:
  static std::size_t index_of(Site site) {
    return static_cast<std::size_t>(site.layer + 1) * projection_count +
           static_cast<std::size_t>(site.projection);
  }

  std::vector<std::uint8_t> kinds_;  // by (layer + 1, projection)
};

}  // namespace motley::lora
