#include <algorithm>

#include "kernels/cuda/experts/factors.cuh"
#include "kernels/cuda/experts/plan.h"
#include "kernels/cuda/primitives/launch.cuh"

// Pairs are visited in the order of their tokens' labels, so the sort by (expert, label, pair) is a
// stable counting sort by expert. A block takes 1024 pairs, a warp 32 of them. A pair's place is
// its expert's begin plus the number of pairs of that expert in earlier blocks, warps and lanes.
// Bucket number `experts` holds ids that name no expert.
namespace motley::kernels::cuda {
namespace {

constexpr int block_pairs = 1024;
constexpr int warps = block_pairs / 32;

__device__ int bucket_of(const PlanExperts& p, int pair) {
  const int id = p.ids[pair];
  return id < 0 || id >= p.experts ? p.experts : id;
}

// The pair at position `index` of that order.
__device__ int pair_by_label(const PlanExperts& p, int index) {
  if (p.tokens_by_label == nullptr) return index;
  const int k = p.experts_per_token;
  return p.tokens_by_label[index / k] * k + index % k;
}

// Sums the values of all threads before this one, and of all in `total`. Every thread calls it.
__device__ int block_exclusive_sum(int value, int* warp_sums, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int sum = value;
  for (int d = 1; d < 32; d *= 2) {
    const int up = __shfl_up_sync(0xFFFFFFFF, sum, d);
    if (lane >= d) sum += up;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    int all = warp_sums[lane];
    for (int d = 1; d < 32; d *= 2) {
      const int up = __shfl_up_sync(0xFFFFFFFF, all, d);
      if (lane >= d) all += up;
    }
    warp_sums[lane] = all;
  }
  __syncthreads();
  total = warp_sums[31];
  const int before = warp == 0 ? 0 : warp_sums[warp - 1];
  __syncthreads();
  return before + sum - value;
}

__global__ void __launch_bounds__(block_pairs) count_pairs(PlanExperts p) {
  extern __shared__ int expert_counts[];  // [experts + 1]
  wait_for_previous_grid();
  const int buckets = p.experts + 1;
  const int t = static_cast<int>(threadIdx.x);
  if (t < buckets) expert_counts[t] = 0;
  __syncthreads();
  const int pairs = static_cast<int>(p.tokens) * p.experts_per_token;
  const int index = static_cast<int>(blockIdx.x) * block_pairs + t;
  if (index < pairs) atomicAdd(&expert_counts[bucket_of(p, pair_by_label(p, index))], 1);
  __syncthreads();
  if (t < buckets)
    p.plan.block_counts[static_cast<int>(blockIdx.x) * buckets + t] = expert_counts[t];
  launch_dependents();
}

// An expert and a label as one number.
struct Group {
  static constexpr int expert_bit = 16;
  static_assert(max_labels < 1 << expert_bit);
  unsigned bits;

  __device__ static Group of(int expert, int label) {
    return {static_cast<unsigned>(expert) << expert_bit | static_cast<unsigned>(label + 1)};
  }
  __device__ int expert() const { return static_cast<int>(bits >> expert_bit); }
  __device__ int label() const { return static_cast<int>(bits & ((1U << expert_bit) - 1)) - 1; }
};

// The plan in global memory.
struct PlanInMemory {
  const PlanExperts& p;

  __device__ Group group(int place) const {
    return Group::of(p.ids[p.plan.order[place]], p.labels[p.plan.tokens[place]]);
  }
  __device__ int begin(int expert) const { return p.plan.expert_begin[expert]; }
  __device__ int tile(int expert) const { return p.plan.tile_begin[expert]; }
};

// The plan in the shared memory of the one block that makes it.
struct PlanInBlock {
  const Group* groups;  // of a place
  const int* begins;    // [experts + 1] first places
  const int* tiles;     // [experts + 1] first tiles

  __device__ Group group(int place) const { return groups[place]; }
  __device__ int begin(int expert) const { return begins[expert]; }
  __device__ int tile(int expert) const { return tiles[expert]; }
};

// Whether a piece begins or ends at a place, and the tile of the place.
struct PieceEdge {
  bool begins;
  bool ends;
  bool begins_tile;
  int tile;
  Group group;
};

template <class Plan>
__device__ PieceEdge piece_edge(const Plan& plan, int place, int routed, int tile_places) {
  PieceEdge edge{};
  if (place >= routed) return edge;
  edge.group = plan.group(place);
  const int expert = edge.group.expert();
  const int within = place - plan.begin(expert);
  edge.tile = plan.tile(expert) + within / tile_places;
  edge.begins_tile = within % tile_places == 0;
  if (edge.group.label() < 0) return edge;
  edge.begins = edge.begins_tile || plan.group(place - 1).bits != edge.group.bits;
  edge.ends = (within + 1) % tile_places == 0 || place + 1 == routed ||
              plan.group(place + 1).bits != edge.group.bits;
  return edge;
}

// Finds the pieces of one block's places, and the adapters' entries of those that begin there.
// `before` pieces begin in earlier blocks. Returns the number that begin here.
template <class Plan>
__device__ int write_block_pieces(const PlanExperts& p, const Plan& plan, int block, int before,
                                  int routed, int* warp_sums) {
  __shared__ Group begun[block_pairs];
  const int t = static_cast<int>(threadIdx.x);
  const int place = block * block_pairs + t;
  const PieceEdge edge = piece_edge(plan, place, routed, p.tile_places);
  int total = 0;
  const int first = block_exclusive_sum(edge.begins ? 1 : 0, warp_sums, total);
  const int mine = before + (edge.begins ? first : first - 1);
  if (edge.begins_tile) p.plan.piece_begin[edge.tile] = before + first;
  if (edge.begins) {
    begun[first] = edge.group;
    p.plan.pieces[mine].tile = edge.tile;
    p.plan.pieces[mine].label = edge.group.label();
    p.plan.pieces[mine].begin = place;
  }
  if (edge.ends) p.plan.pieces[mine].end = place + 1;
  if (p.deltas.max_terms == 0) return total;
  __syncthreads();
  for (int i = t; i < 2 * total; i += block_pairs) {
    const Group group = begun[i / 2];
    resolve_terms(
        p.deltas, group.label(), group.expert(), i % 2,
        p.deltas.entries[i % 2] + static_cast<std::size_t>(before + i / 2) * p.deltas.max_terms);
  }
  return total;
}

// Replaces each warp's count of a bucket by the sum of those before it; returns the block's count.
__device__ int sum_over_warps(unsigned short* counts_of_warps, int active_warps, int buckets) {
  constexpr int together = 4;  // counts in flight at a time
  static_assert(warps % together == 0);
  int sum = 0;
  for (int first = 0; first < active_warps; first += together) {
    int counts[together];
#pragma unroll
    for (int i = 0; i < together; ++i) counts[i] = counts_of_warps[(first + i) * buckets];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      counts_of_warps[(first + i) * buckets] = static_cast<unsigned short>(sum);
      sum += counts[i];
    }
  }
  return sum;
}

__global__ void __launch_bounds__(block_pairs) scatter_pairs(PlanExperts p) {
  extern __shared__ unsigned short warp_counts[];  // [warps][experts + 1]
  __shared__ int begins[max_experts + 1];
  __shared__ int first_tiles[max_experts + 1];
  __shared__ Group groups[block_pairs];
  __shared__ int warp_sums[32];
  launch_dependents();
  wait_for_previous_grid();
  const ExpertPlan& plan = p.plan;
  const int buckets = p.experts + 1;
  const int t = static_cast<int>(threadIdx.x);
  const int warp = t / 32;
  const int block = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  for (int i = t; i < warps * buckets; i += block_pairs) warp_counts[i] = 0;
  const int pairs = static_cast<int>(p.tokens) * p.experts_per_token;
  const int index = block * block_pairs + t;
  const int pair = index < pairs ? pair_by_label(p, index) : -1;
  const int bucket = pair >= 0 ? bucket_of(p, pair) : -1;
  const unsigned same = __match_any_sync(0xFFFFFFFF, bucket);
  const int rank = __popc(same & ((1U << (t % 32)) - 1));
  __syncthreads();
  if (bucket >= 0 && rank == 0)
    warp_counts[warp * buckets + bucket] = static_cast<unsigned short>(__popc(same));
  __syncthreads();

  int total = 0;
  int before = 0;
  if (t < buckets) {
    const int active_warps = min((pairs - block * block_pairs + 31) / 32, warps);
    const int mine = sum_over_warps(warp_counts + t, active_warps, buckets);
    if (blocks == 1) {
      total = mine;
    } else {
#pragma unroll 16
      for (int b = 0; b < blocks; ++b) {
        const int count = __ldcg(&plan.block_counts[b * buckets + t]);
        total += count;
        before += b < block ? count : 0;
      }
    }
  }
  int all = 0;
  const int begin = block_exclusive_sum(total, warp_sums, all);
  if (t < buckets) begins[t] = begin + before;
  const int tiles = t < p.experts ? (total + p.tile_places - 1) / p.tile_places : 0;
  int all_tiles = 0;
  const int first_tile = block_exclusive_sum(tiles, warp_sums, all_tiles);
  if (t < buckets) first_tiles[t] = first_tile;
  if (block == 0 && t < buckets) {
    plan.expert_begin[t] = begin;
    plan.tile_begin[t] = first_tile;
    for (int i = 0; i < tiles; ++i) {
      const int done = i * p.tile_places;
      plan.tiles[first_tile + i] = {t, begin + done, min(total - done, p.tile_places), 0};
    }
  }
  if (bucket >= 0) {
    const int place = begins[bucket] + warp_counts[warp * buckets + bucket] + rank;
    plan.order[place] = pair;
    plan.tokens[place] = pair / p.experts_per_token;
    plan.places[pair] = place;
    if (p.labels != nullptr && blocks == 1)
      groups[place] = Group::of(bucket, p.labels[pair / p.experts_per_token]);
  }
  if (p.labels == nullptr || blocks > 1) return;
  __syncthreads();
  const PlanInBlock made{.groups = groups, .begins = begins, .tiles = first_tiles};
  const int pieces = write_block_pieces(p, made, 0, 0, begins[p.experts], warp_sums);
  if (t == 0) plan.piece_begin[first_tiles[p.experts]] = pieces;
}

__global__ void __launch_bounds__(block_pairs) count_pieces(PlanExperts p) {
  launch_dependents();
  wait_for_previous_grid();
  const int place = static_cast<int>(blockIdx.x * block_pairs + threadIdx.x);
  const int count = __syncthreads_count(
      piece_edge(PlanInMemory{p}, place, p.plan.expert_begin[p.experts], p.tile_places).begins);
  if (threadIdx.x == 0) p.plan.block_counts[blockIdx.x] = count;
}

__global__ void __launch_bounds__(block_pairs) write_pieces(PlanExperts p) {
  __shared__ int warp_sums[32];
  launch_dependents();
  wait_for_previous_grid();
  int before = 0;
  const int block = static_cast<int>(blockIdx.x);
  for (int b = static_cast<int>(threadIdx.x); b < block; b += block_pairs)
    before += p.plan.block_counts[b];
  int all_before = 0;
  block_exclusive_sum(before, warp_sums, all_before);
  const int routed = p.plan.expert_begin[p.experts];
  const int pieces = write_block_pieces(p, PlanInMemory{p}, block, all_before, routed, warp_sums);
  if (blockIdx.x + 1 == gridDim.x && threadIdx.x == 0)
    p.plan.piece_begin[p.plan.tile_begin[p.experts]] = all_before + pieces;
}

__global__ void __launch_bounds__(block_pairs)
    sort_by_label(const std::int32_t* labels, int tokens, int label_count, std::int32_t* sorted) {
  extern __shared__ unsigned short label_counts[];  // [warps][label_count + 1]
  __shared__ int next[block_pairs];                 // by label: the place of its next token
  __shared__ int warp_sums[32];
  launch_dependents();
  wait_for_previous_grid();
  const int buckets = label_count + 1;
  const int t = static_cast<int>(threadIdx.x);
  const int warp = t / 32;
  next[t] = 0;
  __syncthreads();
  for (int i = t; i < tokens; i += block_pairs) atomicAdd(&next[labels[i] + 1], 1);
  __syncthreads();
  const int mine = next[t];
  int all = 0;
  const int begin = block_exclusive_sum(mine, warp_sums, all);
  next[t] = begin;
  for (int chunk = 0; chunk < tokens; chunk += block_pairs) {
    for (int i = t; i < warps * buckets; i += block_pairs) label_counts[i] = 0;
    const int token = chunk + t;
    const int bucket = token < tokens ? labels[token] + 1 : -1;
    const unsigned same = __match_any_sync(0xFFFFFFFF, bucket);
    const int rank = __popc(same & ((1U << (t % 32)) - 1));
    __syncthreads();
    if (bucket >= 0 && rank == 0)
      label_counts[warp * buckets + bucket] = static_cast<unsigned short>(__popc(same));
    __syncthreads();
    int count = 0;
    if (t < buckets) {
      for (int w = 0; w < warps; ++w) {
        const int own = label_counts[w * buckets + t];
        label_counts[w * buckets + t] = static_cast<unsigned short>(count);
        count += own;
      }
    }
    __syncthreads();
    if (bucket >= 0) sorted[next[bucket] + label_counts[warp * buckets + bucket] + rank] = token;
    __syncthreads();
    if (t < buckets) next[t] += count;
  }
}

unsigned blocks_of(std::int64_t pairs) {
  return static_cast<unsigned>((pairs + block_pairs - 1) / block_pairs);
}

// Shared memory of the sort by label.
std::size_t sort_bytes(int label_count) {
  return sizeof(short) * warps * (static_cast<std::size_t>(label_count) + 1);
}

}  // namespace

std::int64_t max_tiles(std::int64_t pairs, int experts, int tile_places) {
  return std::min<std::int64_t>(pairs, experts + pairs / tile_places);
}

std::int64_t plan_scratch_numbers(std::int64_t pairs, int experts) {
  return std::int64_t{blocks_of(pairs)} * (experts + 1);
}

Result<void> prepare_plan() {
  return allow_shared_memory("the sort of tokens by label", sort_by_label, sort_bytes(max_labels));
}

void sort_tokens_by_label(const std::int32_t* labels, std::int64_t tokens, int label_count,
                          std::int32_t* tokens_by_label, StreamHandle stream) {
  launch("the sort of tokens by label", sort_by_label,
         {.grid = 1, .threads = block_pairs, .shared_bytes = sort_bytes(label_count)}, stream,
         labels, static_cast<int>(tokens), label_count, tokens_by_label);
}

void plan_experts(const PlanExperts& params, StreamHandle stream) {
  const std::int64_t pairs = params.tokens * params.experts_per_token;
  // Without pairs one block still writes the begins.
  const unsigned blocks = std::max(blocks_of(pairs), 1U);
  const std::size_t buckets = static_cast<std::size_t>(params.experts) + 1;
  if (blocks > 1) {
    launch("the count of pairs", count_pairs,
           {.grid = blocks, .threads = block_pairs, .shared_bytes = buckets * sizeof(int)}, stream,
           params);
  }
  launch("the sort of pairs", scatter_pairs,
         {.grid = blocks, .threads = block_pairs, .shared_bytes = buckets * warps * sizeof(short)},
         stream, params);
  if (blocks == 1 || params.labels == nullptr) return;
  const LaunchShape shape{.grid = blocks, .threads = block_pairs};
  launch("the count of pieces", count_pieces, shape, stream, params);
  launch("the pieces", write_pieces, shape, stream, params);
}

}  // namespace motley::kernels::cuda
