#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/adapter_tables.h"
#include "kernels/adapters.h"
#include "lora/batch.h"
#include "lora/pool.h"
#include "tensor/device.h"
#include "tensor/staging.h"

namespace motley::lora {

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

  // What launches provide for: all that any batch so far has had, so that a captured graph serves
  // other adapters too. reach() changes where a graph that was captured before may do too little.
  bool touches(Site site) const { return has(site, touched); }
  bool touches_experts(std::int32_t layer) const;
  // Whether anybody had a whole weight of their own at the site.
  bool replaces(Site site) const { return has(site, replaced); }
  // Whether anybody had gains of their own there.
  bool scales(Site site) const { return has(site, scaled); }
  // Of a label at one site, at most, each term's rounded up to eight.
  std::int32_t most_ranks() const { return most_ranks_; }
  // Whether a batch had more than kernels::few_labels.
  bool many_labels() const { return many_labels_; }
  // Of a label, a power of two; 0: nobody came yet.
  std::int32_t most_terms() const { return most_terms_; }
  std::uint64_t reach() const { return reach_; }

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
  enum Kind : std::uint8_t { touched = 1, replaced = 2, scaled = 4 };

  StepTable(Pool& pool, const Limits& limits);
  void extend_reach(const Batch& batch);
  // The batch's rows by label, at their places in a table whose term_begin is written.
  void write_groups(const Batch& batch, std::byte* table);
  bool has(Site site, Kind kind) const {
    const auto at = static_cast<std::size_t>(entry_of(site));
    return at < sites_.size() && (sites_[at] & kind) != 0;
  }

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
  std::vector<std::uint8_t> sites_;  // by entry: kinds
  std::vector<std::uint64_t> seen_;  // adapters whose sites are in sites_, ascending
  std::int32_t most_ranks_ = 0;
  std::int32_t most_terms_ = 0;
  bool many_labels_ = false;
  std::uint64_t reach_ = 0;
};

}  // namespace motley::lora
