// For many rows: where a row's ranks are in rank chunks, and the passes over one chunk.
#pragma once

#include "kernels/cuda/adapters/tiles.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int many_group_rows = max_group_rows(few_adapted_rows + 1);

// As many concurrent groups as a stretch of rows has where labels are few, as in prompts.
inline Slots many_slots(const AdapterRows& adapters) {
  constexpr int of_stretch = 2 * stretch_rows / many_group_rows;
  const auto stretches = static_cast<int>((adapters.rows + stretch_rows - 1) / stretch_rows);
  return {.count = stretches * of_stretch, .of_stretch = of_stretch};
}

// Places panels one behind the other in rank chunks, without splitting a panel.
class PanelPlaces {
 public:
  __device__ explicit PanelPlaces(int chunk) : wanted_(chunk) {}
  // The panel's place in the wanted chunk, or -1.
  __device__ int place(int ranks) {
    if (end_ + ranks > rank_chunk) {
      ++chunk_;
      end_ = 0;
    }
    end_ += ranks;
    return here() ? end_ - ranks : -1;
  }
  // Whether the last panel was in the wanted chunk.
  __device__ bool here() const { return chunk_ == wanted_; }

 private:
  int wanted_;
  int chunk_ = 0;
  int end_ = 0;
};

// One pass over rows of one label: a panel's product and, after the last panel of a term, its bias.
struct Pass {
  FactorEntry factor;
  int panel;
  int ranks;
  int place;    // in rank rows
  float scale;  // of the bias; 0: none
  const float* bias;
};
// A term takes at least 8 ranks of the chunk.
constexpr int max_passes = rank_chunk / 8;

struct Passes {
  Pass all[max_passes];
  int count;
  Finish finish;

  // Finds the passes of a rank chunk. One thread calls it.
  __device__ void find(const AdapterRows& adapters, const TermRange& terms, std::int32_t site,
                       const float* bias, int chunk) {
    count = 0;
    Finish found{.bias = bias};
    PanelPlaces places(chunk);
#pragma unroll 1
    for (int i = terms.begin; i < terms.end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, site)) continue;
      const SiteEntry* const entry = term.sites + site;
      found.take(*entry);
      const FactorEntry factor = entry->factor;
#pragma unroll 1
      for (int panel = 0; panel < factor.rank; panel += panel_ranks) {
        const int ranks = min(round_up_8(factor.rank) - panel, panel_ranks);
        const bool last = panel + panel_ranks >= factor.rank;
        const int place = places.place(ranks);
        if (place < 0) continue;
        all[count++] = {
            .factor = factor,
            .panel = panel,
            .ranks = ranks,
            .place = place,
            .scale = last && entry->lora_bias != nullptr ? factor.scale[0] * term.scale : 0.0F,
            .bias = entry->lora_bias};
      }
    }
    finish = found;
  }
};

__device__ inline float* rank_row(const AdaptLinears& call, int row, int linear) {
  return call.rank_rows + (std::int64_t{row} * call.count + linear) * call.rank_pitch;
}

// Copies a panel's ranks of a group's rows to shared memory. All threads of a block call it.
__device__ inline void store_rank_rows(const InputRows& rows, int linear, const Pass& pass,
                                       RankRows<many_group_rows>& to) {
  const int vec4s = (pass.ranks + 15) / 16 * 4;
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < many_group_rows * vec4s; at += threads) {
    const int row = at / vec4s;
    const int rank = at % vec4s * 4;
    float4 vec4{0, 0, 0, 0};
    if (row < rows.count && rank < pass.ranks)
      vec4 = *reinterpret_cast<const float4*>(rank_row(rows.call, rows.rows[row], linear) +
                                              pass.place + rank);
    to.store(row, rank, vec4);
  }
}

}  // namespace motley::kernels::cuda::adapter_tiles
