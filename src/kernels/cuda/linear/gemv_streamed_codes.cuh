// The streamed GEMV over weights of codes, all formats alike: codes are exact numbers in the tensor
// core, and scales multiply the float32 sums of a step's products, or, where a lane's inputs have
// their own, the codes before. So the order of sums does not depend on the group size, except that
// small groups end a sum sooner.
#pragma once

#include "kernels/cuda/linear/gemv_streamed.cuh"
#include "kernels/cuda/linear/gemv_streamed_codes.h"
#include "kernels/cuda/primitives/placed_number.cuh"

namespace motley::kernels::cuda::streamed {

// Where the numbers beside a row's codes stand: one for each group of inputs.
struct BesideRow {
  const unsigned char* first;  // null: there are none
  int bytes;                   // of a number
  int log_group;               // inputs of a number, as a power of two

  __device__ PlacedNumber at(int input) const {
    return PlacedNumber(first + (input >> log_group) * bytes);
  }
};

// Tiles of 16 outputs x 8 rows. Per step a lane has `units` consecutive units of 8 codes of each of
// its rows.
template <class Codes, int n8, bool zeros>
struct CodesWarp {
  using Format = Codes;
  static constexpr int n8_tiles = n8;
  static constexpr int outputs = 16;
  static constexpr int step_inputs = Format::step_k;
  static constexpr int units = Format::units;
  static constexpr int lane_inputs = 8 * units;
  static constexpr bool scales_codes = Format::scaled == ScaledPart::codes;
  // Codes, scales and zero points of 8 rows.
  static constexpr int scales_at = 32 * Format::lane_bytes;
  static constexpr int half_bytes = scales_at + 32 * (zeros ? 8 : 4);
  static constexpr int slot_bytes = 2 * half_bytes;
  static constexpr int burst = 4 / units;  // steps that are waited for together
  static constexpr int in_flight = 9 * 1024 / slot_bytes / burst * burst;
  // The lanes that load a vec4 are adjacent: 16-byte pieces of x are ordered by unit, then lane.
  __device__ static int staged_place(int chunk) {
    return chunk / (4 * units) * 4 * units + chunk % units * 4 + chunk / units % 4;
  }

  const unsigned char* from[2];  // codes, at this lane's inputs of the next load
  BesideRow scales[2];           // of the same rows
  BesideRow zero_points[2];
  int loaded;      // the first input of the next load
  int multiplied;  // and of the next products
  int end;         // of the rank's inputs
  int lane;
  DType scale_type;
  float factor;
  unsigned char* ring;
  float sums[1][n8_tiles][4] = {};

  __device__ CodesWarp(const Linear& p, const Place& place, std::int64_t first_output, int lane,
                       unsigned char* warp_ring)
      : loaded(static_cast<int>(place.begin)),
        multiplied(static_cast<int>(place.begin)),
        end(static_cast<int>(place.end)),
        lane(lane),
        scale_type(p.w.scale_type),
        factor(p.w.scale_factor),
        ring(warp_ring) {
    const std::int64_t first_input = place.begin + lane_inputs * (lane % 4);
    const int log_group =
        p.w.block_columns >= p.w.in ? 31 : 31 - __clz(static_cast<int>(p.w.block_columns));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = w_row(p, place, first_output + 8 * half + lane / 4);
      from[half] = static_cast<const unsigned char*>(p.w.data) +
                   (row * p.w.in + first_input) * Format::bits / 8;
      const std::int64_t first = row / p.w.block_rows * p.w.groups();
      const int bytes = scale_bytes(scale_type);
      scales[half] = {static_cast<const unsigned char*>(p.w.scales) + first * bytes, bytes,
                      log_group};
      if constexpr (zeros) zero_points[half] = {p.w.zero_points + first, 1, log_group};
    }
  }

  // Of the step that begins at `input`: the lane's own, where scales multiply codes.
  __device__ int scaled_input(int input) const {
    return scales_codes ? input + lane_inputs * (lane % 4) : input;
  }

  __device__ void load(int slot) {
    const uint32_t to = smem_addr(ring + slot * slot_bytes);
    const int left = end - (loaded + lane_inputs * (lane % 4));
    const int scaled = scaled_input(loaded);
    const bool has_scale = scaled < end;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t own = to + half * half_bytes;
      copy_codes(own + Format::lane_bytes * lane, from[half], left > 0);
      // Every lane has sums of every row, whichever inputs are its own.
      const int input = has_scale ? scaled : 0;
      copy_4_or_zero(own + scales_at + 4 * lane, scales[half].at(input).word, has_scale);
      if constexpr (zeros)
        copy_4_or_zero(own + scales_at + 128 + 4 * lane, zero_points[half].at(input).word,
                       has_scale);
      if (left > step_inputs) from[half] += step_inputs * Format::bits / 8;
    }
    loaded += step_inputs;
  }

  __device__ static void copy_codes(uint32_t to, const unsigned char* codes, bool keep) {
    if constexpr (Format::lane_bytes == 16) copy_weights(to, codes, keep);
    if constexpr (Format::lane_bytes == 8) copy_8_or_zero(to, codes, keep);
    if constexpr (Format::lane_bytes == 4) copy_4_or_zero(to, codes, keep);
  }

  // One row's share of a step: how its codes become the tensor core's numbers.
  struct Row {
    const std::uint32_t* codes;
    std::uint32_t scale_word;
    PlacedNumber scale_place;
    __nv_bfloat162 zero;

    __device__ Row(const CodesWarp& warp, const unsigned char* half, const BesideRow& scales,
                   const BesideRow& zero_points)
        : codes(reinterpret_cast<const std::uint32_t*>(half + Format::lane_bytes * warp.lane)),
          scale_word(*reinterpret_cast<const std::uint32_t*>(half + scales_at + 4 * warp.lane)),
          scale_place(scales.at(warp.scaled_input(warp.multiplied))),
          zero() {
      if constexpr (zeros) {
        const std::uint32_t word =
            *reinterpret_cast<const std::uint32_t*>(half + scales_at + 128 + 4 * warp.lane);
        const PlacedNumber place = zero_points.at(warp.multiplied);
        constexpr int middle = Format::kind == WeightKind::i8 ? 128 : 8;
        zero = __bfloat162bfloat162(
            __int2bfloat16_rn(static_cast<int>(word >> place.shift & 0xFF) - middle));
      }
    }
    __device__ float scale(DType type) const {
      return widen_scale(scale_word, scale_place.shift, type);
    }
    __device__ void decode(int unit, std::uint32_t (&numbers)[4]) const {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        numbers[j] = Format::decode(codes + unit * Format::unit_words, j);
        if constexpr (zeros) numbers[j] = as_bits(__hsub2(as_bf16x2(numbers[j]), zero));
      }
      if constexpr (scales_codes) {
        const unsigned place = scale_place.shift + 8 * (8 * unit / Format::group);
        const __nv_bfloat162 own = Format::scale(scale_word >> place & 0xFF);
#pragma unroll
        for (std::uint32_t& pair : numbers) pair = as_bits(__hmul2(as_bf16x2(pair), own));
      }
    }
  };

  // `x`: this lane's 16 bytes of row lane / 4, of its first unit.
  __device__ void multiply(int slot, const unsigned char* x, int pitch) {
    const unsigned char* const stored = ring + slot * slot_bytes;
    const Row low(*this, stored, scales[0], zero_points[0]);
    const Row high(*this, stored + half_bytes, scales[1], zero_points[1]);
    multiplied += step_inputs;
    const float low_scale = scales_codes ? 1 : low.scale(scale_type) * factor;
    const float high_scale = scales_codes ? 1 : high.scale(scale_type) * factor;
    // Enough independent sums to hide the latency of an MMA, as far as there are registers.
    constexpr int together = n8_tiles < 4 ? n8_tiles : n8_tiles == 4 && zeros ? 2 : 4;
#pragma unroll
    for (int first = 0; first < n8_tiles; first += together) {
      float partial[together][4] = {};
#pragma unroll
      for (int unit = 0; unit < units; ++unit) {
        uint32_t a[2][4];
        low.decode(unit, a[0]);
        high.decode(unit, a[1]);
#pragma unroll
        for (int n = 0; n < together; ++n) {
          float(&to)[4] = scales_codes ? sums[0][first + n] : partial[n];
          const uint4 b = *reinterpret_cast<const uint4*>(x + 8 * (first + n) * pitch + 64 * unit);
          // Numbers are decoded as inputs 0 and 4, 1 and 5 ... of each 8.
          multiply_add(to, a[0][0], a[1][0], a[0][1], a[1][1], __byte_perm(b.x, b.z, 0x5410),
                       __byte_perm(b.x, b.z, 0x7632));
          multiply_add(to, a[0][2], a[1][2], a[0][3], a[1][3], __byte_perm(b.y, b.w, 0x5410),
                       __byte_perm(b.y, b.w, 0x7632));
        }
      }
      if constexpr (!scales_codes) {
#pragma unroll
        for (int n = 0; n < together; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            sums[0][first + n][i] =
                fmaf(i < 2 ? low_scale : high_scale, partial[n][i], sums[0][first + n][i]);
        }
      }
    }
  }

  // Behind the last step.
  __device__ void finish() {
    if constexpr (scales_codes) {
#pragma unroll
      for (float(&tile)[4] : sums[0])
#pragma unroll
        for (float& sum : tile) sum *= factor;
    }
  }
};

template <class Format, bool zeros>
Result<void> prepare_codes() {
  static_assert(warps * CodesWarp<Format, 1, zeros>::outputs == narrow_outputs &&
                gemv_streamed_codes_tile.outputs == narrow_outputs);
  MOTLEY_TRY_VOID((prepare<CodesWarp<Format, 1, zeros>>()));
  MOTLEY_TRY_VOID((prepare<CodesWarp<Format, 2, zeros>>()));
  MOTLEY_TRY_VOID((prepare<CodesWarp<Format, 4, zeros>>()));
  return prepare<CodesWarp<Format, 8, zeros>>();
}

template <class Format, bool zeros>
void launch_codes(Launch& launch, StreamHandle stream) {
  with_n8_tiles(launch.parts[0].p.rows, [&](auto n8) {
    launch_kernel<CodesWarp<Format, n8.value, zeros>>(launch, stream);
  });
}

// Whether each step has a single scale.
template <class Format>
bool takes_steps(const Launch& launch) {
  for (int i = 0; i < launch.count; ++i) {
    const WeightView& w = launch.parts[i].p.w;
    const bool whole = w.block_columns % Format::group == 0 || w.block_columns >= w.in;
    if (!whole || w.in % (8 * Format::units) != 0) return false;
  }
  return true;
}

}  // namespace motley::kernels::cuda::streamed
