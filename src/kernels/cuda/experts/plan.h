#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/adapter_tables.h"

// The plan of a layer, made on the device as plan::Plan makes it on the host: its (token, expert)
// pairs sorted by expert, then label, then pair number. The pair number is token *
// experts_per_token + slot. A place is a position in that order.
namespace motley::kernels::cuda {

inline constexpr int max_experts = 512;
inline constexpr int max_labels = 1023;

// `count` places of one expert from `begin` on: the token side of a tile.
struct ExpertTile {
  std::int32_t expert;
  std::int32_t begin;
  std::int32_t count;
  std::int32_t unused;
};

// Places [begin, end) of one tile that share a label. Places without a label are in no piece.
struct ExpertPiece {
  std::int32_t tile;
  std::int32_t label;
  std::int32_t begin;
  std::int32_t end;
};

// What one term of a piece's label adds at one seam.
struct DeltaEntry {
  const unsigned char* a;  // packed
  const unsigned char* b;
  std::int16_t rank;    // a multiple of 16; 0: absent
  std::int16_t split;   // columns below it take scale[0]
  std::int32_t column;  // its first column in the rank rows
  float scale[2];
};
static_assert(sizeof(DeltaEntry) == 32);

// The adapters of a layer's labels, if the plan is to look up the entries of each piece.
struct PlanDeltas {
  const std::int32_t* term_begin = nullptr;  // [labels + 1]
  const AdapterTerm* terms = nullptr;
  int layer = 0;
  int max_terms = 0;            // of a label; 0: no entries are looked up
  float unit = 1;               // multiplies all scales
  DeltaEntry* entries[2] = {};  // by seam: [pieces, max_terms], absent terms last
};

// In device memory; `pairs` is tokens * experts_per_token. Pairs whose id is negative or not below
// `experts` have the last places, behind expert_begin[experts], and are in no tile.
struct ExpertPlan {
  std::int32_t* order = nullptr;         // [pairs] place -> pair
  std::int32_t* tokens = nullptr;        // [pairs] place -> token
  std::int32_t* places = nullptr;        // [pairs] pair -> place
  std::int32_t* expert_begin = nullptr;  // [experts + 1] first place of an expert
  std::int32_t* tile_begin = nullptr;    // [experts + 1] first tile of an expert
  ExpertTile* tiles = nullptr;           // [max_tiles()]
  // Set if there are labels:
  std::int32_t* piece_begin = nullptr;   // [max_tiles() + 1] first piece of a tile
  ExpertPiece* pieces = nullptr;         // [pairs]
  std::int32_t* block_counts = nullptr;  // [plan_scratch_numbers()]
};

struct PlanExperts {
  std::int64_t tokens = 0;
  int experts_per_token = 0;
  int experts = 0;
  const std::int32_t* ids = nullptr;     // [tokens, experts_per_token]
  const std::int32_t* labels = nullptr;  // [tokens], -1: none; null: no token has one
  // [tokens] by ascending label, then token, from sort_tokens_by_label(); null if labels is null.
  const std::int32_t* tokens_by_label = nullptr;
  int tile_places = 0;  // the most places of a tile
  PlanDeltas deltas{};
  ExpertPlan plan{};
};

// Bounds that hold for any routing.
std::int64_t max_tiles(std::int64_t pairs, int experts, int tile_places);
std::int64_t plan_scratch_numbers(std::int64_t pairs, int experts);

// Sets the kernels' attributes on the current device.
Result<void> prepare_plan();

// Called once a step: labels are the same in every layer. `labels` are in [-1, label_count).
void sort_tokens_by_label(const std::int32_t* labels, std::int64_t tokens, int label_count,
                          std::int32_t* tokens_by_label, StreamHandle stream);
// One launch up to 1024 pairs; beyond that two, or four with labels.
void plan_experts(const PlanExperts& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
