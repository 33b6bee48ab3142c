// What each file of deltas gives: whether its kernels can compute a problem, and their launches.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/adapters.h"
#include "kernels/kernel.h"

namespace motley::kernels::cuda {

// What an expand does with a map's results.
enum class Epilogue : std::uint8_t {
  store,  // writes them
  heads,  // takes them through prepare_heads
  norm,   // takes them through add_and_norm
};

// A delta behind the base products of some linear maps that share x.
struct DeltaProblem {
  const AdaptLinears& linears;
  Epilogue epilogue = Epilogue::store;
  const PrepareHeads* heads = nullptr;  // where that is the epilogue
  const AddAndNorm* norm = nullptr;     // likewise
};

// Ranks of a term whose products go into one sum.
inline constexpr int panel_ranks = 64;

// Of a row's ranks those that are worked off together.
struct RankChunk {
  int number = 0;
  bool last = true;  // gain, bias and rounding come with it
};

// How results lie.
struct ResultLayout {
  bool whole = true;       // four outputs are one access, everywhere
  bool with_base = false;  // base rows change too
};
ResultLayout layout_of(const AdaptLinears& call);

// float32, whatever the problem: columns and then ranks in order (plain.cu). The number: rows of a
// block.
void shrink_plain_1(const AdaptLinears& call, int chunk, StreamHandle stream);
void shrink_plain_8(const AdaptLinears& call, int chunk, StreamHandle stream);
void expand_plain_1(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
void expand_plain_8(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
// An adapter's whole weights take the base product's place, ahead of all deltas.
void multiply_own_weights(const AdaptLinears& call, StreamHandle stream);

// Few rows: a cluster goes into rank space and out of it (few.cu).
void delta_in_cluster(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_delta_in_cluster();

// Few rows of many labels, by warps alone (labels.cu).
void shrink_slices(const AdaptLinears& call, int chunk, StreamHandle stream);
void expand_slices(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);

// Many rows (many.cu).
void shrink_panels(const AdaptLinears& call, int chunk, StreamHandle stream);
void expand_panels(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_panels();

// Many rows, and what comes behind them (heads.cu, norm.cu).
Support supports_heads(const DeltaProblem& problem);
void expand_heads(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_expand_heads();
Support supports_norm(const DeltaProblem& problem);
void expand_norm(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_expand_norm();

}  // namespace motley::kernels::cuda
