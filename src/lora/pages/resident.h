#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/adapter_tables.h"
#include "lora/files/adapter.h"
#include "lora/site.h"
#include "lora/site_set.h"

namespace motley::lora {

class Pool;
struct Placement;

// The resident form of a SiteDelta: an adapter's data at one site, by address in the pool's arena.
// Null where it has none of a kind.
struct SiteView {
  Site site;
  std::int64_t in = 0;
  std::int64_t out = 0;
  // One for each expert, else one, in rows: A [padded, in] and B [out, padded], with zeros behind
  // the true rank. The embedding's A is [vocabulary, padded]. Empty if factors are packed.
  std::span<const kernels::FactorEntry> factors;
  const float* lora_bias = nullptr;      // [out]
  const float* gain = nullptr;           // [out]
  const void* replaced = nullptr;        // [out, in], embedding [vocabulary, hidden]
  const float* replaced_bias = nullptr;  // [out]
};

// The packed factors of a layer's experts: gate and up (seam 0) or down (1).
struct SeamView {
  std::int32_t layer = 0;
  std::int32_t seam = 0;
  std::span<const kernels::FactorEntry> factors;  // one for each expert
};

// An adapter in the pages of a pool. Immutable while it is pinned.
class Resident {
 public:
  std::uint64_t id() const { return id_; }
  const std::string& name() const { return name_; }
  const Pool* pool() const { return pool_; }
  ContentVersion version() const { return version_; }
  // The type of factors; with FP8 whole tables are bf16.
  DType dtype() const { return dtype_; }
  // The same adapter in the pool of another rank (Pool::Options::other_ranks); rank 0 is this one.
  const Resident& shard(int rank) const {
    return rank == 0 ? *this : *other_ranks_[static_cast<std::size_t>(rank - 1)];
  }
  // That it has in its pool.
  std::uint64_t pages() const { return pages_; }
  int largest_rank() const;
  // Why it cannot be mixed or scaled; empty if it can.
  const std::string& exclusive() const;

  // In ascending order of site.
  std::span<const SiteView> sites() const { return sites_; }
  const SiteSet& site_set() const { return site_set_; }
  const SiteView* find(Site site) const {
    const auto at = (static_cast<std::size_t>(site.layer + 1) * projection_count) +
                    static_cast<std::size_t>(site.projection);
    if (at >= place_.size() || place_[at] < 0) return nullptr;
    return &sites_[static_cast<std::size_t>(place_[at])];
  }
  // The factors of a layer's experts, one entry each; empty in the row layout.
  std::span<const kernels::FactorEntry> seam(std::int32_t layer, int number) const;

  // The begin of a run of the placement in the arena.
  const std::byte* run(std::uint32_t index) const { return bases_[index]; }

  // What kernels on the arena's device read, at scale 1; all null if the pool keeps no directories.
  const kernels::AdapterTerm& directory() const { return directory_; }

  // Fills in the addresses; `bases` are those of the placement's runs.
  void describe(std::shared_ptr<const Placement> placement, std::vector<std::byte*> bases);

  // The directory's bytes for an address: its sites, then the factors of experts.
  static std::size_t directory_bytes(const Placement& placement);
  std::vector<std::byte> write_directory(const std::byte* address);

 private:
  friend class Handle;
  friend class Pool;

  Pool* pool_ = nullptr;
  std::uint64_t id_ = 0;
  std::string name_;
  ContentVersion version_;
  DType dtype_ = DType::f32;
  std::uint64_t pages_ = 0;
  std::shared_ptr<const Placement> placement_;
  std::vector<std::byte*> bases_;              // of the placement's runs
  std::vector<kernels::FactorEntry> factors_;  // of sites, then of seams
  std::vector<SiteView> sites_;
  std::vector<SeamView> seams_;
  SiteSet site_set_;
  // By (layer + 1, projection): index into sites_, or -1.
  std::vector<std::int32_t> place_;
  kernels::AdapterTerm directory_;
  std::vector<const Resident*> other_ranks_;
  std::atomic<std::uint32_t> pins_{0};
};

}  // namespace motley::lora
