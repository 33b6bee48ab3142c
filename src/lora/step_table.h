#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/adapter_tables.h"
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

 private:
  StepTable(Pool& pool, const Limits& limits);
  std::size_t labels_at() const { return terms_at_ - labels_bytes_; }

  Pool& pool_;
  Limits limits_;
  // [term_begin | labels | terms], each at a multiple of 64 bytes
  std::size_t labels_bytes_;
  std::size_t terms_at_;
  std::size_t bytes_;
  tensor::Buffer table_;
  std::unique_ptr<tensor::Staging> staging_;
  tensor::Stream* stream_ = nullptr;
  std::vector<Mix> mixes_;  // what the table names
};

}  // namespace motley::lora
