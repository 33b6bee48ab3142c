#include "kernels/cuda/experts/grouped/shrinks.h"
#include "kernels/cuda/experts/grouped/widen.cuh"

// A block is one warpgroup and takes piece after piece: token rows are the M = 64 side of the MMA,
// rank_block columns in rank space the N side, with 64 k per stage. All threads copy, a few stages
// ahead of the products.
namespace motley::kernels::cuda::grouped {
namespace {

constexpr std::string_view name = "the shrinks of experts' adapters";
constexpr int threads = 128;
constexpr int blocks_per_sm = 3;
constexpr int row_chunks = 8;  // of 16 bytes, in a row of a stage
constexpr int a_bytes = rank_block * 128;

// `row_blocks`: blocks of 64 token rows.
template <bool f8, int row_blocks>
struct Stages {
  static constexpr int depth = row_blocks == 1 ? 6 : 3;
  static constexpr int tokens = row_blocks * 64 * 128;
  static constexpr int bytes = tokens + (f8 ? a_bytes / 2 : a_bytes);
  // FP8: A of two stages in bf16, behind all stages
  static constexpr int widened = depth * bytes;
  static constexpr int all = widened + (f8 ? 2 * a_bytes : 0) + 1024;
};
template <bool f8>
constexpr int shared_bytes =
    Stages<f8, 1>::all > Stages<f8, 2>::all ? Stages<f8, 1>::all : Stages<f8, 2>::all;
static_assert(blocks_per_sm * (shared_bytes<true> + 1024) <= 228 * 1024);
static_assert(blocks_per_sm * (shared_bytes<false> + 1024) <= 228 * 1024);

// The token rows of a piece that this thread copies: one chunk of every 16th row.
template <int row_blocks>
struct Rows {
  static constexpr int each = threads / row_chunks;
  static constexpr int most = row_blocks * 64 / each;
  const Bf16* base;
  unsigned chunk[most];  // offsets from `base`, in chunks of 8 numbers
};

struct Columns {
  const unsigned char* a;  // `count` packed rows of A
  int count;               // 16 or 32
};

template <bool f8, int row_blocks>
__device__ void copy_stage(const Rows<row_blocks>& rows, int count, const Columns& columns, int in,
                           int k, std::uint32_t stage) {
  const int t = static_cast<int>(threadIdx.x);
  const int chunk = t % row_chunks;
  const bool there = k * 64 + chunk * 8 < in;
  // 16 rows further the swizzle is the same
  std::uint32_t to = stage + swizzled(t / row_chunks, chunk, 128);
#pragma unroll
  for (int i = 0; i < Rows<row_blocks>::most; ++i, to += Rows<row_blocks>::each * 128)
    if (t / row_chunks + i * Rows<row_blocks>::each < count)
      copy_16_or_zero(to, rows.base + std::size_t{rows.chunk[i]} * 8 + (there ? k * 64 : 0), there);
  constexpr int number_bytes = f8 ? 1 : 2;
  const int bytes = columns.count * 64 * number_bytes;
  const unsigned char* const a = columns.a + static_cast<std::size_t>(k) * bytes;
  const std::uint32_t a_to = stage + Stages<f8, row_blocks>::tokens;
#pragma unroll
  for (int at = 0; at < rank_block * 64 * number_bytes; at += threads * 16)
    if (at + t * 16 < bytes) copy_16(a_to + at + t * 16, a + at + t * 16);
}

// Converts this thread's 16 bytes of a stage's A, which it copied itself.
__device__ void widen_a(std::uint32_t raw, std::uint32_t to, int columns) {
  const int t = static_cast<int>(threadIdx.x);
  if (t >= columns * 4) return;
  const uint4 v = load_shared_16(raw + t * 16);
  // the place of that chunk in the narrow tile, whose swizzle is its own inverse
  const int row = t / 4;
  const int chunk = (static_cast<int>(swizzled(row, t % 4, 64)) - row * 64) / 16;
  const __nv_bfloat162 one = __float2bfloat162_rn(1.0F);
  store_shared_16(to + swizzled(row, chunk * 2, 128), widen_f8_x8(make_uint2(v.x, v.y), one));
  store_shared_16(to + swizzled(row, chunk * 2 + 1, 128), widen_f8_x8(make_uint2(v.z, v.w), one));
}

// N columns in rank space, in the order of k.
template <bool f8, int row_blocks, int N>
__device__ void multiply(float (&acc)[row_blocks][N / 2], const Rows<row_blocks>& rows, int count,
                         const Columns& columns, int in, std::uint32_t shared) {
  using Stage = Stages<f8, row_blocks>;
  const int steps = (in + 63) / 64;
#pragma unroll 1
  for (int k = 0; k < Stage::depth - 1; ++k) {
    if (k < steps)
      copy_stage<f8, row_blocks>(rows, count, columns, in, k, shared + k * Stage::bytes);
    copies_commit();
  }
  int slot = 0;
  int free_slot = Stage::depth - 1;
  for (int k = 0; k < steps; ++k) {
    copies_wait<Stage::depth - 2>();
    const std::uint32_t stage = shared + slot * Stage::bytes;
    std::uint32_t a = stage + Stage::tokens;
    if constexpr (f8) {
      const std::uint32_t raw = a;
      a = shared + Stage::widened + k % 2 * a_bytes;
      widen_a(raw, a, N);
    }
    fence_async_shared();
    __syncthreads();
    const std::uint32_t x_tile = descriptor_low(stage);
    const std::uint32_t a_tile = descriptor_low(a);
    mma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int r = 0; r < row_blocks; ++r)
        Mma<N>::template ss<swizzle_128>(acc[r], x_tile + r * (8192 >> 4) + 2 * step,
                                         a_tile + 2 * step, k + step > 0);
    mma_commit();
    // into the slot of the previous step, which all threads have finished multiplying
    const int next = k + Stage::depth - 1;
    if (next < steps)
      copy_stage<f8, row_blocks>(rows, count, columns, in, next, shared + free_slot * Stage::bytes);
    copies_commit();
    mma_wait<0>();
    free_slot = slot;
    if (++slot == Stage::depth) slot = 0;
  }
  copies_wait<0>();
  __syncthreads();
}

struct Target {
  Bf16* rows;  // of the piece, at the first column
  int pitch, count;
  int first, split;
  const float* scale;
  const float* row_scales;  // FP8: of the packed rows, from the first column on
};

template <bool f8, int row_blocks, int N>
__device__ void store(const float (&acc)[row_blocks][N / 2], const Target& to) {
  const int t = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < N / 8; ++i) {
    const int column = 8 * i + t % 4 * 2;
    float scale[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      scale[j] = to.first + column + j < to.split ? to.scale[0] : to.scale[1];
      if (f8) scale[j] *= __ldcg(to.row_scales + column + j);
    }
#pragma unroll
    for (int r = 0; r < row_blocks; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 64 * r + 16 * (t / 32) + t % 32 / 4 + 8 * half;
        const float* const v = acc[r] + 4 * i + 2 * half;
        if (row < to.count)
          *reinterpret_cast<__nv_bfloat162*>(to.rows + static_cast<std::size_t>(row) * to.pitch +
                                             column) =
              __floats2bfloat162_rn(v[0] * scale[0], v[1] * scale[1]);
      }
  }
}

// All terms of a piece, or of some of its places.
template <bool f8, int row_blocks>
__device__ void shrink_piece(const LayerParams& p, const ExpertPiece& piece, int number, int seam,
                             std::uint32_t shared) {
  const int t = static_cast<int>(threadIdx.x);
  const int in = seam == 0 ? p.hidden : p.inner;
  const int count = piece.end - piece.begin;
  Rows<row_blocks> rows;
  rows.base = seam == 0 ? p.x : p.h;
#pragma unroll
  for (int i = 0; i < Rows<row_blocks>::most; ++i) {
    const int place = piece.begin + min(t / row_chunks + i * Rows<row_blocks>::each, count - 1);
    const int row = seam == 0 ? p.plan.tokens[place] : place;
    rows.chunk[i] = static_cast<unsigned>(row) * (in / 8) + t % row_chunks;
  }
  const SeamDeltas& deltas = p.seam[seam];
  const DeltaEntry* const entries =
      p.deltas.entries[seam] + static_cast<std::size_t>(number) * p.deltas.max_terms;
  for (int term = 0; term < p.deltas.max_terms; ++term) {
    const DeltaEntry entry = entries[term];
    if (entry.rank == 0) return;
    const std::size_t column_bytes =
        static_cast<std::size_t>((in + 127) / 128) * 128 * (f8 ? 1 : 2);
    for (int first = 0; first < entry.rank; first += rank_block) {
      const Columns columns{entry.a + first * column_bytes, min(rank_block, entry.rank - first)};
      const Target target{.rows = deltas.rank_rows +
                                  static_cast<std::size_t>(piece.begin) * deltas.pitch +
                                  entry.column + first,
                          .pitch = deltas.pitch,
                          .count = count,
                          .first = first,
                          .split = entry.split,
                          .scale = entry.scale,
                          .row_scales = f8 ? a_scales(entry.a, in, entry.rank) + first : nullptr};
      if (columns.count == rank_block) {
        float acc[row_blocks][rank_block / 2];
        multiply<f8, row_blocks, rank_block>(acc, rows, count, columns, in, shared);
        store<f8, row_blocks, rank_block>(acc, target);
      } else {
        float acc[row_blocks][8];
        multiply<f8, row_blocks, 16>(acc, rows, count, columns, in, shared);
        store<f8, row_blocks, 16>(acc, target);
      }
    }
  }
}

template <bool f8>
__global__ void __launch_bounds__(threads, blocks_per_sm)
    shrink_all(const __grid_constant__ LayerParams p, ShrinkPieces which) {
  extern __shared__ unsigned char memory[];
  __shared__ int next;
  const std::uint32_t shared = (smem_addr(memory) + 1023) & ~1023U;
  const int seam = which.seam;
  launch_dependents();
  // At the second seam the grid before is gate_up's, each block of which has waited for the plan
  // before it lets this grid start (kernel.cuh). Its own results are signalled by flags.
  if (seam == 0) wait_for_previous_grid();
  const int pieces = p.plan.piece_begin[p.plan.tile_begin[p.experts]];
  int number = static_cast<int>(blockIdx.x);
  while (number < pieces) {
    int ahead = 0;
    if (threadIdx.x == 0)
      ahead = static_cast<int>(gridDim.x) + atomicAdd(&p.counters.next_shrink[seam], 1);
    ExpertPiece piece = p.plan.pieces[number];
    if (seam == 1) {
      if (threadIdx.x == 0)
        while (load_acquire(&p.counters.tile_done[piece.tile]) < which.h_parts) {
        }
      __syncthreads();
    }
    piece.begin = max(piece.begin, which.begin);
    piece.end = min(piece.end, which.end);
    if (piece.end <= piece.begin) {
      // Another rank's.
    } else if (piece.end - piece.begin <= 64) {
      shrink_piece<f8, 1>(p, piece, number, seam, shared);
    } else {
      shrink_piece<f8, 2>(p, piece, number, seam, shared);
    }
    if (threadIdx.x == 0) next = ahead;
    __syncthreads();
    number = next;
    __syncthreads();
  }
  if (seam == 1) wait_for_previous_grid();
}

template <bool f8>
void run(const LayerParams& p, const ShrinkPieces& which, StreamHandle stream) {
  const auto blocks = blocks_per_sm * device_of(stream).multiprocessors();
  launch(
      name, shrink_all<f8>,
      {.grid = static_cast<unsigned>(blocks), .threads = threads, .shared_bytes = shared_bytes<f8>},
      stream, p, which);
}

}  // namespace

void shrink_pieces(const LayerParams& params, const ShrinkPieces& which, StreamHandle stream) {
  params.f8_factors ? run<true>(params, which, stream) : run<false>(params, which, stream);
}

Result<void> prepare_shrinks() {
  MOTLEY_TRY_VOID(allow_shared_memory(name, shrink_all<false>, shared_bytes<false>));
  return allow_shared_memory(name, shrink_all<true>, shared_bytes<true>);
}

}  // namespace motley::kernels::cuda::grouped
