#include "lora/pages/resident.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lora/pages/placement.h"

namespace motley::lora {
namespace {

std::size_t index_of(Site site) {
  return static_cast<std::size_t>(site.layer + 1) * projection_count +
         static_cast<std::size_t>(site.projection);
}
std::size_t expert_kind(Projection projection) {
  return static_cast<std::size_t>(projection) - static_cast<std::size_t>(Projection::expert_gate);
}

// The directory's counts, without addresses.
kernels::AdapterTerm directory_of(const Placement& placement) {
  kernels::AdapterTerm counts{.scale = 1};
  for (const SiteDelta& delta : placement.sites) {
    const Site site = delta.site;
    if (!is_expert(site.projection)) {
      counts.site_layers = std::max(counts.site_layers, site.layer + 2);
      continue;
    }
    counts.expert_layers = std::max(counts.expert_layers, site.layer + 1);
    counts.experts = std::max(counts.experts, static_cast<std::int32_t>(delta.factors.size()));
  }
  return counts;
}

// Where the factors of experts begin: gate, up and down in rows, or packed by seam.
std::size_t experts_at(const kernels::AdapterTerm& counts, const PageFormat& format,
                       std::int32_t layer, std::size_t kind) {
  const std::size_t kinds = format.experts == Layout::packed ? 2 : 3;
  return (static_cast<std::size_t>(layer) * kinds + kind) *
         static_cast<std::size_t>(counts.experts);
}

std::size_t site_count(const kernels::AdapterTerm& counts) {
  return static_cast<std::size_t>(counts.site_layers) * projection_count;
}

}  // namespace

int Resident::largest_rank() const { return placement_->largest_rank; }
const std::string& Resident::exclusive() const { return placement_->exclusive; }

std::span<const kernels::FactorEntry> Resident::seam(std::int32_t layer, int number) const {
  for (const SeamView& seam : seams_) {
    if (seam.layer == layer && seam.seam == number) return seam.factors;
  }
  return {};
}

void Resident::describe(std::shared_ptr<const Placement> placement, std::vector<std::byte*> bases) {
  placement_ = std::move(placement);
  bases_ = std::move(bases);
  const auto address = [&](std::int32_t index) -> const std::byte* {
    if (index < 0) return nullptr;
    const Placement::Blob& blob = placement_->blobs[static_cast<std::size_t>(index)];
    return bases_[blob.run] + blob.offset;
  };
  const auto matrix = [&](std::int32_t index) {
    return index < 0 ? nullptr
                     : address(placement_->blob_of_matrix[static_cast<std::size_t>(index)]);
  };
  const auto vector = [&](std::int32_t index) {
    return reinterpret_cast<const float*>(matrix(index));
  };
  std::size_t count = placement_->packed.size();
  for (const SiteDelta& delta : placement_->sites) count += delta.factors.size();
  factors_.reserve(count);  // spans point into it
  const auto added_since = [&](std::size_t first) { return std::span(factors_).subspan(first); };

  for (const SiteDelta& delta : placement_->sites) {
    const std::size_t first = factors_.size();
    for (const Factors& factors : delta.factors) {
      if (placement_->is_packed(delta.site)) break;
      kernels::FactorEntry& entry = factors_.emplace_back();
      if (!factors.present()) continue;
      entry = {.a = matrix(factors.a),
               .b = matrix(factors.b),
               .rank = factors.rank,
               .split = padded_rank(factors.rank, dtype_),
               .scale = {factors.scale, 0}};
    }
    const std::size_t at = index_of(delta.site);
    if (place_.size() <= at) place_.resize(at + 1, -1);
    place_[at] = static_cast<std::int32_t>(sites_.size());
    sites_.push_back({delta.site, delta.in, delta.out, added_since(first), vector(delta.lora_bias),
                      vector(delta.gain), matrix(delta.replaced), vector(delta.replaced_bias)});
    site_set_.add(delta.site, static_cast<std::uint8_t>(
                                  SiteSet::touched | (delta.replaced >= 0 ? SiteSet::replaced : 0) |
                                  (delta.gain >= 0 ? SiteSet::scaled : 0)));
  }
  for (const Placement::Seam& seam : placement_->seams) {
    const std::size_t first = factors_.size();
    for (std::size_t expert = 0; expert < placement_->experts(seam); ++expert) {
      const JoinedFactors joined = placement_->joined(seam, expert);
      const auto [a, b] = placement_->packed[seam.packed + expert];
      kernels::FactorEntry& entry = factors_.emplace_back();
      if (!joined.present()) continue;
      entry = {.a = address(a),
               .b = address(b),
               .rank = joined.columns(),
               .split = joined.split(),
               .scale = {joined.first.scale, joined.second.scale}};
    }
    seams_.push_back({seam.layer, seam.seam, added_since(first)});
  }
}

std::size_t Resident::directory_bytes(const Placement& placement) {
  const kernels::AdapterTerm counts = directory_of(placement);
  return site_count(counts) * sizeof(kernels::SiteEntry) +
         experts_at(counts, placement.format, counts.expert_layers, 0) *
             sizeof(kernels::FactorEntry);
}

std::vector<std::byte> Resident::write_directory(const std::byte* address) {
  directory_ = directory_of(*placement_);
  const PageFormat& format = placement_->format;
  std::vector<kernels::SiteEntry> sites(site_count(directory_));
  std::vector<kernels::FactorEntry> factors(
      experts_at(directory_, format, directory_.expert_layers, 0));
  const auto put_experts = [&](std::span<const kernels::FactorEntry> entries, std::int32_t layer,
                               std::size_t kind) {
    const std::size_t at = experts_at(directory_, format, layer, kind);
    std::ranges::copy(entries, factors.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (const SiteView& view : sites_) {
    if (is_expert(view.site.projection)) {
      put_experts(view.factors, view.site.layer, expert_kind(view.site.projection));
      continue;
    }
    sites[index_of(view.site)] = {.factor = view.factors[0],
                                  .lora_bias = view.lora_bias,
                                  .gain = view.gain,
                                  .replaced = view.replaced,
                                  .replaced_bias = view.replaced_bias};
  }
  for (const SeamView& view : seams_)
    put_experts(view.factors, view.layer, static_cast<std::size_t>(view.seam));
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
