#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lora/apply/apply.h"
#include "lora/apply/batch.h"
#include "ops/attention.h"
#include "ops/list/op_list.h"
#include "ops/recurrence.h"
#include "tensor/tensor.h"

namespace motley::model {

// Numbers that a layer stores for each token, in pages that the runner owns: its keys, its values,
// or what else it reads of earlier tokens.
inline constexpr std::int64_t page_tokens = 16;
struct TokenCache {
  // Which of the checkpoint's scales divides the numbers before they are stored as codes.
  enum class Scale : std::uint8_t { none, of_keys, of_values };

  std::int64_t heads = 0;
  std::int64_t width = 0;  // of a head
  // The last columns that stay bf16 where the others are stored as codes.
  std::int64_t tail = 0;
  Scale takes = Scale::none;
  float scale = 0;  // that one; 0: a power of two for each token and head
  // Of all numbers, where it is not the one of keys and values (--kv-dtype).
  std::optional<DType> type;
};
using TokenCaches = std::vector<TokenCache>;  // of a layer

// Places in a layer's list: keys come first, then values, unless those are a part of the keys (a
// latent that is both). The places of other caches are their mixer's own.
inline constexpr std::size_t keys_cache = 0;
inline constexpr std::size_t values_cache = 1;

// What a layer keeps for each sequence (docs/design/state.md): a recurrence, a convolution, both or
// nothing. States, updates and decays are f32.
struct StateShape {
  std::int64_t key_heads = 0;  // 0: no recurrence
  std::int64_t value_heads = 0;
  std::int64_t key_width = 0;
  std::int64_t value_width = 0;
  bool decay_by_key = false;  // a decay for each row of a head's state
  bool corrects = false;      // there is a beta: a delta rule
  std::int64_t channels = 0;  // of the convolution; 0: there is none
  std::int64_t taps = 0;
  kernels::KeptTypes types{};  // as the device's kernels want them: Model asks them

  bool empty() const { return key_heads == 0 && channels == 0; }
};

using LayerPages = std::vector<ops::KvPages>;  // of its caches

// Adjacent sequences of a step, and the form in which mixers compute them.
struct StepPart {
  ops::Form form = ops::first_form;
  std::int64_t first_sequence = 0;
  std::int64_t sequences = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t max_rows = 0;  // of a sequence
  std::int64_t least_rows = 0;
  // In second form: the positions of all its sequences, and of one at most.
  std::int64_t positions = 0;
  std::int64_t max_positions = 0;
};

// One step's rows: any mix of prompt pieces and single tokens, row by row. Arrays are in the memory
// of the device that runs.
struct Batch {
  std::int64_t count = 0;                // R
  const std::int32_t* tokens = nullptr;  // [R]
  ops::PagedRows rows;                   // the sequence and position of each row, and its pages
  std::span<const LayerPages> pages;     // [layers]
  ops::StateRows states{};               // of each sequence, if layers keep states
  std::span<const ops::LayerStates> layer_states;  // [layers]
  lora::RowMixes mixes;  // the adapters of each row; labels are always set
  // All sequences, in order; empty: one part in first form. At most one part is in second form; its
  // sequence s has places [position_begin[s], position_begin[s + 1]) for its positions.
  std::span<const StepPart> parts;
  const std::int32_t* position_begin = nullptr;
  // Receives the experts that rows choose, [layers, at least R, top_k] in i32, for inspection.
  // Null: not kept.
  const tensor::Tensor* choices = nullptr;

  StepPart whole() const {
    return {.sequences = rows.sequences,
            .rows = count,
            .max_rows = rows.max_rows,
            .least_rows = rows.least_rows};
  }
  ops::PagedRows rows_of(const StepPart& part) const {
    ops::PagedRows own = rows;
    own.sequences = part.sequences;
    own.seq_begin += part.first_sequence;
    own.block_table = rows.block_table.slice(0, part.first_sequence, rows.block_table.dim(0));
    own.max_rows = part.max_rows;
    own.least_rows = part.least_rows;
    return own;
  }
};

// The result of a forward pass: hidden states are sum + addend, [R, hidden] in f32. The last sum is
// left to the caller, who may need only some rows.
struct HiddenStates {
  tensor::Tensor sum;
  tensor::Tensor addend;
};

}  // namespace motley::model
