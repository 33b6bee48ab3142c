#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/code_warm_up.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/pipeline.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"
#include "kernels/cuda/primitives/weight_decode.cuh"
#include "kernels/cuda/primitives/weight_format.cuh"

// Products of up to 16 rows of bf16 with weights in bf16 or codes of 8 bits, whose time is that of
// reading the weights. A block has a run of outputs and all their inputs, so whole rows of weights
// arrive as bulk copies, and no block waits for another. The copies fill shared memory before the
// previous grid has ended. Warps split the inputs; each keeps its inputs of x in registers. Their
// sums are added in an order that depends on `in` only. Codes are exact numbers of bf16; their
// scales, which the block keeps in shared memory, multiply the sums of a step.
namespace motley::kernels::cuda {
namespace {

constexpr int warps = 16;
constexpr int threads = 32 * warps;
constexpr int tile_outputs = gemv_bulk_tile.outputs;  // the N side of the MMA
constexpr int step_inputs = gemv_bulk_step_inputs;    // of two products; 8 inputs per lane
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

// How weights lie: `bytes` of a number, and what eight consecutive numbers at an address are.
struct PlainWeights {
  static constexpr int bytes = 2;
  static constexpr bool scaled = false;
  __device__ static uint4 read(const unsigned char* at) {
    return *reinterpret_cast<const uint4*>(at);
  }
};
template <class Format>
struct CodeWeights {
  static constexpr int bytes = 1;
  static constexpr bool scaled = true;
  __device__ static uint4 read(const unsigned char* at) {
    const uint2 codes = *reinterpret_cast<const uint2*>(at);
    // The formats pair a code of one word with one of another.
    const std::uint32_t low[2] = {codes.x, codes.x >> 8};
    const std::uint32_t high[2] = {codes.y, codes.y >> 8};
    return {Format::decode(low, 0), Format::decode(low, 2), Format::decode(high, 0),
            Format::decode(high, 2)};
  }
};
using Fp8Weights = CodeWeights<Fp8Format<1>>;
using Int8Weights = CodeWeights<Int8Format<1>>;

struct BulkGemv {
  Ahead ahead;
  Linear parts[gemv_bulk_max_products];
  unsigned end_tile[gemv_bulk_max_products];  // running count of tiles, by part
  int count;
  unsigned tiles_per_block;
  int slots;  // of the ring; each holds a chunk of a tile
  int pitch;  // bytes between weight rows of a slot
  // Of codes: scales of a row, and the bits of an input's number that are behind its scale's.
  int groups;
  int group_shift;

  // The sums follow the slots: [warps][rows][batch_outputs]. They are followed by one row that is
  // never written, and by the scales: [outputs of the block][groups].
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
  template <class Weights>
  __device__ void bring(const BulkGemv& p, int lane, unsigned char* ring, Barriers& barriers) {
    if (at_ >= last_) return;
    const auto in = static_cast<int>(p.parts[0].w.in);
    const uint32_t full = smem_addr(barriers.full + place_.slot);
    const auto bytes = static_cast<uint32_t>(Weights::bytes * min(in - begin_, chunk_inputs));
    if (full_ring_) bar_wait(smem_addr(barriers.empty + place_.slot), place_.parity ^ 1);
    if (lane == 0) bar_expect(full, tile_outputs * bytes);
    __syncwarp();
    if (lane < tile_outputs) {
      const TilePlace tile = tile_of(p, at_);
      const Linear& part = p.parts[tile.part];
      // Outputs past the last repeat the last one; they are not written.
      const std::int64_t output = min(tile.first_output + lane, part.out - 1);
      bulk_copy(smem_addr(ring + (place_.slot * tile_outputs + lane) * p.pitch),
                static_cast<const unsigned char*>(part.w.data) +
                    ((part.w_first + output) * in + begin_) * Weights::bytes,
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

// Scales of a thread's two outputs of a tile.
struct TileScales {
  const float* at;
  int groups;
  int shift;
  __device__ float2 of(int input) const {
    const int group = input >> shift;
    return {at[group], at[groups + group]};
  }
};

// Copies the scales of the block's outputs, which are constant, to shared memory.
__device__ void read_scales(const BulkGemv& p, unsigned first, unsigned last, float* scales) {
  const int count = static_cast<int>(last - first) * tile_outputs * p.groups;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
    const int output = i / p.groups;
    const TilePlace tile = tile_of(p, first + static_cast<unsigned>(output / tile_outputs));
    const Linear& part = p.parts[tile.part];
    const std::int64_t row =
        part.w_first + min(tile.first_output + output % tile_outputs, part.out - 1);
    const std::int64_t at = row / part.w.block_rows * p.groups + i % p.groups;
    scales[i] = scale_at(part.w, at) * part.w.scale_factor;
  }
}

// A warp's share of a chunk of a tile; its weights are at `w`. Added to the chunks before.
struct TileChunk {
  int begin;  // of its inputs
  int tile;   // of the batch
  TileScales scales;
};
template <class Weights, int n8_tiles>
__device__ __forceinline__ void multiply_tile(const BulkGemv& p, const Inputs<n8_tiles>& x,
                                              const TileChunk& chunk, const Thread& thread,
                                              const unsigned char* w, float* sums) {
  const Linear& any = p.parts[0];
  float low[4] = {};
  float high[4] = {};
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    const int input = chunk.begin + (i * warps + thread.warp) * step_inputs;
    if (input >= static_cast<int>(any.w.in)) continue;
    const uint4 numbers = Weights::read(w + i * warps * Weights::bytes * step_inputs);
    if constexpr (Weights::scaled) {
      float step_low[4] = {};
      float step_high[4] = {};
      multiply_step(step_low, step_high, x, i, numbers);
      const float2 scale = chunk.scales.of(input);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        low[j] = fmaf(step_low[j] + step_high[j], j % 2 == 0 ? scale.x : scale.y, low[j]);
    } else {
      multiply_step(low, high, x, i, numbers);
    }
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

template <class Weights, int n8_tiles>
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
    for (int slot = 0; slot < p.slots; ++slot) supply.bring<Weights>(p, lane, shared, barriers);
  }
  auto* const sums = reinterpret_cast<float*>(shared + p.slots * tile_outputs * p.pitch);
  auto* const scales = sums + p.sums_of(warps, 0) + p.pitch / 4;
  if constexpr (Weights::scaled) read_scales(p, first, last, scales);
  __syncthreads();
  const Linear& any = p.parts[0];
  const auto all_inputs = static_cast<int>(any.w.in);
  // Offset in a row, in bytes.
  const int own = Weights::bytes * (8 * (lane % 4) + step_inputs * warp);
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
          const unsigned output = (batch + b - first) * tile_outputs + 2 * (lane % 4);
          multiply_tile<Weights>(p, x,
                                 {.begin = begin,
                                  .tile = static_cast<int>(b),
                                  .scales = {scales + output * p.groups, p.groups, p.group_shift}},
                                 {warp, lane}, w, sums);
          if (warm_up) continue;
          bar_arrive(smem_addr(barriers.empty + place.slot));
          // A slot is refilled one chunk later, when all warps have probably left it.
          if (warp == 0 && used) supply.bring<Weights>(p, lane, shared, barriers);
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

// Groups are a power of two of inputs, or whole rows.
int group_shift_of(const WeightView& w) {
  if (w.block_columns >= w.in) return 31;
  return std::countr_zero(static_cast<std::uint64_t>(w.block_columns));
}

template <class Weights, int n8_tiles>
void launch_bulk(BulkGemv& gemv, StreamHandle stream) {
  const Linear& any = gemv.parts[0];
  const std::int64_t row_bytes = Weights::bytes * std::min<std::int64_t>(any.w.in, chunk_inputs);
  // A lane's 16 or 8 bytes of four rows, or of two, are in other banks.
  gemv.pitch = bank_free_pitch(row_bytes) - (Weights::bytes == 1 ? 32 : 0);
  const unsigned tiles = gemv.end_tile[gemv.count - 1];
  gemv.tiles_per_block = (tiles + multiprocessors - 1) / multiprocessors;
  int behind = 4 * gemv.sums_of(warps, 0) + gemv.pitch;
  if constexpr (Weights::scaled) {
    gemv.groups = static_cast<int>(any.w.groups());
    gemv.group_shift = group_shift_of(any.w);
    behind += static_cast<int>(gemv.tiles_per_block) * tile_outputs * gemv.groups * 4;
  }
  const auto chunks = static_cast<int>((any.w.in + chunk_inputs - 1) / chunk_inputs);
  gemv.slots = std::min({max_slots, static_cast<int>(gemv.tiles_per_block) * chunks,
                         (max_shared_bytes - behind) / (tile_outputs * gemv.pitch)});
  launch(
      "linear", multiply_bulk<Weights, n8_tiles>,
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

template <class Weights>
Result<void> prepare() {
  MOTLEY_TRY_VOID(allow_shared_memory("linear", multiply_bulk<Weights, 1>, max_shared_bytes));
  return allow_shared_memory("linear", multiply_bulk<Weights, 2>, max_shared_bytes);
}

template <class Weights>
void multiply(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream) {
  BulkGemv gemv{};
  gemv.ahead = ahead;
  if (!take_parts(products, gemv)) return;
  if (gemv.parts[0].rows <= 8) return launch_bulk<Weights, 1>(gemv, stream);
  launch_bulk<Weights, 2>(gemv, stream);
}

}  // namespace

std::int64_t gemv_bulk_scales(const Linear& p) {
  const std::int64_t tiles = (p.out + tile_outputs - 1) / tile_outputs;
  return (tiles / multiprocessors + 1) * tile_outputs * p.w.groups() *
         static_cast<std::int64_t>(sizeof(float));
}

Result<void> prepare_gemv_bulk() { return prepare<PlainWeights>(); }

void gemv_bulk(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream) {
  multiply<PlainWeights>(products, ahead, stream);
}

Result<void> prepare_gemv_bulk_codes() {
  MOTLEY_TRY_VOID(prepare<Fp8Weights>());
  return prepare<Int8Weights>();
}

void gemv_bulk_codes(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream) {
  MOTLEY_CHECK(!products.empty(), "a product");
  if (products[0].w.kind == WeightKind::f8_e4m3)
    return multiply<Fp8Weights>(products, ahead, stream);
  multiply<Int8Weights>(products, ahead, stream);
}

}  // namespace motley::kernels::cuda
