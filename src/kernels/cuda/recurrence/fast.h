#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "kernels/recurrence.h"

namespace motley::kernels::cuda {

// The gated delta net of bf16 compute mode, with heads of 128 x 128: keys and queries are rounded
// to bf16, and products run on tensor cores, with states, errors and weights in two parts of bf16.
// Its log and its anchor are its own: RecurrenceMemory::betas is set, the log's keys are bf16, and
// `updates` has beta (v - e^(decays from the border) S^T k).
bool has_fast_recurrence(const RecurrenceShape& shape);

// How launches divide a head's columns over blocks; the bits are the same.
enum class DecodeForm : std::uint8_t {
  helped,  // two warps of columns, and two that relate a page meanwhile
  loose,   // four warps, 12 on a multiprocessor, which have registers for everything
  halves,  // four warps, 16 on a multiprocessor
  whole,   // eight warps: a block has all of a head
};
enum class PromptForm : std::uint8_t {
  narrow,    // a block has 32 columns
  wide,      // 64, which share what is made of a page once
  as_short,  // long steps in the form of short ones, for tests
};
struct FastForms {  // nothing: by how much there is to do
  std::optional<DecodeForm> decode = std::nullopt;
  std::optional<PromptForm> prompt = std::nullopt;
};
void recur_fast(const Recur& params, StreamHandle stream, const FastForms& forms = {});
Result<void> prepare_recur_fast();

}  // namespace motley::kernels::cuda
