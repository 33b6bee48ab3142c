#include "kernels/cuda/linear_streams.cuh"

// W4A16: codes reach the tensor core as exact integers, and a group's float32 scale meets the
// float32 sum of its products. So the order of sums does not depend on the size of groups, but that
// small ones end a sum sooner.
namespace motley::kernels::cuda::streams {
namespace {

__device__ inline void copy_4_or_zero(uint32_t to, const void* from, bool keep) {
  const int bytes = keep ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// Codes j and j + 4 of a word, less 8, as two bf16: 0x4300 is 128, whose last place is 1.
__device__ inline uint32_t pair_of_codes(uint32_t word, int j) {
  uint32_t pair = 0;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
      : "=r"(pair)
      : "r"(word >> (4 * j)), "r"(0x000F000FU), "r"(0x43004300U));
  const __nv_bfloat162 offset = __floats2bfloat162_rn(136.0F, 136.0F);
  const __nv_bfloat162 codes = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&pair), offset);
  return *reinterpret_cast<const uint32_t*>(&codes);
}

// Sixteen outputs x eights of rows. A lane has `words` words of eight codes of each of its rows in
// a step, side by side: four words make a step a whole number of 128 inputs, which a group of
// scales must be then, one makes it 32.
template <int eights, int words>
struct Int4Warp {
  static constexpr int row_eights = eights;
  static constexpr int outputs = 16;
  static constexpr int step_inputs = 32 * words;
  static constexpr int half_bytes = 32 * 4 * (words + 1);  // codes and scales of eight rows
  static constexpr int slot_bytes = 2 * half_bytes;
  static constexpr int burst = 4 / words;  // steps that are waited for together
  static constexpr int in_flight = 9 * 1024 / slot_bytes / burst * burst;
  // The lanes of a four read neighbours: 16 bytes of x lie in the order of words, then lanes.
  __device__ static int staged_place(int chunk) {
    return chunk / (4 * words) * 4 * words + chunk % words * 4 + chunk / words % 4;
  }

  const unsigned char* from[2];  // codes, at this lane's inputs of the next load
  const float* scales[2];        // of the same rows
  int input;                     // of the next load, the step's first
  int end;                       // of the rank's inputs
  int left;                      // inputs of this lane from there on
  int group;                     // inputs of a scale
  unsigned char* ring;
  int lane_scale;  // bytes from this lane's codes to its scale
  float sums[1][row_eights][4] = {};

  __device__ Int4Warp(const Linear& p, const Place& place, std::int64_t first_output, int lane,
                      unsigned char* warp_ring)
      : ring(warp_ring + 4 * words * lane) {
    const std::int64_t first_input = place.begin + 8 * words * (lane % 4);
    input = static_cast<int>(place.begin);
    end = static_cast<int>(place.end);
    left = static_cast<int>(place.end - first_input);
    group = static_cast<int>(p.w.block_columns);
    const std::int64_t groups = (p.w.in + group - 1) / group;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = w_row(p, place, first_output + 8 * half + lane / 4);
      from[half] =
          static_cast<const unsigned char*>(p.w.data) + row * (p.w.in / 2) + first_input / 2;
      scales[half] = p.w.scales + row * groups;
    }
    lane_scale = 32 * 4 * words + 4 * lane - 4 * words * lane;
  }

  __device__ void load(int slot) {
    const uint32_t to = smem_addr(ring + slot * slot_bytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (words == 4) {
        copy_weights(to + half * half_bytes, from[half], left > 0);
      } else {
        copy_4_or_zero(to + half * half_bytes, from[half], left > 0);
      }
      // Every lane has sums of every row, whichever inputs are its own.
      copy_4_or_zero(to + half * half_bytes + lane_scale,
                     scales[half] + (input < end ? input / group : 0), input < end);
      if (left > step_inputs) from[half] += step_inputs / 2;
    }
    input += step_inputs;
    left -= step_inputs;
  }

  // x: this lane's 16 bytes of row lane / 4, of its first word.
  __device__ void multiply(int slot, const unsigned char* x, int pitch) {
    const unsigned char* const low = ring + slot * slot_bytes;
    const unsigned char* const high = low + half_bytes;
    const float low_scale = *reinterpret_cast<const float*>(low + lane_scale);
    const float high_scale = *reinterpret_cast<const float*>(high + lane_scale);
    // As many independent sums as hide a product's latency.
    constexpr int together = row_eights < 4 ? row_eights : 4;
#pragma unroll
    for (int first = 0; first < row_eights; first += together) {
      float partial[together][4] = {};
#pragma unroll
      for (int word = 0; word < words; ++word) {
        const uint32_t low_codes = reinterpret_cast<const uint32_t*>(low)[word];
        const uint32_t high_codes = reinterpret_cast<const uint32_t*>(high)[word];
        uint32_t a[2][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          a[0][j] = pair_of_codes(low_codes, j);
          a[1][j] = pair_of_codes(high_codes, j);
        }
#pragma unroll
        for (int n = 0; n < together; ++n) {
          const uint4 b = *reinterpret_cast<const uint4*>(x + 8 * (first + n) * pitch + 64 * word);
          // Inputs 0 and 4, 1 and 5 ... of eight, as the codes come.
          multiply_add(partial[n], a[0][0], a[1][0], a[0][1], a[1][1],
                       __byte_perm(b.x, b.z, 0x5410), __byte_perm(b.x, b.z, 0x7632));
          multiply_add(partial[n], a[0][2], a[1][2], a[0][3], a[1][3],
                       __byte_perm(b.y, b.w, 0x5410), __byte_perm(b.y, b.w, 0x7632));
        }
      }
#pragma unroll
      for (int n = 0; n < together; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[0][first + n][i] =
              fmaf(i < 2 ? low_scale : high_scale, partial[n][i], sums[0][first + n][i]);
      }
    }
  }
};

template <int words>
void queue_words(Launch& launch, StreamHandle stream) {
  const std::int64_t rows = launch.parts[0].p.rows;
  if (rows <= 8) return queue_kernel<Int4Warp<1, words>>(launch, stream);
  if (rows <= 16) return queue_kernel<Int4Warp<2, words>>(launch, stream);
  if (rows <= 32) return queue_kernel<Int4Warp<4, words>>(launch, stream);
  queue_kernel<Int4Warp<8, words>>(launch, stream);
}

bool has_wide_groups(const Linear& p) { return p.w.block_columns % 128 == 0 && p.w.in % 32 == 0; }

}  // namespace

bool int4_supports(const Linear& p) {
  return p.w.kind == WeightKind::int4_group && p.w.block_rows == 1 && p.w.block_columns > 0 &&
         p.w.block_columns % 32 == 0;
}

void queue_int4(Launch& launch, StreamHandle stream) {
  bool wide = true;
  for (int i = 0; i < launch.count; ++i) wide = wide && has_wide_groups(launch.parts[i].p);
  if (wide) return queue_words<4>(launch, stream);
  queue_words<1>(launch, stream);
}

}  // namespace motley::kernels::cuda::streams
