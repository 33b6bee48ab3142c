#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/linear_streams.cuh"

namespace motley::kernels::cuda {
namespace streams {
namespace {

// Sixteens of outputs x eights of rows.
template <int eights, int output_sixteens>
struct Bf16Warp {
  static constexpr int row_eights = eights;
  static constexpr int outputs = 16 * output_sixteens;
  static constexpr int in_flight = ring_kib<eights> / output_sixteens;
  static constexpr int burst = 4 / output_sixteens;  // steps that are waited for together
  static constexpr int slot_bytes = 32 * 16 * 2 * output_sixteens;
  // A lane has eight inputs of each of its rows, which is 16 bytes of x.
  static constexpr int step_inputs = 32;
  __device__ static int staged_place(int chunk) { return chunk; }

  const Bf16* from[output_sixteens][2];  // rows of w, at this lane's inputs of the next load
  int left;                              // inputs from there on
  unsigned char* ring;                   // [in_flight][output_sixteens][2], 512 bytes apart
  float sums[output_sixteens][row_eights][4] = {};

  __device__ Bf16Warp(const Linear& p, const Place& place, std::int64_t first_output, int lane,
                      unsigned char* warp_ring)
      : ring(warp_ring + 16 * lane) {
    const std::int64_t first_input = place.begin + 8 * (lane % 4);
    left = static_cast<int>(place.end - first_input);
#pragma unroll
    for (int m = 0; m < output_sixteens; ++m) {
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
    for (int m = 0; m < output_sixteens; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copy_weights(to + 512 * (2 * m + half), from[m][half], left > 0);
        if (left > step_inputs) from[m][half] += step_inputs;
      }
    }
    left -= step_inputs;
  }

  // x: this lane's 16 bytes of row lane / 4 at this step.
  __device__ void multiply(int slot, const unsigned char* x, int pitch) {
    // As many independent sums as hide a product's latency.
    constexpr int together = row_eights < 4 ? row_eights : 4;
    const auto* const w = reinterpret_cast<const uint4*>(ring + slot * slot_bytes);
#pragma unroll
    for (int first = 0; first < row_eights; first += together) {
      uint4 b[together];
#pragma unroll
      for (int n = 0; n < together; ++n)
        b[n] = *reinterpret_cast<const uint4*>(x + 8 * (first + n) * pitch);
#pragma unroll
      for (int m = 0; m < output_sixteens; ++m) {
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

// The GPUs that this is made for have a few more or less; the order of sums must not depend on it.
constexpr std::int64_t multiprocessors = 132;
// From here on wide tiles fill them, and K stays whole.
constexpr std::int64_t enough_tiles = 2 * multiprocessors;

// How many ranks share out K follows from the weights' shapes alone, and with it the order of sums:
// those under which the fullest multiprocessor has the least to read, and the fewest such.
std::int64_t best_ranks(std::int64_t tiles, std::int64_t units) {
  std::int64_t best = 1;
  std::int64_t least = 0;
  for (std::int64_t ranks = 1; ranks <= most_ranks; ++ranks) {
    const std::int64_t work =
        (tiles * ranks + multiprocessors - 1) / multiprocessors * ((units + ranks - 1) / ranks);
    if (ranks == 1 || work < least) {
      best = ranks;
      least = work;
    }
  }
  return best;
}

template <int row_eights>
void queue_rows(Launch& launch, StreamHandle stream) {
  const auto tiles = [&](int outputs) {
    std::int64_t sum = 0;
    for (int i = 0; i < launch.count; ++i) {
      const Linear& p = launch.parts[i].p;
      sum += p.heads * ((p.out + outputs - 1) / outputs);
    }
    return sum;
  };
  const std::int64_t units = (launch.parts[0].p.w.in + rank_unit - 1) / rank_unit;
  const bool int4 = launch.parts[0].p.w.kind == WeightKind::int4_group;
  if (!int4 && tiles(256) >= enough_tiles) {
    launch.rank_inputs = static_cast<int>(units * rank_unit);
    return queue_kernel<Bf16Warp<row_eights, 2>>(launch, stream);
  }
  const std::int64_t ranks = best_ranks(tiles(128), units);
  launch.rank_inputs = static_cast<int>((units + ranks - 1) / ranks * rank_unit);
  if (int4) return queue_int4(launch, stream);
  queue_kernel<Bf16Warp<row_eights, 1>>(launch, stream);
}

bool begins_at_16(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace
}  // namespace streams

bool linear_streams_supports(const Linear& p) {
  const bool rows = !p.exact && p.x_type == DType::bf16 && p.w.in > 0 && p.w.in % 8 == 0 &&
                    p.x_stride % 8 == 0 && p.x_head_stride % 8 == 0 && streams::begins_at_16(p.x) &&
                    streams::begins_at_16(p.w.data);
  return rows && (p.w.kind == WeightKind::bf16 || streams::int4_supports(p));
}

void linear_streams(std::span<const Linear> products, StreamHandle stream) {
  MOTLEY_CHECK(products.size() <= linear_streams_most, "as many products as a launch holds");
  streams::Launch launch{};
  for (const Linear& p : products) {
    if (p.rows > 0 && p.out > 0 && p.heads > 0) launch.parts[launch.count++].p = p;
  }
  if (launch.count == 0) return;
  const std::int64_t rows = launch.parts[0].p.rows;
  if (rows <= 8) return streams::queue_rows<1>(launch, stream);
  if (rows <= 16) return streams::queue_rows<2>(launch, stream);
  if (rows <= 32) return streams::queue_rows<4>(launch, stream);
  streams::queue_rows<8>(launch, stream);
}

}  // namespace motley::kernels::cuda
