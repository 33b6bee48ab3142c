#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "lora/apply.h"
#include "lora/batch.h"
#include "moe/workspaces.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace motley::model {

// What a layer keeps for each token, in pages that the runner owns. Values that lie inside the keys
// (a latent that is both) have no pages of their own.
struct CacheLayout {
  std::int64_t heads = 0;
  std::int64_t key_width = 0;
  std::int64_t value_width = 0;
  bool values_in_keys = false;
};

// One layer's pages: [pages, page_tokens, heads, width].
struct LayerPages {
  tensor::Tensor keys;
  tensor::Tensor values;
};

// Neighbouring sequences of a step, and how latent attention attends to them.
struct StepPart {
  std::int64_t first_sequence = 0;
  std::int64_t sequences = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t most_rows = 0;  // of a sequence
  std::int64_t least_rows = 0;
  // In expanded form: positions of all its sequences. 0: in absorbed form.
  std::int64_t positions = 0;
  std::int64_t most_positions = 0;  // of a sequence
};

// One step's rows: any mix of prompt pieces and single tokens, row by row. Arrays are in the memory
// of the device that runs.
struct Batch {
  std::int64_t count = 0;                // R
  const std::int32_t* tokens = nullptr;  // [R]
  ops::PagedRows rows;                   // which sequence and position, and where its pages are
  std::span<const LayerPages> pages;     // [layers]
  lora::RowMixes mixes;                  // who uses which adapters; labels are always there
  // All sequences, in order; empty: one part in absorbed form. At most one is in expanded form:
  // its sequence s has places [expanded_begin[s], expanded_begin[s + 1]) for its positions.
  std::span<const StepPart> parts;
  const std::int32_t* expanded_begin = nullptr;
  // Where the experts that rows choose are kept, [layers, at least R, top_k] in i32: for looking
  // at. Null: nowhere.
  const tensor::Tensor* choices = nullptr;

  StepPart whole() const {
    return {.sequences = rows.sequences,
            .rows = count,
            .most_rows = rows.most_rows,
            .least_rows = rows.least_rows};
  }
  ops::PagedRows rows_of(const StepPart& part) const {
    ops::PagedRows own = rows;
    own.sequences = part.sequences;
    own.seq_begin += part.first_sequence;
    own.block_table = rows.block_table.slice(0, part.first_sequence, rows.block_table.dim(0));
    own.most_rows = part.most_rows;
    own.least_rows = part.least_rows;
    return own;
  }
};

// What a forward pass leaves of rows: hidden states are the sums of both parts, [R, hidden] in f32.
// The last sum is left to whoever wants some rows only.
struct HiddenStates {
  tensor::Tensor sum;
  tensor::Tensor addend;
};

// What the blocks of one step share.
struct Step {
  const ops::Context& context;
  const Batch& batch;
  tensor::ConstTensor cos_sin;     // of the rows' positions
  const moe::Workspaces& experts;  // whose step has begun
  // f32 or bf16. Numbers are rounded to it where they enter a product or a page and nowhere else:
  // hidden states, and what a block computes on its way, stay float32.
  DType activations = DType::f32;
  kernels::AttentionScratch attention_scratch{};

  std::int64_t rows() const { return batch.count; }
};

// Scratch for the length of a block. The arena was sized for the largest step, so running out is a
// bug.
class Scratch {
 public:
  explicit Scratch(const ops::Context& context)
      : arena_(context.scratch), mark_(context.scratch->mark()) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { arena_->rewind(mark_); }

  tensor::Tensor take(DType dtype, const tensor::Shape& shape) {
    return arena_->allocate(dtype, shape).value();
  }

 private:
  tensor::Arena* arena_;
  std::size_t mark_;
};

// Bytes that a Scratch takes for tensors of these widths (elements a row), padding included.
inline std::size_t scratch_bytes(std::int64_t rows, std::initializer_list<std::int64_t> widths) {
  std::size_t bytes = 0;
  for (const std::int64_t width : widths)
    bytes += static_cast<std::size_t>(rows * width) * sizeof(float) + tensor::Allocator::alignment;
  return bytes;
}

}  // namespace motley::model
