#include "lora/site_set.h"

#include <algorithm>

#include "lora/files/adapter.h"

namespace motley::lora {

SiteSet::SiteSet(const Adapter& adapter) {
  for (const SiteDelta& delta : adapter.sites) {
    add(delta.site, static_cast<std::uint8_t>(touched | (delta.replaced >= 0 ? replaced : 0) |
                                              (delta.gain >= 0 ? scaled : 0)));
  }
}

void SiteSet::add(Site site, std::uint8_t kinds) {
  const std::size_t at = index_of(site);
  if (kinds_.size() <= at) kinds_.resize(at + 1, 0);
  kinds_[at] = static_cast<std::uint8_t>(kinds_[at] | kinds);
}

void SiteSet::include(const SiteSet& other) {
  if (kinds_.size() < other.kinds_.size()) kinds_.resize(other.kinds_.size(), 0);
  for (std::size_t i = 0; i < other.kinds_.size(); ++i)
    kinds_[i] = static_cast<std::uint8_t>(kinds_[i] | other.kinds_[i]);
}

bool SiteSet::covers(const SiteSet& other) const {
  const std::size_t common = std::min(kinds_.size(), other.kinds_.size());
  unsigned missing = 0;
  for (std::size_t i = 0; i < common; ++i) missing |= other.kinds_[i] & ~unsigned{kinds_[i]};
  for (std::size_t i = common; i < other.kinds_.size(); ++i) missing |= other.kinds_[i];
  return missing == 0;
}

std::vector<std::string_view> SiteSet::projections() const {
  std::vector<std::string_view> names;
  for (std::size_t projection = 0; projection < projection_count; ++projection) {
    for (std::size_t at = projection; at < kinds_.size(); at += projection_count) {
      if (kinds_[at] == 0) continue;
      names.push_back(name(static_cast<Projection>(projection)));
      break;
    }
  }
  return names;
}

}  // namespace motley::lora
