#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/code_warm_up.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/pipeline.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"

// bf16 products of up to 16 rows, whose time is that of reading the weights. A block has a run of
// outputs and all their inputs, so whole rows of weights arrive as bulk copies, and no block waits
// for another. The copies fill shared memory before the previous grid has ended. Warps split the
// inputs; each keeps its inputs of x in registers. Their sums are added in an order that depends on
// `in` only.
namespace motley::kernels::cuda {
namespace {

constexpr int warps = 16;
constexpr int threads = 32 * warps;
constexpr int tile_outputs = gemv_bulk_tile.outputs;  // the N side of the MMA
constexpr int step_inputs = gemv_bulk_step_inputs;    // of two products; 16 bytes per lane
constexpr int steps = 4;                              // of a warp in a chunk
constexpr int chunk_inputs = steps * warps * step_inputs;
static_assert(chunk_inputs == gemv_bulk_tile.k && gemv_bulk_tile.rows == 16);
constexpr int batch_tiles = 6;  // tiles whose sums are in registers at a time
constexpr int batch_outputs = batch_tiles * tile_outputs;
constexpr int max_slots = 16;
constexpr int max_shared_bytes = 226 << 10;
constexpr int max_warm_up_rows = 2;  // with 8 rows a warm-up costs more than it saves
// The GPUs that this kernel is for have about this many.
constexpr unsigned multiprocessors = 132;

struct BulkGemv {
  Ahead ahead;
  Linear parts[gemv_bulk_max_products];
  unsigned end_tile[gemv_bulk_max_products];  // running count of tiles, by part
  int count;
  unsigned tiles_per_block;
  int slots;  // of the ring; each holds a chunk of a tile
  int pitch;  // bytes between weight rows of a slot

  // The sums follow the slots: [warps][rows][batch_outputs]. They are followed by one row that is
  // never written.
  __host__ __device__ int sums_of(int warp, int row) const {
    return (warp * static_cast<int>(parts[0].rows) + row) * batch_outputs;
  }
};

struct TilePlace {
  int part;
  std::int64_t first_output;
};
__device__ TilePlace tile_of(const BulkGemv& p, unsigned tile) {
  int part = 0;
  while (tile >= p.end_tile[part]) ++part;
  return {part, std::int64_t{tile - (part > 0 ? p.end_tile[part - 1] : 0)} * tile_outputs};
}

// A warp's inputs of a chunk: of row lane / 4, and of the row 8 behind it.
template <int n8_tiles>
struct Inputs {
  uint4 at[n8_tiles][steps];
};
template <int n8_tiles>
__device__ Inputs<n8_tiles> read_inputs(const Linear& p, int rows, int begin, int warp, int lane) {
  Inputs<n8_tiles> x{};
#pragma unroll
  for (int half = 0; half < n8_tiles; ++half) {
    const int row = 8 * half + lane / 4;
    const Bf16* const from = static_cast<const Bf16*>(p.x) + row * p.x_stride + 8 * (lane % 4);
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int input = begin + (i * warps + warp) * step_inputs;
      if (row < rows && input < static_cast<int>(p.w.in))
        x.at[half][i] = *reinterpret_cast<const uint4*>(from + input);
    }
  }
  return x;
}

struct Barriers {
  std::uint64_t full[max_slots];
  std::uint64_t empty[max_slots];
};

// Copies the chunks of the block's tiles in the order in which they are used. One warp's work.
class Supply {
 public:
  __device__ Supply(unsigned first, unsigned last) : batch_(first), at_(first), last_(last) {}

  // Copies the next chunk into its slot, if there is one.
  __device__ void bring(const BulkGemv& p, int lane, unsigned char* ring, Barriers& barriers) {
    if (at_ >= last_) return;
    const auto in = static_cast<int>(p.parts[0].w.in);
    const uint32_t full = smem_addr(barriers.full + place_.slot);
    const auto bytes = static_cast<uint32_t>(2 * min(in - begin_, chunk_inputs));
    if (full_ring_) bar_wait(smem_addr(barriers.empty + place_.slot), place_.parity ^ 1);
    if (lane == 0) bar_expect(full, tile_outputs * bytes);
    __syncwarp();
    if (lane < tile_outputs) {
      const TilePlace tile = tile_of(p, at_);
      const Linear& part = p.parts[tile.part];
      // Outputs past the last repeat the last one; they are not written.
      const std::int64_t output = min(tile.first_output + lane, part.out - 1);
      bulk_copy(smem_addr(ring + (place_.slot * tile_outputs + lane) * p.pitch),
                static_cast<const Bf16*>(part.w.data) + (part.w_first + output) * in + begin_,
                bytes, full);
    }
    place_.advance(p.slots);
    full_ring_ = full_ring_ || place_.slot == 0;
    if (++at_ < min(batch_ + batch_tiles, last_)) return;
    begin_ += chunk_inputs;
    if (begin_ >= in) {
      begin_ = 0;
      batch_ += batch_tiles;
    }
    at_ = batch_;
  }

 private:
  unsigned batch_;
  unsigned at_;
  unsigned last_;
  int begin_ = 0;
  PipelineState place_;
  bool full_ring_ = false;
};

// Rows of x are the M = 16 side, rows of weights the N side.
template <int n8_tiles>
__device__ void multiply_step(float (&low)[4], float (&high)[4], const Inputs<n8_tiles>& x, int i,
                              const uint4& w) {
  const uint4 above = x.at[0][i];
  const uint4 below = n8_tiles > 1 ? x.at[n8_tiles - 1][i] : uint4{};
  multiply_add(low, above.x, below.x, above.y, below.y, w.x, w.y);
  multiply_add(high, above.z, below.z, above.w, below.w, w.z, w.w);
}

struct Thread {
  int warp;
  int lane;
};

// A warp's share of a chunk of a tile; its weights are at `w`. Added to the chunks before.
struct TileChunk {
  int begin;  // of its inputs
  int tile;   // of the batch
};
template <int n8_tiles>
__device__ __forceinline__ void multiply_tile(const BulkGemv& p, const Inputs<n8_tiles>& x,
                                              const TileChunk& chunk, const Thread& thread,
                                              const unsigned char* w, float* sums) {
  const Linear& any = p.parts[0];
  float low[4] = {};
  float high[4] = {};
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    if (chunk.begin + (i * warps + thread.warp) * step_inputs < static_cast<int>(any.w.in))
      multiply_step(low, high, x, i,
                    *reinterpret_cast<const uint4*>(w + i * warps * 2 * step_inputs));
  }
#pragma unroll
  for (int half = 0; half < n8_tiles; ++half) {
    const int row = 8 * half + thread.lane / 4;
    if (row >= static_cast<int>(any.rows)) continue;
    auto* const to = reinterpret_cast<float2*>(sums + p.sums_of(thread.warp, row) +
                                               chunk.tile * tile_outputs + 2 * (thread.lane % 4));
    const float2 before = chunk.begin > 0 ? *to : float2{};
    *to = {before.x + (low[2 * half] + high[2 * half]),
           before.y + (low[2 * half + 1] + high[2 * half + 1])};
  }
}

// Adds the sums of the warps, and writes the results of a batch of tiles if `keep`.
__device__ void write_batch(const BulkGemv& p, unsigned batch, unsigned last, const float* sums,
                            bool keep) {
  const int outputs = static_cast<int>(min(batch + batch_tiles, last) - batch) * tile_outputs;
  const int count = static_cast<int>(p.parts[0].rows) * outputs;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
    const int row = i / outputs;
    const int output = i % outputs;
    const float* const from = sums + p.sums_of(0, row) + output;
    float sum = from[0];
#pragma unroll
    for (int w = 1; w < warps; ++w) sum += from[p.sums_of(w, 0)];
    const TilePlace tile = tile_of(p, batch + static_cast<unsigned>(output / tile_outputs));
    const Linear& part = p.parts[tile.part];
    const std::int64_t at = tile.first_output + output % tile_outputs;
    if (keep && at < part.out) part.y[row * part.y_stride + at] = sum;
  }
}

// Prefetches the block's share of `ahead` to L2. A bulk prefetch would stall the warp that issues
// it, and so the block, for microseconds.
__device__ void fetch_ahead(const Ahead& ahead) {
  constexpr std::int64_t line = 128;
#pragma unroll 1
  for (std::int64_t at = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * line;
       at < ahead.bytes; at += std::int64_t{gridDim.x} * threads * line)
    prefetch_l2(static_cast<const unsigned char*>(ahead.data) + at);
}

template <int n8_tiles>
__global__ void __launch_bounds__(threads, 1) multiply_bulk(const __grid_constant__ BulkGemv p) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Barriers barriers;
  launch_dependents();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned first = blockIdx.x * p.tiles_per_block;
  const unsigned last = min(first + p.tiles_per_block, p.end_tile[p.count - 1]);
  Supply supply(first, last);
  if (warp == 0) {
    if (lane < p.slots) {
      bar_init(smem_addr(barriers.full + lane), 1);
      bar_init(smem_addr(barriers.empty + lane), threads);
    }
    fence_bar_init();
    __syncwarp();
#pragma unroll 1
    for (int slot = 0; slot < p.slots; ++slot) supply.bring(p, lane, shared, barriers);
  }
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(shared + p.slots * tile_outputs * p.pitch);
  const Linear& any = p.parts[0];
  const auto all_inputs = static_cast<int>(any.w.in);
  const int own = 16 * (lane % 4) + 2 * step_inputs * warp;  // offset in a row, in bytes
  const unsigned char* const weights = shared + lane / 4 * p.pitch + own;
  // The row that a warm-up reads; no copy writes it.
  const unsigned char* const quiet =
      reinterpret_cast<unsigned char*>(sums + p.sums_of(warps, 0)) + own;
  PipelineState place;
  bool used = false;
#pragma unroll 1
  for (int pass = first_pass(any.rows <= max_warm_up_rows); pass < passes; ++pass) {
    const bool warm_up = !counts(pass);
    if (!warm_up) wait_for_previous_grid();
    const int rows = warm_up ? 0 : static_cast<int>(any.rows);
    const int in = warm_up ? step_inputs : all_inputs;
    const unsigned end = warm_up ? min(first + 1, last) : last;
#pragma unroll 1
    for (unsigned batch = first; batch < end; batch += batch_tiles) {
      const unsigned tiles = min(batch_tiles, end - batch);
      Inputs<n8_tiles> x = read_inputs<n8_tiles>(any, rows, 0, warp, lane);
      // Not before x is requested, which it would delay; nor at the end, where it would be late.
      if (!warm_up && batch == first) fetch_ahead(p.ahead);
#pragma unroll 1
      for (int begin = 0; begin < in; begin += chunk_inputs) {
        const auto read_next = [&] {
          return read_inputs<n8_tiles>(any, rows, begin + chunk_inputs, warp, lane);
        };
        // Loaded one chunk ahead, if there are enough registers.
        Inputs<n8_tiles> next;
        if constexpr (n8_tiles == 1) next = read_next();
        // Not unrolled: code that runs once per launch must be fetched from memory.
#pragma unroll 1
        for (unsigned b = 0; b < tiles; ++b) {
          if (!warm_up) bar_wait(smem_addr(barriers.full + place.slot), place.parity);
          const unsigned char* const w =
              warm_up ? quiet : weights + place.slot * tile_outputs * p.pitch;
          multiply_tile(p, x, {.begin = begin, .tile = static_cast<int>(b)}, {warp, lane}, w, sums);
          if (warm_up) continue;
          bar_arrive(smem_addr(barriers.empty + place.slot));
          // A slot is refilled one chunk later, when all warps have probably left it.
          if (warp == 0 && used) supply.bring(p, lane, shared, barriers);
          used = true;
          place.advance(p.slots);
        }
        if constexpr (n8_tiles > 1) next = read_next();
        x = next;
      }
      __syncthreads();
      write_batch(p, batch, end, sums, !warm_up);
      if (warm_up || batch + batch_tiles < last) __syncthreads();
    }
  }
}

template <int n8_tiles>
void launch_bulk(BulkGemv& gemv, StreamHandle stream) {
  const Linear& any = gemv.parts[0];
  const auto row_bytes = static_cast<int>(2 * any.w.in);
  gemv.pitch = bank_free_pitch(std::min(row_bytes, 2 * chunk_inputs));
  const int behind = 4 * gemv.sums_of(warps, 0) + gemv.pitch;
  const unsigned tiles = gemv.end_tile[gemv.count - 1];
  gemv.tiles_per_block = (tiles + multiprocessors - 1) / multiprocessors;
  const auto chunks = static_cast<int>((any.w.in + chunk_inputs - 1) / chunk_inputs);
  gemv.slots = std::min({max_slots, static_cast<int>(gemv.tiles_per_block) * chunks,
                         (max_shared_bytes - behind) / (tile_outputs * gemv.pitch)});
  launch(
      "linear", multiply_bulk<n8_tiles>,
      {.grid = (tiles + gemv.tiles_per_block - 1) / gemv.tiles_per_block,
       .threads = threads,
       .shared_bytes = static_cast<std::size_t>(gemv.slots * tile_outputs * gemv.pitch + behind)},
      stream, gemv);
}

// Takes the products that have work; false if there are none.
bool take_parts(std::span<const Linear> products, BulkGemv& gemv) {
  MOTLEY_CHECK(products.size() <= gemv_bulk_max_products, "as many products as a launch holds");
  unsigned tiles = 0;
  for (const Linear& p : products) {
    if (p.rows <= 0 || p.out <= 0) continue;
    tiles += static_cast<unsigned>((p.out + tile_outputs - 1) / tile_outputs);
    gemv.parts[gemv.count] = p;
    gemv.end_tile[gemv.count++] = tiles;
  }
  return gemv.count > 0;
}

}  // namespace

Result<void> prepare_gemv_bulk() {
  MOTLEY_TRY_VOID(allow_shared_memory("linear", multiply_bulk<1>, max_shared_bytes));
  return allow_shared_memory("linear", multiply_bulk<2>, max_shared_bytes);
}

void gemv_bulk(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream) {
  BulkGemv gemv{};
  gemv.ahead = ahead;
  if (!take_parts(products, gemv)) return;
  if (gemv.parts[0].rows <= 8) return launch_bulk<1>(gemv, stream);
  launch_bulk<2>(gemv, stream);
}

}  // namespace motley::kernels::cuda
