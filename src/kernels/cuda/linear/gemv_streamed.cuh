// Common parts of the streamed GEMVs, the kernels for few rows. Weights are streamed from memory
// into the registers of the MMA's M side; rows of x are the N side, in shared memory.
#pragma once

#include <algorithm>
#include <cooperative_groups.h>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"
#include "kernels/cuda/primitives/weight_format.cuh"

namespace motley::kernels::cuda::streamed {

inline constexpr int warps = 8;
inline constexpr int threads = 32 * warps;
inline constexpr int max_ranks = 8;    // blocks of a cluster, which split K
inline constexpr int rank_unit = 256;  // inputs of a rank are a multiple of this

// Products of the same rows of x, with the same `in`; their tiles are numbered consecutively.
inline constexpr int max_parts = gemv_streamed_max_products;
struct Part {
  Linear p;
  unsigned output_tiles;  // of a head
  unsigned end_tile;
};
struct Launch {
  Part parts[max_parts];
  int count;
  unsigned row_tiles;
  int rank_inputs;  // of every rank except perhaps the last
};

// The inputs of x in a stage. Of the two stages, one is used while the other is filled.
template <int n8_tiles>
inline constexpr int max_staged = n8_tiles == 1 ? 512 : 256;
// Slots of 1 KiB in a warp's ring. With up to 32 rows of x two blocks fit on a multiprocessor, so
// that the next grid's copies begin while this one ends.
template <int n8_tiles>
inline constexpr int ring_kib = n8_tiles == 2 || n8_tiles == 4 ? 8 : 12;

// Bytes between staged rows of x: an odd multiple of 64, so that 64 bytes each of two adjacent rows
// have no bank conflicts.
__host__ __device__ inline int x_pitch(int staged) { return 2 * staged + 64; }
// Floats between rows of a tile's sums.
template <int outputs>
inline constexpr int sums_pitch = outputs + 4;

// Copies 16 bytes of weights, or zeros. Four lanes read 64 bytes of a row, and later steps continue
// there. L2 fetches 256 bytes at once, so memory sees long runs.
__device__ inline void copy_weights(uint32_t to, const void* from, bool keep) {
  const int bytes = keep ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

// The position of a block.
struct Place {
  int part;
  std::int64_t head;
  std::int64_t first_output;  // of the head
  std::int64_t first_row;
  int rows;  // of this block
  int rank;
  std::int64_t begin;  // inputs [begin, end)
  std::int64_t end;
};

template <int tile_outputs, int tile_rows>
__device__ Place place_of(const Launch& launch) {
  const unsigned tile = blockIdx.x / launch.row_tiles;
  Place place{};
  while (place.part + 1 < launch.count && tile >= launch.parts[place.part].end_tile) ++place.part;
  const Part& part = launch.parts[place.part];
  const unsigned own = tile - (place.part > 0 ? launch.parts[place.part - 1].end_tile : 0);
  place.head = own / part.output_tiles;
  place.first_output = std::int64_t{own % part.output_tiles} * tile_outputs;
  place.first_row = std::int64_t{blockIdx.x % launch.row_tiles} * tile_rows;
  place.rows = static_cast<int>(min(part.p.rows - place.first_row, std::int64_t{tile_rows}));
  place.rank = static_cast<int>(blockIdx.y);
  place.begin = std::int64_t{place.rank} * launch.rank_inputs;
  place.end = min(part.p.w.in, place.begin + launch.rank_inputs);
  return place;
}

// The row of w for an output of the block's head. Outputs past the last repeat the last one; they
// are not written.
__device__ inline std::int64_t w_row(const Linear& p, const Place& place, std::int64_t output) {
  return place.head * p.w_rows_per_head + p.w_first + min(output, p.out - 1);
}

// 16-byte piece number `i` of a stage: inputs [begin, begin + staged) of the block's rows.
struct Chunk {
  int to;            // bytes into the stage
  const Bf16* from;  // null past the last row or the last input
};
template <class Warp>
__device__ Chunk chunk_of(const Linear& p, const Place& place, std::int64_t begin, int staged,
                          int i) {
  // A stage is one or two units wide.
  const int shift = staged > rank_unit ? 6 : 5;
  const int row = i >> shift;
  const int chunk = i & ((1 << shift) - 1);
  const bool inside = row < place.rows && begin + 8 * chunk < place.end;
  return {.to = row * x_pitch(staged) + 16 * Warp::staged_place(chunk),
          .from = inside ? static_cast<const Bf16*>(p.x) + (place.first_row + row) * p.x_stride +
                               place.head * p.x_head_stride + begin + 8 * chunk
                         : nullptr};
}
inline __device__ int chunks_of(const Place& place, int staged) { return place.rows * staged / 8; }

// Plain loads that do not queue behind the ring's copies, as many in flight as hide the latency.
template <class Warp>
__device__ void load_x(const Linear& p, const Place& place, std::int64_t begin, int staged,
                       unsigned char* stage) {
  constexpr int at_once = Warp::n8_tiles < 4 ? 4 : 8;
  const int count = chunks_of(place, staged);
  for (int first = static_cast<int>(threadIdx.x); first < count; first += at_once * threads) {
    uint4 loaded[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const Chunk chunk = chunk_of<Warp>(p, place, begin, staged, first + i * threads);
      loaded[i] =
          chunk.from != nullptr ? *reinterpret_cast<const uint4*>(chunk.from) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int at = first + i * threads;
      if (at < count)
        *reinterpret_cast<uint4*>(stage + chunk_of<Warp>(p, place, begin, staged, at).to) =
            loaded[i];
    }
  }
}

template <class Warp>
__device__ void copy_x(const Linear& p, const Place& place, std::int64_t begin, int staged,
                       unsigned char* stage) {
  const int count = chunks_of(place, staged);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
    const Chunk chunk = chunk_of<Warp>(p, place, begin, staged, i);
    copy_16_or_zero(smem_addr(stage + chunk.to), chunk.from != nullptr ? chunk.from : p.x,
                    chunk.from != nullptr);
  }
}

__device__ inline void add_to(float4& sum, const float4& other) {
  sum.x += other.x;
  sum.y += other.y;
  sum.z += other.z;
  sum.w += other.w;
}

// Adds the sums of the ranks in order, and writes y. `sums` is [row][sums_pitch] in every rank's
// shared memory, complete when this is called.
template <int tile_outputs>
__device__ void write_sums_of_ranks(const Linear& p, const Place& place, float* sums) {
  namespace groups = cooperative_groups;
  const groups::cluster_group cluster = groups::this_cluster();
  cluster.sync();
  const int ranks = static_cast<int>(cluster.num_blocks());
  constexpr int vec4s = tile_outputs / 4;
  for (int i = place.rank * threads + static_cast<int>(threadIdx.x); i < place.rows * vec4s;
       i += ranks * threads) {
    const int row = i / vec4s;
    const int output = i % vec4s * 4;
    float* const at = sums + row * sums_pitch<tile_outputs> + output;
    float4 each[max_ranks];
#pragma unroll
    for (int r = 0; r < max_ranks; ++r) {
      if (r < ranks)
        each[r] =
            *reinterpret_cast<const float4*>(cluster.map_shared_rank(at, static_cast<unsigned>(r)));
    }
    float4 sum = each[0];
#pragma unroll
    for (int r = 1; r < max_ranks; ++r) {
      if (r < ranks) add_to(sum, each[r]);
    }
    const std::int64_t left = p.out - place.first_output - output;
    float* const y = p.y + (place.first_row + row) * p.y_stride + place.head * p.y_head_stride +
                     place.first_output + output;
    if (left >= 4 && reinterpret_cast<std::uintptr_t>(y) % 16 == 0) {
      *reinterpret_cast<float4*>(y) = sum;
    } else {
      if (left > 0) y[0] = sum.x;
      if (left > 1) y[1] = sum.y;
      if (left > 2) y[2] = sum.z;
      if (left > 3) y[3] = sum.w;
    }
  }
  // Other blocks read this block's memory until here.
  cluster.sync();
}

// All warps of a block are of one kind and have consecutive outputs. `Warp` knows the layout of its
// format, how a lane copies its share of a step of K to a slot, and how it multiplies by x. No
// kernel writes weights, so a whole ring of their copies is issued before the previous grid has
// ended.
template <class Warp>
__global__ void __launch_bounds__(threads, Warp::n8_tiles < 8 ? 2 : 1)
    multiply(const __grid_constant__ Launch launch, int staged, int x_bytes) {
  extern __shared__ __align__(128) unsigned char shared[];
  launch_dependents();
  constexpr int tile_outputs = warps * Warp::outputs;
  constexpr int tile_rows = 8 * Warp::n8_tiles;
  static_assert(Warp::in_flight % Warp::burst == 0);
  static_assert(WeightOnlyFormat<typename Warp::Format>);
  const Place place = place_of<tile_outputs, tile_rows>(launch);
  const Linear& p = launch.parts[place.part].p;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_index = static_cast<int>(threadIdx.x) / 32;
  const int first_of_warp = warp_index * Warp::outputs;

  Warp warp(p, place, place.first_output + first_of_warp, lane,
            shared + x_bytes + warp_index * Warp::in_flight * Warp::slot_bytes);
  const auto load_burst = [&](int slot) {
#pragma unroll
    for (int i = 0; i < Warp::burst; ++i) warp.load(slot + i);
    copies_commit();
  };
#pragma unroll 1
  for (int slot = 0; slot < Warp::in_flight; slot += Warp::burst) load_burst(slot);
  wait_for_previous_grid();

  const int inputs = static_cast<int>(place.end - place.begin);
  const int stage_bytes = tile_rows * x_pitch(staged);
  load_x<Warp>(p, place, place.begin, staged, shared);
  if (staged < inputs) load_x<Warp>(p, place, place.begin + staged, staged, shared + stage_bytes);
  __syncthreads();
  int slot = 0;
  for (int first = 0; first < inputs; first += staged) {
    unsigned char* const stage = shared + first / staged % 2 * stage_bytes;
    const unsigned char* x = stage + lane / 4 * x_pitch(staged) + 16 * (lane % 4);
    const int end = min(first + staged, inputs);
    for (int at = first; at < end; at += Warp::burst * Warp::step_inputs) {
      copies_wait<Warp::in_flight / Warp::burst - 1>();
#pragma unroll
      for (int i = 0; i < Warp::burst; ++i)
        warp.multiply(slot + i, x + 2 * i * Warp::step_inputs, x_pitch(staged));
      load_burst(slot);
      slot = slot + Warp::burst < Warp::in_flight ? slot + Warp::burst : 0;
      x += 2 * Warp::burst * Warp::step_inputs;
    }
    // The copies of the next stage were issued a whole stage ago.
    copies_wait<rank_unit / (Warp::burst * Warp::step_inputs) - 1>();
    __syncthreads();
    if (first + 2 * staged < inputs)
      copy_x<Warp>(p, place, place.begin + first + 2 * staged, staged, stage);
  }

  warp.finish();
  const bool alone = gridDim.y == 1;
  auto* const tile_sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int m = 0; m < Warp::outputs / 16; ++m) {
#pragma unroll
    for (int n = 0; n < Warp::n8_tiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 8 * n + 2 * (lane % 4) + i % 2;
        const int output = first_of_warp + 16 * m + 8 * (i / 2) + lane / 4;
        if (row >= place.rows) continue;
        if (!alone) {
          tile_sums[row * sums_pitch<tile_outputs> + output] = warp.sums[m][n][i];
        } else if (place.first_output + output < p.out) {
          p.y[(place.first_row + row) * p.y_stride + place.head * p.y_head_stride +
              place.first_output + output] = warp.sums[m][n][i];
        }
      }
    }
  }
  if (!alone) write_sums_of_ranks<tile_outputs>(p, place, tile_sums);
}

// Requests all shared memory of a multiprocessor, so that blocks of two grids fit on it.
template <class Warp>
Result<void> prepare() {
  MOTLEY_TRY_VOID(allow_shared_memory("linear", multiply<Warp>, 200 << 10));
  return launched(
      cudaFuncSetAttribute(multiply<Warp>, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared),
      "linear");
}

template <class Warp>
void launch_kernel(Launch& launch, StreamHandle stream) {
  constexpr int tile_outputs = warps * Warp::outputs;
  constexpr int tile_rows = 8 * Warp::n8_tiles;
  unsigned tiles = 0;
  for (int i = 0; i < launch.count; ++i) {
    Part& part = launch.parts[i];
    part.output_tiles = static_cast<unsigned>((part.p.out + tile_outputs - 1) / tile_outputs);
    tiles += static_cast<unsigned>(part.p.heads) * part.output_tiles;
    part.end_tile = tiles;
  }
  const Linear& first = launch.parts[0].p;
  launch.row_tiles = static_cast<unsigned>((first.rows + tile_rows - 1) / tile_rows);
  const int staged = std::min(launch.rank_inputs, max_staged<Warp::n8_tiles>);
  const auto ranks =
      static_cast<unsigned>((first.w.in + launch.rank_inputs - 1) / launch.rank_inputs);
  const int sums = ranks > 1 ? 4 * sums_pitch<tile_outputs> : 0;
  const int stages = launch.rank_inputs > staged ? 2 : 1;
  const int x_bytes = tile_rows * std::max(stages * x_pitch(staged), sums);
  constexpr int ring_bytes = warps * Warp::in_flight * Warp::slot_bytes;
  cuda::launch("linear", multiply<Warp>,
               {.grid = tiles * launch.row_tiles,
                .grid_y = ranks,
                .threads = threads,
                .shared_bytes = static_cast<std::size_t>(x_bytes + ring_bytes),
                .cluster_y = ranks},
               stream, launch, staged, x_bytes);
}

// A launch of the products that have work; its `count` is 0 if there are none.
Launch make_launch(std::span<const Linear> products);
// Counts tiles of `outputs` outputs, over all parts and heads.
std::int64_t count_tiles(const Launch& launch, int outputs);
// Splits K among the blocks of a cluster (rank_inputs), for tiles of narrow_outputs.
inline constexpr int narrow_outputs = 128;
void share_out_k(Launch& launch);
void keep_k_whole(Launch& launch);

// Calls body with the number of 8-row groups per tile: the fewest that hold all rows, or the most.
template <class Body>
void with_n8_tiles(std::int64_t rows, const Body& body) {
  if (rows <= 8) return body(std::integral_constant<int, 1>{});
  if (rows <= 16) return body(std::integral_constant<int, 2>{});
  if (rows <= 32) return body(std::integral_constant<int, 4>{});
  body(std::integral_constant<int, gemv_streamed_tile.rows / 8>{});
}

}  // namespace motley::kernels::cuda::streamed
