#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "lora/adapter.h"
#include "lora/site.h"

namespace motley::lora {

class Pool;
struct Placement;

// Factors as kernels read them, in the pool's dtype. A [padded, in] and B [out, padded], but the
// embedding's A is [vocabulary, padded]; padded is the rank rounded up to 8, and what lies between
// is zero. Absent: rank 0.
struct FactorView {
  const void* a = nullptr;
  const void* b = nullptr;
  std::int32_t rank = 0;
  std::int32_t padded = 0;
  float scale = 0;
};

// What one adapter has at one site; null where it has nothing of a kind.
struct SiteView {
  Site site;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::span<const FactorView> factors;   // one for each expert, else one
  const float* lora_bias = nullptr;      // [out]
  const float* gain = nullptr;           // [out]
  const void* replaced = nullptr;        // [out, in], embedding [vocabulary, hidden]
  const float* replaced_bias = nullptr;  // [out]
};

// An adapter in the pages of a pool. Immutable while it is pinned.
class Resident {
 public:
  std::uint64_t id() const { return id_; }
  const std::string& name() const { return name_; }
  ContentVersion version() const { return version_; }
  DType dtype() const { return dtype_; }
  int largest_rank() const { return largest_rank_; }
  // Why it can't be mixed or scaled; empty where it can.
  const std::string& exclusive() const { return exclusive_; }

  // In ascending order of site.
  std::span<const SiteView> sites() const { return sites_; }
  const SiteView* find(Site site) const {
    const auto at = (static_cast<std::size_t>(site.layer + 1) * projection_count) +
                    static_cast<std::size_t>(site.projection);
    if (at >= place_.size() || place_[at] < 0) return nullptr;
    return &sites_[static_cast<std::size_t>(place_[at])];
  }

  // Fills in what stands at `bases`, the addresses of the placement's runs.
  void describe(const Adapter& adapter, const Placement& placement,
                std::span<std::byte* const> bases);

 private:
  friend class Handle;
  friend class Pool;

  Pool* pool_ = nullptr;
  std::uint64_t id_ = 0;
  std::string name_;
  ContentVersion version_;
  DType dtype_ = DType::f32;
  int largest_rank_ = 0;
  std::string exclusive_;
  std::vector<FactorView> factors_;
  std::vector<SiteView> sites_;
  // (layer + 1, projection) -> place in sites_, or -1.
  std::vector<std::int32_t> place_;
  std::atomic<std::uint32_t> pins_{0};
};

}  // namespace motley::lora
