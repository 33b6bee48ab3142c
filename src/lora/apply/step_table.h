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

// What the launches of a step provide for, besides the sites that adapters change.
struct LaunchScope {
  bool many_labels = false;    // more than kernels::few_labels
  std::int32_t max_terms = 0;  // of a label
  std::int32_t max_ranks = 0;  // of a label at one site, each term's rounded up to 8

  friend bool operator==(const LaunchScope&, const LaunchScope&) = default;
};

// Classes of batches that share launches, and so one captured graph: by the number of labels, and
// by the sum of a label's adapters.
enum class AdapterClass : std::uint8_t {
  few_labels,   // at most kernels::few_labels, each of one adapter with rank at most 128
  many_labels,  // more of those
  wide,         // any number of labels, each of up to four adapters with any rank that steps allow
};
inline constexpr int adapter_class_count = 3;
// Nothing if a batch exceeds all classes: its steps are not captured.
std::optional<AdapterClass> class_of(const Batch& batch);

// What kernels read of a batch: the labels of its rows and the adapters of its labels, at device
// addresses that never change, so that a captured graph serves every batch.
//
// No reader sees stale entries. The table is written as a whole, in the order of the stream that
// reads it. It pins its adapters until a later upload() has marked the work before it. So a running
// step, or a graph that is launched again without an upload, finds its adapters where the table
// points.
class StepTable {
 public:
  struct Limits {
    int rows = 0;
    int labels = 0;
    int terms = 0;  // of all labels together
    int ranks = 0;  // of one label at a site, each term's rounded up to 8
  };

  // All batches have adapters of this pool, which keeps directories. The pool and the streams of
  // uploads must outlive the table.
  static Result<std::unique_ptr<StepTable>> create(tensor::Device& device, Pool& pool,
                                                   const Limits& limits);
  // Call after everything that reads the table has been queued on the stream of the last upload.
  ~StepTable();
  StepTable(const StepTable&) = delete;
  StepTable& operator=(const StepTable&) = delete;

  // Queues the table of a batch on `stream`. All readers must be queued there: those of the
  // previous table already, those of this one from now on. Rows behind the batch's have no label.
  // Does nothing if both batches are empty. After its last step a caller uploads an empty batch, so
  // that the adapters of the last one can be unloaded. Must not be called while the stream
  // captures.
  Result<void> upload(const Batch& batch, tensor::Stream& stream);

  // Waits for the work that reads the table and releases the adapters of its batch, whatever has
  // failed. No reader may follow but behind another upload.
  void release();

  // In device memory:
  const std::int32_t* labels() const;         // [rows], plan::no_label: the base
  const std::int32_t* term_begin() const;     // [labels + 1]
  const kernels::AdapterTerm* terms() const;  // [term_begin of the last label]
  const Limits& limits() const { return limits_; }
  // The format of factors in adapter memory.
  PageFormat format() const { return pool_.options().format(); }

  // What the step's launches provide for. After an upload: exactly what its batch needs.
  const LaunchScope& scope() const { return scope_; }
  const SiteSet& sites() const { return *sites_; }
  bool touches(Site site) const { return sites_->has(site, SiteSet::touched); }
  bool touches_experts(std::int32_t layer) const;
  // Whether an adapter replaces the whole weight at the site, or has gains there.
  bool replaces(Site site) const { return sites_->has(site, SiteSet::replaced); }
  bool scales(Site site) const { return sites_->has(site, SiteSet::scaled); }

  // Captured launches serve every batch of a class, with any adapters. They usually provide for all
  // foreseen sites: those of every adapter that a batch has had or that foresee() was called with.
  void foresee(const SiteSet& sites);
  const SiteSet& foreseen() const { return foreseen_; }
  // The sites of the current batch.
  const SiteSet& own_sites() const { return own_sites_; }
  // Makes the current step, with this number of rows, provide for the whole class at these sites.
  // They must outlive the step.
  void widen_to(AdapterClass adapter_class, std::int64_t rows, const SiteSet& sites);

  // The rows of a step as kernels take them. `labels` are the table's own, or others of its batch.
  // The table's own rows, with unlabelled rows behind them, come in groups.
  kernels::AdapterRows rows(const std::int32_t* labels, std::int64_t count) const;
  static std::int32_t entry_of(Site site) {
    return (site.layer + 1) * static_cast<std::int32_t>(projection_count) +
           static_cast<std::int32_t>(site.projection);
  }
  // Scratch for limits().rows rows in rank space, for one call at a time.
  float* rank_rows() const { return reinterpret_cast<float*>(rank_rows_.data()); }

 private:
  StepTable(Pool& pool, const Limits& limits);
  // Sets scope_ and the sites.
  void fit_to(const Batch& batch);
  // Writes the batch's rows by label, at their places in a table whose term_begin is written.
  void write_groups(const Batch& batch, std::byte* table);

  Pool& pool_;
  Limits limits_;
  // [term_begin | labels | counts of groups | groups | order | terms], each aligned to 64 bytes
  std::size_t labels_at_ = 0;
  std::size_t counts_at_ = 0;
  std::size_t groups_at_ = 0;
  std::size_t order_at_ = 0;
  std::size_t terms_at_ = 0;
  std::size_t bytes_ = 0;
  tensor::Buffer table_;
  std::unique_ptr<tensor::Staging> staging_;
  tensor::Stream* stream_ = nullptr;
  std::vector<Mix> mixes_;  // pins the table's adapters
  std::int64_t batch_rows_ = 0;
  std::vector<std::int32_t> next_row_;  // by label, and for the base; in the order of rows
  tensor::Buffer rank_rows_;
  LaunchScope scope_;
  SiteSet own_sites_;
  SiteSet foreseen_;
  const SiteSet* sites_ = &own_sites_;  // for which launches provide
};

}  // namespace motley::lora
