#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/recurrence.h"
#include "lora/apply/batch.h"
#include "model/block.h"
#include "model/step.h"
#include "runner/kv_memory.h"
#include "tensor/device/device.h"
#include "tensor/device/staging.h"

namespace motley::runner {

enum class LogitsOf : std::uint8_t { none, last, all };

// Where a sequence keeps its state, in models whose layers have one (docs/design/state.md).
struct SequenceState {
  std::int32_t slot = 0;
  std::int64_t anchor = 0;  // the position at which it stands before the step
  // The chunk's first tokens that will not be taken back: all but kernels::max_uncertain_rows at
  // most. Afterwards the state stands at kernels::anchor_after(length, certain).
  std::int64_t certain = 0;

  // Of a sequence of that length whose next rows are all kept.
  static SequenceState certain_rows(std::int32_t slot, std::int64_t length, std::int64_t rows) {
    return {.slot = slot, .anchor = kernels::anchor_after(length, 0), .certain = rows};
  }
};

// The next tokens of a sequence under one mix of adapters: a piece of a prompt, or a single token.
// The caller identifies the sequence by its pages, in order of positions.
struct Chunk {
  // Pages of KV memory: at least as many as length + tokens.size() positions need.
  std::span<const std::int32_t> pages;
  std::int64_t length = 0;  // tokens whose keys and values are already in the pages
  std::span<const std::int32_t> tokens;
  lora::Mix mix;
  LogitsOf logits = LogitsOf::last;
  std::size_t first_logits = 0;  // of LogitsOf::all: the first token that has them
  SequenceState state = {};

  bool decodes() const { return tokens.size() == 1 && logits != LogitsOf::none; }
};

// Identifies a row of logits.
struct LogitRow {
  std::size_t chunk = 0;
  std::size_t token = 0;  // in the chunk
};

// The arrays of a step, laid out in host memory and copied to device addresses that never change,
// so that a captured graph serves every step.
class StepLayout {
 public:
  struct Limits {
    std::int64_t rows = 0;
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;  // of a sequence
    // Computes some sequences in second form, of at most so many positions; null: none.
    const model::Mixer* second_form = nullptr;
    std::int64_t positions = 0;
    int rank = 0;  // whose shards of adapters steps read
  };

  static Result<StepLayout> create(tensor::Device& device, const Limits& limits);

  // Lays out chunks as rows, in order. Allocates nothing once it has seen as many.
  void build(std::span<const Chunk> chunks);
  // Pads a step of single tokens to this many rows and sequences: rows without a sequence and
  // without adapters, and sequences without rows.
  void pad_to(std::int64_t rows);
  // Copies in the order of the stream, on which all readers are queued.
  Result<void> upload(tensor::Stream& stream);

  std::int64_t rows() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(seq_begin_.size()) - 1; }
  std::int64_t max_rows() const { return max_rows_; }
  std::int64_t least_rows() const { return least_rows_; }
  // Empty if no sequence is in second form.
  std::span<const model::StepPart> parts() const { return parts_; }
  // Every chunk is a single token whose logits are requested.
  bool decodes() const { return decodes_; }
  const lora::Batch& adapters() const { return adapters_; }
  // The rows that get logits.
  std::span<const LogitRow> logit_rows() const { return logit_rows_; }
  // Releases what the layout pins.
  void clear();

  // Device arrays:
  const std::int32_t* tokens() const { return at(0); }                 // [rows]
  const std::int32_t* positions() const { return at(limits_.rows); }   // [rows]
  const std::int32_t* labels() const { return at(2 * limits_.rows); }  // [rows]
  const std::int32_t* places() const { return at(3 * limits_.rows); }  // of logit rows in the step
  const std::int32_t* logit_labels() const { return at(4 * limits_.rows); }
  const std::int32_t* seq_begin() const { return at(5 * limits_.rows); }  // [sequences + 1]
  const std::int32_t* position_begin() const {  // [sequences of that part + 1]
    return at(5 * limits_.rows + limits_.sequences + 1);
  }
  // Of each sequence: slots, anchors and rows that will not be taken back.
  ops::StateRows states() const {
    return {.slots = at(states_at()),
            .anchors = at(states_at() + limits_.sequences),
            .certain = at(states_at() + 2 * limits_.sequences)};
  }
  tensor::ConstTensor block_table() const;  // [limits().sequences, pages of the longest sequence]

 private:
  // A range of the block table that the device does not have yet.
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
  std::int64_t states_at() const { return 5 * limits_.rows + 2 * (limits_.sequences + 1); }
  std::int64_t table_at() const { return states_at() + 3 * limits_.sequences; }
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
  std::vector<std::int32_t> position_begin_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> anchors_;
  std::vector<std::int32_t> certain_;
  // A copy of the device's block table. It is large for long sequences, and a step changes little
  // of it. Entries behind a sequence's own pages are never read.
  std::vector<std::int32_t> block_table_;
  std::vector<Range> changes_;  // ascending, at most one per sequence
  std::vector<LogitRow> logit_rows_;
  std::vector<std::int32_t> places_;
  std::vector<std::int32_t> logit_labels_;
  std::int64_t max_rows_ = 0;  // of a sequence
  std::int64_t least_rows_ = 0;
  bool decodes_ = false;
};

}  // namespace motley::runner
