// Many rows: where a row's ranks stand in windows, and what there is to do in one.
#pragma once

#include "kernels/cuda/adapters_tiles.cuh"

namespace motley::kernels::cuda::adapter_tiles {

inline constexpr int many_group_rows = most_group_rows(few_adapted_rows + 1);

// As many groups side by side as a window of rows with few labels has, as in prompts.
inline Slots many_slots(const AdapterRows& adapters) {
  constexpr int of_window = 2 * window_rows / many_group_rows;
  const auto windows = static_cast<int>((adapters.rows + window_rows - 1) / window_rows);
  return {.count = windows * of_window, .of_window = of_window};
}

// Chunks of a row's ranks stand one behind the other in windows, each whole.
class ChunkPlaces {
 public:
  __device__ explicit ChunkPlaces(int window) : wanted_(window) {}
  // Where a chunk begins in the window that is asked for, or -1.
  __device__ int place(int ranks) {
    if (end_ + ranks > rank_window) {
      ++window_;
      end_ = 0;
    }
    end_ += ranks;
    return here() ? end_ - ranks : -1;
  }
  // Whether what comes behind the last chunk is the window's business.
  __device__ bool here() const { return window_ == wanted_; }

 private:
  int wanted_;
  int window_ = 0;
  int end_ = 0;
};

// What is done to rows of one label one after the other: a chunk's product, and the bias that comes
// behind a term's last.
struct Pass {
  FactorEntry factor;
  int chunk;
  int ranks;
  int place;    // in rank rows
  float scale;  // of the bias; 0: none
  const float* bias;
};
// A term takes eight ranks of the window at least.
constexpr int most_passes = rank_window / 8;

struct Passes {
  Pass all[most_passes];
  int count;
  Finish finish;

  // Of a window of ranks. One thread's work.
  __device__ void find(const AdapterRows& adapters, const TermRange& terms, std::int32_t site,
                       const float* bias, int window) {
    count = 0;
    Finish found{.bias = bias};
    ChunkPlaces places(window);
#pragma unroll 1
    for (int i = terms.begin; i < terms.end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, site)) continue;
      const SiteEntry* const entry = term.sites + site;
      found.take(*entry);
      const FactorEntry factor = entry->factor;
#pragma unroll 1
      for (int chunk = 0; chunk < factor.rank; chunk += chunk_ranks) {
        const int ranks = min(up_to_eight(factor.rank) - chunk, chunk_ranks);
        const bool last = chunk + chunk_ranks >= factor.rank;
        const int place = places.place(ranks);
        if (place < 0) continue;
        all[count++] = {
            .factor = factor,
            .chunk = chunk,
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
  return call.rank_rows + (std::int64_t{row} * call.count + linear) * rank_window;
}

// A chunk's ranks of a group's rows, into shared memory. All threads of a block.
__device__ inline void store_rank_rows(const AdaptLinears& call, const GroupMemory& memory,
                                       int rows, int linear, int place, int ranks,
                                       RankRows<many_group_rows>& to) {
  const int fours = (ranks + 15) / 16 * 4;
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < many_group_rows * fours; at += threads) {
    const int row = at / fours;
    const int rank = at % fours * 4;
    float4 four{0, 0, 0, 0};
    if (row < rows && rank < ranks)
      four =
          *reinterpret_cast<const float4*>(rank_row(call, memory.rows[row], linear) + place + rank);
    to.store(row, rank, four);
  }
}

}  // namespace motley::kernels::cuda::adapter_tiles
