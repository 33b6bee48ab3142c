#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "kernels/adapter_tables.h"
#include "kernels/adapters.h"
#include "lora/apply/batch.h"
#include "lora/pages/pool.h"
#include "lora/site_set.h"
#include "tensor/device/device.h"
#include "tensor/device/staging.h"

namespace motley::lora {

// What the launches of a step provide for, beside the sites that adapters touch.
struct LaunchScope {
  bool many_labels = false;    // more than kernels::few_labels
  std::int32_t max_terms = 0;  // of a label
  std::int32_t max_ranks = 0;  // of a label at one site, each term's rounded up to eight

  friend bool operator==(const LaunchScope&, const LaunchScope&) = default;
};

// Batches that the same launches serve, so that one captured graph does: by labels, and by what a
// label's adapters are together.
enum class AdapterClass : std::uint8_t {
  few_labels,   // at most kernels::few_labels, each of one adapter with a rank of at most 128
  many_labels,  // more of those
  wide,         // any number, each of up to four adapters and any rank that steps have room for
};
inline constexpr int adapter_class_count = 3;
// Nothing where a batch is beyond all classes: its steps are not captured.
std::optional<AdapterClass> class_of(const Batch& batch);

// What kernels read of a batch: its rows' labels and its labels' adapters, at addresses of the
// device that never change, so that a captured graph serves every batch.
//
// Nothing stale can be read. The table is written whole, in the order of the stream that reads it,
// and it pins what it names until a later upload() has marked the work before it: a step that runs,
// or a graph that is launched again without an upload, finds its adapters where the table says.
class StepTable {
 public:
  struct Limits {
    int rows = 0;
    int labels = 0;
    int terms = 0;  // of all labels together
    int ranks = 0;  // of one label at a site, each term's rounded up to eight
  };

  // All batches are of the pool, which keeps directories and must outlive this, as the streams of
  // uploads must.
  static Result<std::unique_ptr<StepTable>> create(tensor::Device& device, Pool& pool,
                                                   const Limits& limits);
  // Everything that reads the table has been queued, on the stream of the last upload.
  ~StepTable();
  StepTable(const StepTable&) = delete;
  StepTable& operator=(const StepTable&) = delete;

  // Queues the table of a batch on `stream`, where all of its readers are queued: those of the
  // table before it already, those of this one from now on. Rows behind the batch's have no label.
  // Nothing is done where both batches are empty; who has no more steps to run uploads an empty
  // one, so that what the last one named can be unloaded. Never while the stream captures.
  Result<void> upload(const Batch& batch, tensor::Stream& stream);

  // In the device's memory.
  const std::int32_t* labels() const;         // [rows], plan::no_label: the base
  const std::int32_t* term_begin() const;     // [labels + 1]
  const kernels::AdapterTerm* terms() const;  // [term_begin of the last label]
  const Limits& limits() const { return limits_; }
  // What pages hold.
  PageFormat format() const { return pool_.options().format(); }

  // What the step's launches provide for. Behind an upload: what its batch needs and no more.
  const LaunchScope& scope() const { return scope_; }
  const SiteSet& sites() const { return *sites_; }
  bool touches(Site site) const { return sites_->has(site, SiteSet::touched); }
  bool touches_experts(std::int32_t layer) const;
  // Whether an adapter has a whole weight of its own at the site, or gains.
  bool replaces(Site site) const { return sites_->has(site, SiteSet::replaced); }
  bool scales(Site site) const { return sites_->has(site, SiteSet::scaled); }

  // Launches that are captured serve every batch of a class, whichever adapters it has. As a rule
  // they provide for all foreseen sites: those of every adapter that a batch has had, or that
  // foresee() was told of.
  void foresee(const SiteSet& sites);
  const SiteSet& foreseen() const { return foreseen_; }
  // The sites of the batch at hand.
  const SiteSet& own_sites() const { return own_sites_; }
  // The step at hand, of so many rows, provides for all of the class at these sites, which outlive
  // the step.
  void widen_to(AdapterClass adapter_class, std::int64_t rows, const SiteSet& sites);

  // Rows of a step as kernels take them; labels are the table's own, or others of its batch. All of
  // the table's own rows, with more that have no label behind them, come in groups.
  kernels::AdapterRows rows(const std::int32_t* labels, std::int64_t count) const;
  static std::int32_t entry_of(Site site) {
    return (site.layer + 1) * static_cast<std::int32_t>(projection_count) +
           static_cast<std::int32_t>(site.projection);
  }
  // Room for limits().rows rows in rank space, for one call at a time.
  float* rank_rows() const { return reinterpret_cast<float*>(rank_rows_.data()); }

 private:
  StepTable(Pool& pool, const Limits& limits);
  // Sets scope_ and the sites.
  void fit_to(const Batch& batch);
  // The batch's rows by label, at their places in a table whose term_begin is written.
  void write_groups(const Batch& batch, std::byte* table);

  Pool& pool_;
  Limits limits_;
  // [term_begin | labels | counts of groups | groups | order | terms], each at a multiple of 64
  // bytes
  std::size_t labels_at_ = 0;
  std::size_t counts_at_ = 0;
  std::size_t groups_at_ = 0;
  std::size_t order_at_ = 0;
  std::size_t terms_at_ = 0;
  std::size_t bytes_ = 0;
  tensor::Buffer table_;
  std::unique_ptr<tensor::Staging> staging_;
  tensor::Stream* stream_ = nullptr;
  std::vector<Mix> mixes_;  // what the table names
  std::int64_t batch_rows_ = 0;
  std::vector<std::int32_t> next_row_;  // of each label and of the base, in the order of rows
  tensor::Buffer rank_rows_;
  LaunchScope scope_;
  SiteSet own_sites_;
  SiteSet foreseen_;
  const SiteSet* sites_ = &own_sites_;  // that launches provide for
};

}  // namespace motley::lora
