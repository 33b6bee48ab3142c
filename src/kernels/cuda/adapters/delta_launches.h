// What each file of delta kernels provides: whether its kernels support a problem, and their
// launches.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/adapters.h"
#include "kernels/kernel.h"

namespace motley::kernels::cuda {

// What an expand does with the results of a map.
enum class Epilogue : std::uint8_t {
  store,  // writes them
  heads,  // takes them through prepare_heads
  norm,   // takes them through add_and_norm
};

// A delta behind the base products of some linear maps that share x.
struct DeltaProblem {
  const AdaptLinears& linears;
  Epilogue epilogue = Epilogue::store;
  const PrepareHeads* heads = nullptr;  // set if that is the epilogue
  const AddAndNorm* norm = nullptr;     // likewise
};

// The ranks of a term whose products are accumulated in one sum.
inline constexpr int panel_ranks = 64;

// The ranks of a row that one pair of launches works on.
struct RankChunk {
  int number = 0;
  bool last = true;  // gain, bias and rounding follow the last chunk
};

// The layout of the results.
struct ResultLayout {
  bool whole = true;       // a vec4 of outputs is always one access
  bool with_base = false;  // base rows change, too
};
ResultLayout layout_of(const AdaptLinears& call);

// float32, for any problem: columns and then ranks in order (plain.cu). The suffix is the number of
// rows of a block.
void shrink_plain_1(const AdaptLinears& call, int chunk, StreamHandle stream);
void shrink_plain_8(const AdaptLinears& call, int chunk, StreamHandle stream);
void expand_plain_1(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
void expand_plain_8(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
// Whole weights of an adapter replace the base product. Launched before all deltas.
void multiply_own_weights(const AdaptLinears& call, StreamHandle stream);

// Few rows: one cluster shrinks and expands (few.cu).
void delta_in_cluster(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_delta_in_cluster();

// Few rows of many labels: warps work independently (labels.cu).
void shrink_slices(const AdaptLinears& call, int chunk, StreamHandle stream);
void expand_slices(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);

// Many rows (many.cu).
void shrink_panels(const AdaptLinears& call, int chunk, StreamHandle stream);
void expand_panels(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_panels();

// Many rows, with the op that follows as an epilogue (heads.cu, norm.cu).
Support supports_heads(const DeltaProblem& problem);
void expand_heads(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_expand_heads();
Support supports_norm(const DeltaProblem& problem);
void expand_norm(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream);
Result<void> prepare_expand_norm();

}  // namespace motley::kernels::cuda
