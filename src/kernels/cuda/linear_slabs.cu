#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/queue.cuh"
#include "kernels/cuda/rehearsal.cuh"
#include "kernels/cuda/tensor_core.cuh"

// bf16 products of up to 16 rows, whose time is that of reading the weights. A block has a slab: a
// run of outputs with all their inputs, so that whole rows of weights come as bulk copies and no
// block waits for another. Its copies fill shared memory before the grid ahead has ended. Warps
// share out the inputs, each keeps its inputs of x in registers, and their sums are added in order:
// an order that `in` alone fixes.
namespace motley::kernels::cuda {
namespace {

constexpr int warps = 16;
constexpr int threads = 32 * warps;
constexpr int tile_outputs = 8;  // the tensor core's columns
constexpr int step_inputs = 32;  // of two products; 16 bytes a lane
constexpr int steps = 4;         // of a warp in a chunk
constexpr int chunk_inputs = steps * warps * step_inputs;
constexpr int batch_tiles = 6;  // whose sums are in registers at a time
constexpr int batch_outputs = batch_tiles * tile_outputs;
constexpr int most_slots = 16;
constexpr int most_shared_bytes = 226 << 10;
constexpr int most_rehearsing_rows = 2;  // with 8 it takes longer than it saves
// The GPUs that this is made for have a few more or less.
constexpr unsigned multiprocessors = 132;

struct Slabs {
  Ahead ahead;
  Linear parts[linear_slabs_most];
  unsigned end_tile[linear_slabs_most];  // tiles of parts lie one behind the other
  int count;
  unsigned tiles_per_block;
  int slots;  // of the ring, a chunk of a tile each
  int pitch;  // bytes from one weight row of a slot to the next

  // Sums behind the slots: [warps][rows][batch_outputs]. Behind them is a row that nobody writes.
  __host__ __device__ int sums_of(int warp, int row) const {
    return (warp * static_cast<int>(parts[0].rows) + row) * batch_outputs;
  }
};

struct Tile {
  int part;
  std::int64_t first_output;
};
__device__ Tile tile_of(const Slabs& p, unsigned tile) {
  int part = 0;
  while (tile >= p.end_tile[part]) ++part;
  return {part, std::int64_t{tile - (part > 0 ? p.end_tile[part - 1] : 0)} * tile_outputs};
}

// A warp's inputs of a chunk: of row lane / 4, and of the row 8 behind it.
template <int row_eights>
struct Inputs {
  uint4 at[row_eights][steps];
};
template <int row_eights>
__device__ Inputs<row_eights> read_inputs(const Linear& p, int rows, int begin, int warp,
                                          int lane) {
  Inputs<row_eights> x{};
#pragma unroll
  for (int half = 0; half < row_eights; ++half) {
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

struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ void advance(int slots) {
    if (++slot < slots) return;
    slot = 0;
    parity ^= 1;
  }
};

struct Barriers {
  std::uint64_t full[most_slots];
  std::uint64_t empty[most_slots];
};

// Brings the chunks of the block's tiles in the order in which they are used. One warp's work.
class Supply {
 public:
  __device__ Supply(unsigned first, unsigned last) : batch_(first), at_(first), last_(last) {}

  // The next chunk into the slot where it belongs, if there is one.
  __device__ void bring(const Slabs& p, int lane, unsigned char* ring, Barriers& barriers) {
    if (at_ >= last_) return;
    const auto in = static_cast<int>(p.parts[0].w.in);
    const uint32_t full = smem_addr(barriers.full + place_.slot);
    const auto bytes = static_cast<uint32_t>(2 * min(in - begin_, chunk_inputs));
    if (full_ring_) bar_wait(smem_addr(barriers.empty + place_.slot), place_.parity ^ 1);
    if (lane == 0) bar_expect(full, tile_outputs * bytes);
    __syncwarp();
    if (lane < tile_outputs) {
      const Tile tile = tile_of(p, at_);
      const Linear& part = p.parts[tile.part];
      // Outputs behind the last are computed from the last, and not written.
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
  RingPlace place_;
  bool full_ring_ = false;
};

// Rows of x on the 16-wide side, rows of weights on the other.
template <int row_eights>
__device__ void multiply_step(float (&low)[4], float (&high)[4], const Inputs<row_eights>& x, int i,
                              const uint4& w) {
  const uint4 above = x.at[0][i];
  const uint4 below = row_eights > 1 ? x.at[row_eights - 1][i] : uint4{};
  multiply_add(low, above.x, below.x, above.y, below.y, w.x, w.y);
  multiply_add(high, above.z, below.z, above.w, below.w, w.z, w.w);
}

// Adds what the warps have and writes the results of a batch of tiles, if they are to be kept.
__device__ void write_batch(const Slabs& p, unsigned batch, unsigned last, const float* sums,
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
    const Tile tile = tile_of(p, batch + static_cast<unsigned>(output / tile_outputs));
    const Linear& part = p.parts[tile.part];
    const std::int64_t at = tile.first_output + output % tile_outputs;
    if (keep && at < part.out) part.y[row * part.y_stride + at] = sum;
  }
}

// Asks for the block's share of what comes next, into the second-level cache. A bulk prefetch would
// keep the warp that asks, and the block with it, for microseconds.
__device__ void fetch_ahead(const Ahead& ahead) {
  constexpr std::int64_t line = 128;
#pragma unroll 1
  for (std::int64_t at = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * line;
       at < ahead.bytes; at += std::int64_t{gridDim.x} * threads * line)
    asm volatile(
        "prefetch.global.L2 [%0];" ::"l"(static_cast<const unsigned char*>(ahead.data) + at)
        : "memory");
}

template <int row_eights>
__global__ void __launch_bounds__(threads, 1) multiply_slab(const __grid_constant__ Slabs p) {
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
  const int own = 16 * (lane % 4) + 2 * step_inputs * warp;  // of a row's bytes
  const unsigned char* const weights = shared + lane / 4 * p.pitch + own;
  // Where no copy lands: a row for rehearsals.
  const unsigned char* const quiet =
      reinterpret_cast<unsigned char*>(sums + p.sums_of(warps, 0)) + own;
  RingPlace place;
  bool used = false;
#pragma unroll 1
  for (int pass = first_pass(any.rows <= most_rehearsing_rows); pass < passes; ++pass) {
    const bool rehearsal = !counts(pass);
    if (!rehearsal) wait_for_previous_grid();
    const int rows = rehearsal ? 0 : static_cast<int>(any.rows);
    const int in = rehearsal ? step_inputs : all_inputs;
    const unsigned end = rehearsal ? min(first + 1, last) : last;
#pragma unroll 1
    for (unsigned batch = first; batch < end; batch += batch_tiles) {
      const unsigned tiles = min(batch_tiles, end - batch);
      Inputs<row_eights> x = read_inputs<row_eights>(any, rows, 0, warp, lane);
      // Neither before x, which would come late, nor at the end, which would.
      if (!rehearsal && batch == first) fetch_ahead(p.ahead);
#pragma unroll 1
      for (int begin = 0; begin < in; begin += chunk_inputs) {
        const auto read_next = [&] {
          return read_inputs<row_eights>(any, rows, begin + chunk_inputs, warp, lane);
        };
        // A chunk ahead, as far as there are registers.
        Inputs<row_eights> next;
        if constexpr (row_eights == 1) next = read_next();
        // Not unrolled: code that runs once a launch comes from memory.
#pragma unroll 1
        for (unsigned b = 0; b < tiles; ++b) {
          if (!rehearsal) bar_wait(smem_addr(barriers.full + place.slot), place.parity);
          const unsigned char* const w =
              rehearsal ? quiet : weights + place.slot * tile_outputs * p.pitch;
          float low[4] = {};
          float high[4] = {};
#pragma unroll
          for (int i = 0; i < steps; ++i) {
            if (begin + (i * warps + warp) * step_inputs < all_inputs)
              multiply_step(low, high, x, i,
                            *reinterpret_cast<const uint4*>(w + i * warps * 2 * step_inputs));
          }
#pragma unroll
          for (int half = 0; half < row_eights; ++half) {
            const int row = 8 * half + lane / 4;
            if (row >= static_cast<int>(any.rows)) continue;
            auto* const to = reinterpret_cast<float2*>(
                sums + p.sums_of(warp, row) + static_cast<int>(b) * tile_outputs + 2 * (lane % 4));
            const float2 before = begin > 0 ? *to : float2{};
            *to = {before.x + (low[2 * half] + high[2 * half]),
                   before.y + (low[2 * half + 1] + high[2 * half + 1])};
          }
          if (rehearsal) continue;
          bar_arrive(smem_addr(barriers.empty + place.slot));
          // A slot is filled anew one chunk later, when no warp is likely to be still at it.
          if (warp == 0 && used) supply.bring(p, lane, shared, barriers);
          used = true;
          place.advance(p.slots);
        }
        if constexpr (row_eights > 1) next = read_next();
        x = next;
      }
      __syncthreads();
      write_batch(p, batch, end, sums, !rehearsal);
      if (rehearsal || batch + batch_tiles < last) __syncthreads();
    }
  }
}

template <int row_eights>
void queue_slabs(Slabs& slabs, StreamHandle stream) {
  const Linear& any = slabs.parts[0];
  const auto row_bytes = static_cast<int>(2 * any.w.in);
  slabs.pitch = bank_free_pitch(std::min(row_bytes, 2 * chunk_inputs));
  const int behind = 4 * slabs.sums_of(warps, 0) + slabs.pitch;
  const unsigned tiles = slabs.end_tile[slabs.count - 1];
  slabs.tiles_per_block = (tiles + multiprocessors - 1) / multiprocessors;
  const auto chunks = static_cast<int>((any.w.in + chunk_inputs - 1) / chunk_inputs);
  slabs.slots = std::min({most_slots, static_cast<int>(slabs.tiles_per_block) * chunks,
                          (most_shared_bytes - behind) / (tile_outputs * slabs.pitch)});
  static const Result<void> allowed =
      launched(cudaFuncSetAttribute(multiply_slab<row_eights>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_bytes),
               "linear");
  keep_error(allowed);
  queue(
      "linear", multiply_slab<row_eights>,
      {.grid = (tiles + slabs.tiles_per_block - 1) / slabs.tiles_per_block,
       .threads = threads,
       .shared_bytes = static_cast<std::size_t>(slabs.slots * tile_outputs * slabs.pitch + behind)},
      stream, slabs);
}

// Products that have something to do; false where there is none.
bool take_parts(std::span<const Linear> products, Slabs& slabs) {
  MOTLEY_CHECK(products.size() <= linear_slabs_most, "as many products as a launch holds");
  unsigned tiles = 0;
  for (const Linear& p : products) {
    if (p.rows <= 0 || p.out <= 0) continue;
    tiles += static_cast<unsigned>((p.out + tile_outputs - 1) / tile_outputs);
    slabs.parts[slabs.count] = p;
    slabs.end_tile[slabs.count++] = tiles;
  }
  return slabs.count > 0;
}

bool begins_at_16(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace

bool linear_slabs_supports(const Linear& p) {
  return !p.exact && p.rows <= linear_slabs_most_rows && p.heads == 1 && p.x_type == DType::bf16 &&
         p.w.kind == WeightKind::bf16 && p.w.in > 0 && p.w.in % step_inputs == 0 &&
         p.x_stride % 8 == 0 && begins_at_16(p.x) && begins_at_16(p.w.data);
}

void linear_slabs(std::span<const Linear> products, const Ahead& ahead, StreamHandle stream) {
  Slabs slabs{};
  slabs.ahead = ahead;
  if (!take_parts(products, slabs)) return;
  if (slabs.parts[0].rows <= 8) return queue_slabs<1>(slabs, stream);
  queue_slabs<2>(slabs, stream);
}

}  // namespace motley::kernels::cuda
