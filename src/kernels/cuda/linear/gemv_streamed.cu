#include "base/check.h"
#include "kernels/cuda/linear/gemv_streamed.cuh"

namespace motley::kernels::cuda {
namespace streamed {
namespace {

// Tiles of 16 outputs x 8 rows.
template <int n8, int m16_tiles>
struct Bf16Warp {
  using Format = Bf16Format;
  static constexpr int n8_tiles = n8;
  static constexpr int outputs = 16 * m16_tiles;
  static constexpr int in_flight = ring_kib<n8> / m16_tiles;
  static constexpr int burst = 4 / m16_tiles;  // steps that are waited for together
  static constexpr int slot_bytes = 32 * Format::lane_bytes * 2 * m16_tiles;
  // A lane has 8 inputs of each of its rows, which is 16 bytes of x.
  static constexpr int step_inputs = Format::step_k;
  __device__ static int staged_place(int chunk) { return chunk; }

  const Bf16* from[m16_tiles][2];  // rows of w, at this lane's inputs of the next load
  int left;                        // inputs from there on
  unsigned char* ring;             // [in_flight][m16_tiles][2], 512 bytes apart
  float sums[m16_tiles][n8_tiles][4] = {};

  __device__ Bf16Warp(const Linear& p, const Place& place, std::int64_t first_output, int lane,
                      unsigned char* warp_ring)
      : ring(warp_ring + Format::lane_bytes * lane) {
    const std::int64_t first_input = place.begin + step_inputs / 4 * (lane % 4);
    left = static_cast<int>(place.end - first_input);
#pragma unroll
    for (int m = 0; m < m16_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        from[m][half] = static_cast<const Bf16*>(p.w.data) +
                        w_row(p, place, first_output + 16 * m + 8 * half + lane / 4) * p.w.in +
                        first_input;
    }
  }

  __device__ void load(int slot) {
    const uint32_t to = smem_addr(ring + slot * slot_bytes);
#pragma unroll
    for (int m = 0; m < m16_tiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copy_weights(to + 512 * (2 * m + half), from[m][half], left > 0);
        if (left > step_inputs) from[m][half] += step_inputs;
      }
    }
    left -= step_inputs;
  }

  __device__ void finish() {}

  // `x`: this lane's 16 bytes of row lane / 4 at this step.
  __device__ void multiply(int slot, const unsigned char* x, int pitch) {
    // Enough independent sums to hide the latency of an MMA.
    constexpr int together = n8_tiles < 4 ? n8_tiles : 4;
    const auto* const w = reinterpret_cast<const uint4*>(ring + slot * slot_bytes);
#pragma unroll
    for (int first = 0; first < n8_tiles; first += together) {
      uint4 b[together];
#pragma unroll
      for (int n = 0; n < together; ++n)
        b[n] = *reinterpret_cast<const uint4*>(x + 8 * (first + n) * pitch);
#pragma unroll
      for (int m = 0; m < m16_tiles; ++m) {
        const uint4 low = w[32 * (2 * m)];
        const uint4 high = w[32 * (2 * m + 1)];
#pragma unroll
        for (int n = 0; n < together; ++n)
          multiply_add(sums[m][first + n], low.x, high.x, low.y, high.y, b[n].x, b[n].y);
#pragma unroll
        for (int n = 0; n < together; ++n)
          multiply_add(sums[m][first + n], low.z, high.z, low.w, high.w, b[n].z, b[n].w);
      }
    }
  }
};

// The GPUs that this kernel is for have about this many. The order of sums must not depend on the
// actual number.
constexpr std::int64_t multiprocessors = 132;
// From here on wide tiles occupy all multiprocessors, and K is not split.
constexpr std::int64_t enough_tiles = 2 * multiprocessors;
static_assert(warps * Bf16Warp<1, 1>::outputs == narrow_outputs);
static_assert(warps * Bf16Warp<1, 2>::outputs == gemv_streamed_tile.outputs);

// The number of blocks that split K. It depends only on the shapes of the weights, and so does the
// order of sums. Chosen to minimise what the busiest multiprocessor reads; the smallest such
// number.
std::int64_t best_ranks(std::int64_t tiles, std::int64_t units) {
  std::int64_t best = 1;
  std::int64_t least = 0;
  for (std::int64_t ranks = 1; ranks <= max_ranks; ++ranks) {
    const std::int64_t work =
        (tiles * ranks + multiprocessors - 1) / multiprocessors * ((units + ranks - 1) / ranks);
    if (ranks == 1 || work < least) {
      best = ranks;
      least = work;
    }
  }
  return best;
}

template <int n8_tiles>
Result<void> prepare_rows() {
  MOTLEY_TRY_VOID((prepare<Bf16Warp<n8_tiles, 1>>()));
  return prepare<Bf16Warp<n8_tiles, 2>>();
}

std::int64_t count_units(const Launch& launch) {
  return (launch.parts[0].p.w.in + rank_unit - 1) / rank_unit;
}

}  // namespace

Launch make_launch(std::span<const Linear> products) {
  MOTLEY_CHECK(products.size() <= max_parts, "as many products as a launch holds");
  Launch launch{};
  for (const Linear& p : products) {
    if (p.rows > 0 && p.out > 0 && p.heads > 0) launch.parts[launch.count++].p = p;
  }
  return launch;
}

std::int64_t count_tiles(const Launch& launch, int outputs) {
  std::int64_t sum = 0;
  for (int i = 0; i < launch.count; ++i) {
    const Linear& p = launch.parts[i].p;
    sum += p.heads * ((p.out + outputs - 1) / outputs);
  }
  return sum;
}

void share_out_k(Launch& launch) {
  const std::int64_t units = count_units(launch);
  const std::int64_t ranks = best_ranks(count_tiles(launch, narrow_outputs), units);
  launch.rank_inputs = static_cast<int>((units + ranks - 1) / ranks * rank_unit);
}

void keep_k_whole(Launch& launch) {
  launch.rank_inputs = static_cast<int>(count_units(launch) * rank_unit);
}

}  // namespace streamed

Result<void> prepare_gemv_streamed() {
  MOTLEY_TRY_VOID(streamed::prepare_rows<1>());
  MOTLEY_TRY_VOID(streamed::prepare_rows<2>());
  MOTLEY_TRY_VOID(streamed::prepare_rows<4>());
  return streamed::prepare_rows<8>();
}

void gemv_streamed(std::span<const Linear> products, StreamHandle stream) {
  streamed::Launch launch = streamed::make_launch(products);
  if (launch.count == 0) return;
  const bool wide =
      streamed::count_tiles(launch, gemv_streamed_tile.outputs) >= streamed::enough_tiles;
  wide ? streamed::keep_k_whole(launch) : streamed::share_out_k(launch);
  streamed::with_n8_tiles(launch.parts[0].p.rows, [&](auto n8) {
    if (wide) return streamed::launch_kernel<streamed::Bf16Warp<n8.value, 2>>(launch, stream);
    streamed::launch_kernel<streamed::Bf16Warp<n8.value, 1>>(launch, stream);
  });
}

}  // namespace motley::kernels::cuda
