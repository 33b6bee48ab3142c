#include "lora/resident.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "lora/placement.h"

namespace motley::lora {
namespace {

std::size_t expert_kind(Projection projection) {
  return static_cast<std::size_t>(projection) - static_cast<std::size_t>(Projection::expert_gate);
}
bool is_expert(Site site) {
  return site.projection == Projection::expert_gate || site.projection == Projection::expert_up ||
         site.projection == Projection::expert_down;
}

// Counts of the directory, without its addresses.
Directory directory_of(const Placement& placement) {
  Directory counts;
  counts.expert_kinds = placement.format.experts == Layout::images ? 2 : 3;
  const auto see = [&](std::int32_t layer, std::size_t experts) {
    counts.expert_layers = std::max(counts.expert_layers, layer + 1);
    counts.experts = std::max(counts.experts, static_cast<std::int32_t>(experts));
  };
  for (const Placement::SitePlace& site : placement.sites) {
    if (!is_expert(site.site))
      counts.site_layers = std::max(counts.site_layers, site.site.layer + 2);
    if (is_expert(site.site) && site.count > 0) see(site.site.layer, site.count);
  }
  for (const Placement::Seam& seam : placement.seams) see(seam.layer, seam.count);
  return counts;
}

std::size_t sites_of(const Directory& counts) {
  return static_cast<std::size_t>(counts.site_layers) * projection_count;
}
std::size_t expert_factors_of(const Directory& counts) {
  return static_cast<std::size_t>(counts.expert_layers) *
         static_cast<std::size_t>(counts.expert_kinds) * static_cast<std::size_t>(counts.experts);
}

kernels::FactorEntry entry_of(const FactorView& view) {
  return {
      .a = view.a, .b = view.b, .rank = view.rank, .split = view.padded, .scale = {view.scale, 0}};
}

}  // namespace

int Resident::largest_rank() const { return placement_->largest_rank; }
const std::string& Resident::exclusive() const { return placement_->exclusive; }

std::span<const kernels::FactorEntry> Resident::seam(std::int32_t layer, int number) const {
  const auto found = std::ranges::find_if(placement_->seams, [&](const Placement::Seam& seam) {
    return seam.layer == layer && seam.seam == number;
  });
  if (found == placement_->seams.end()) return {};
  return std::span(images_).subspan(found->first, found->count);
}

void Resident::describe(std::shared_ptr<const Placement> placement, std::vector<std::byte*> bases) {
  placement_ = std::move(placement);
  bases_ = std::move(bases);
  const auto blob = [&](std::int32_t index) {
    return index < 0 ? nullptr : &placement_->blobs[static_cast<std::size_t>(index)];
  };
  const auto address = [&](std::int32_t index) -> const std::byte* {
    return index < 0 ? nullptr : bases_[blob(index)->run] + blob(index)->offset;
  };
  const auto vector = [&](std::int32_t index) {
    return reinterpret_cast<const float*>(address(index));
  };
  const auto scales = [&](std::int32_t index) -> const float* {
    if (index < 0 || blob(index)->bytes == blob(index)->numbers) return nullptr;
    return reinterpret_cast<const float*>(address(index) + blob(index)->numbers);
  };
  // One for one with the placement's; a seam's are entries, a site's views.
  for (const Placement::Factor& factor : placement_->factors) {
    factors_.push_back({address(factor.a), address(factor.b), factor.rank, factor.split,
                        factor.scale[0], scales(factor.a), scales(factor.b)});
    if (placement_->seams.empty()) continue;
    images_.push_back({.a = address(factor.a),
                       .b = address(factor.b),
                       .rank = factor.rank,
                       .split = factor.split,
                       .scale = {factor.scale[0], factor.scale[1]}});
  }
  for (const Placement::SitePlace& site : placement_->sites) {
    const auto at = static_cast<std::size_t>(site.site.layer + 1) * projection_count +
                    static_cast<std::size_t>(site.site.projection);
    if (place_.size() <= at) place_.resize(at + 1, -1);
    place_[at] = static_cast<std::int32_t>(sites_.size());
    sites_.push_back({site.site, site.in, site.out,
                      std::span(factors_).subspan(site.first, site.count), vector(site.lora_bias),
                      vector(site.gain), address(site.replaced), vector(site.replaced_bias)});
    site_set_.add(site.site, static_cast<std::uint8_t>(
                                 SiteSet::touched | (site.replaced >= 0 ? SiteSet::replaced : 0) |
                                 (site.gain >= 0 ? SiteSet::scaled : 0)));
  }
}

std::size_t Resident::directory_bytes(const Placement& placement) {
  const Directory counts = directory_of(placement);
  return sites_of(counts) * sizeof(kernels::SiteEntry) +
         expert_factors_of(counts) * sizeof(kernels::FactorEntry);
}

std::vector<std::byte> Resident::write_directory(const std::byte* address) {
  directory_ = directory_of(*placement_);
  std::vector<kernels::SiteEntry> sites(sites_of(directory_));
  std::vector<kernels::FactorEntry> factors(expert_factors_of(directory_));
  const auto experts_at = [&](std::int32_t layer, std::size_t kind) {
    return (static_cast<std::size_t>(layer) * static_cast<std::size_t>(directory_.expert_kinds) +
            kind) *
           static_cast<std::size_t>(directory_.experts);
  };
  for (const SiteView& view : sites_) {
    if (is_expert(view.site)) {
      std::size_t at = experts_at(view.site.layer, expert_kind(view.site.projection));
      for (const FactorView& factor : view.factors) factors[at++] = entry_of(factor);
      continue;
    }
    kernels::SiteEntry& entry =
        sites[static_cast<std::size_t>(view.site.layer + 1) * projection_count +
              static_cast<std::size_t>(view.site.projection)];
    entry = {.factor = entry_of(view.factors[0]),
             .lora_bias = view.lora_bias,
             .gain = view.gain,
             .replaced = view.replaced,
             .replaced_bias = view.replaced_bias};
  }
  for (const Placement::Seam& seam : placement_->seams) {
    const std::size_t at = experts_at(seam.layer, static_cast<std::size_t>(seam.seam));
    std::ranges::copy(std::span(images_).subspan(seam.first, seam.count),
                      factors.begin() + static_cast<std::ptrdiff_t>(at));
  }
  const std::size_t site_bytes = sites.size() * sizeof(kernels::SiteEntry);
  std::vector<std::byte> bytes(site_bytes + factors.size() * sizeof(kernels::FactorEntry));
  if (!sites.empty()) std::memcpy(bytes.data(), sites.data(), site_bytes);
  if (!factors.empty())
    std::memcpy(bytes.data() + site_bytes, factors.data(), bytes.size() - site_bytes);
  directory_.sites = reinterpret_cast<const kernels::SiteEntry*>(address);
  directory_.expert_factors = reinterpret_cast<const kernels::FactorEntry*>(address + site_bytes);
  return bytes;
}

}  // namespace motley::lora
