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

// One step's rows: any mix of prompt pieces and single tokens, row by row. Arrays are in the memory
// of the device that runs.
struct Batch {
  std::int64_t count = 0;                // R
  const std::int32_t* tokens = nullptr;  // [R]
  ops::PagedRows rows;                   // which sequence and position, and where its pages are
  std::span<const LayerPages> pages;     // [layers]
  lora::RowMixes mixes;                  // who uses which adapters; labels are always there
  // Where the experts that rows choose are kept, [layers, at least R, top_k] in i32: for looking
  // at. Null: nowhere.
  const tensor::Tensor* choices = nullptr;
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
