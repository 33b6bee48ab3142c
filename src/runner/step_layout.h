#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "lora/apply/batch.h"
#include "model/step.h"
#include "runner/kv_memory.h"
#include "tensor/device/device.h"
#include "tensor/device/staging.h"

namespace motley::runner {

enum class LogitsOf : std::uint8_t { none, last, all };

// The next tokens of a sequence, under one mix of adapters: a piece of a prompt, or a single token.
// The sequence is its pages: the caller's list of them, in order of positions.
struct Chunk {
  // Of keys and values: at least as many as length + tokens.size() positions take.
  std::span<const std::int32_t> pages;
  std::int64_t length = 0;  // tokens of the sequence whose keys and values are in its pages
  std::span<const std::int32_t> tokens;
  lora::Mix mix;
  LogitsOf logits = LogitsOf::last;
};

// Whose row of logits it is.
struct LogitRow {
  std::size_t chunk = 0;
  std::size_t token = 0;  // inside the chunk
};

// The arrays of a step, laid out in the host's memory and brought to addresses of the device that
// never change, so that a captured graph serves every step.
class StepLayout {
 public:
  struct Limits {
    std::int64_t rows = 0;
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;    // of one sequence
    std::int64_t expanded = 0;  // positions in expanded form (model::StepPart)
  };

  static Result<StepLayout> create(tensor::Device& device, const Limits& limits);

  // Chunks become rows, in order. Nothing is allocated once it has seen as many.
  void build(std::span<const Chunk> chunks);
  // A step of single tokens gets rows and sequences up to that many: rows that belong to no
  // sequence, without adapters, and sequences without rows.
  void pad_to(std::int64_t rows);
  // In the order of the stream, on which all readers are queued.
  Result<void> upload(tensor::Stream& stream);

  std::int64_t rows() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(seq_begin_.size()) - 1; }
  std::int64_t max_rows() const { return max_rows_; }
  std::int64_t least_rows() const { return least_rows_; }
  // Empty where no sequence is in expanded form.
  std::span<const model::StepPart> parts() const { return parts_; }
  // Every chunk is one token, and its logits are wanted.
  bool decodes() const { return decodes_; }
  const lora::Batch& adapters() const { return adapters_; }
  // Of the rows that get logits.
  std::span<const LogitRow> logit_rows() const { return logit_rows_; }
  // Nothing is pinned on the layout's account any more.
  void clear();

  // On the device.
  const std::int32_t* tokens() const { return at(0); }                 // [rows]
  const std::int32_t* positions() const { return at(limits_.rows); }   // [rows]
  const std::int32_t* labels() const { return at(2 * limits_.rows); }  // [rows]
  const std::int32_t* places() const { return at(3 * limits_.rows); }  // of logit rows in the step
  const std::int32_t* logit_labels() const { return at(4 * limits_.rows); }
  const std::int32_t* seq_begin() const { return at(5 * limits_.rows); }  // [sequences + 1]
  const std::int32_t* expanded_begin() const {  // [sequences of that part + 1]
    return at(5 * limits_.rows + limits_.sequences + 1);
  }
  tensor::ConstTensor block_table() const;  // [limits().sequences, pages of the longest sequence]

 private:
  // Of the block table: numbers that the device has not got yet.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  StepLayout(const Limits& limits, tensor::Buffer memory, std::unique_ptr<tensor::Staging> staging);
  void set_pages(std::size_t sequence, std::span<const std::int32_t> pages);
  void choose_parts();
  model::StepPart part_of(std::int64_t first_sequence, std::int64_t end_sequence) const;
  std::int64_t rows_of(std::int64_t sequence) const;
  std::int64_t positions_of(std::int64_t sequence) const;
  std::int64_t table_at() const { return 5 * limits_.rows + 2 * (limits_.sequences + 1); }
  const std::int32_t* at(std::int64_t number) const {
    return reinterpret_cast<const std::int32_t*>(memory_.data()) + number;
  }

  Limits limits_;
  std::int64_t table_width_ = 0;
  tensor::Buffer memory_;
  std::unique_ptr<tensor::Staging> staging_;

  lora::Batch adapters_;
  std::vector<lora::Mix> mixes_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> labels_;
  std::vector<std::int32_t> seq_begin_;
  std::vector<model::StepPart> parts_;
  std::vector<std::int32_t> expanded_begin_;
  // As the device has it, but for the changes. Long sequences make it large, and a step changes
  // little of it. What stands behind a sequence's own pages is never read.
  std::vector<std::int32_t> block_table_;
  std::vector<Range> changes_;  // ascending, at most one a sequence
  std::vector<LogitRow> logit_rows_;
  std::vector<std::int32_t> places_;
  std::vector<std::int32_t> logit_labels_;
  std::int64_t max_rows_ = 0;  // of a sequence
  std::int64_t least_rows_ = 0;
  bool decodes_ = false;
};

}  // namespace motley::runner
