#include "kernels/cuda/linear/gemv_streamed.cuh"

// W4A16: codes are exact integers in the tensor core, and a group's scale multiplies the float32
// sum of its products. So the order of sums does not depend on the group size, except that small
// groups end a sum sooner.
namespace motley::kernels::cuda {
namespace streamed {
namespace {

// Tiles of 16 outputs x 8 rows. Per step a lane has `words` consecutive words of 8 codes of each of
// its rows. With four words a step is 128 inputs, of which the group size must then be a multiple;
// with one word a step is 32 inputs.
template <int n8, int words>
struct Int4Warp {
  using Format = Int4Format<words>;
  static constexpr int n8_tiles = n8;
  static constexpr int outputs = 16;
  static constexpr int step_inputs = Format::step_k;
  static constexpr int half_bytes =
      32 * static_cast<int>(Format::lane_bytes +
                            sizeof(typename Format::Scale));  // codes and scales of 8 rows
  static constexpr int slot_bytes = 2 * half_bytes;
  static constexpr int burst = 4 / words;  // steps that are waited for together
  static constexpr int in_flight = 9 * 1024 / slot_bytes / burst * burst;
  // The lanes that load a vec4 are adjacent: 16-byte pieces of x are ordered by word, then lane.
  __device__ static int staged_place(int chunk) {
    return chunk / (4 * words) * 4 * words + chunk % words * 4 + chunk / words % 4;
  }

  const typename Format::Element* from[2];  // codes, at this lane's inputs of the next load
  const typename Format::Scale* scales[2];  // of the same rows
  int input;                                // of the next load, the step's first
  int end;                                  // of the rank's inputs
  int left;                                 // inputs of this lane from there on
  int group;                                // inputs of a scale
  unsigned char* ring;
  int lane_scale;  // bytes from this lane's codes to its scale
  float sums[1][n8_tiles][4] = {};

  __device__ Int4Warp(const Linear& p, const Place& place, std::int64_t first_output, int lane,
                      unsigned char* warp_ring)
      : ring(warp_ring + Format::lane_bytes * lane) {
    const std::int64_t first_input = place.begin + 8 * words * (lane % 4);
    input = static_cast<int>(place.begin);
    end = static_cast<int>(place.end);
    left = static_cast<int>(place.end - first_input);
    group = static_cast<int>(p.w.block_columns);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = w_row(p, place, first_output + 8 * half + lane / 4);
      from[half] = static_cast<const typename Format::Element*>(p.w.data) + row * (p.w.in / 2) +
                   first_input / 2;
      scales[half] = p.w.plain_scales() + row * p.w.groups();
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

  // `x`: this lane's 16 bytes of row lane / 4, of its first word.
  __device__ void multiply(int slot, const unsigned char* x, int pitch) {
    const unsigned char* const low = ring + slot * slot_bytes;
    const unsigned char* const high = low + half_bytes;
    const float low_scale = *reinterpret_cast<const float*>(low + lane_scale);
    const float high_scale = *reinterpret_cast<const float*>(high + lane_scale);
    // Enough independent sums to hide the latency of an MMA.
    constexpr int together = n8_tiles < 4 ? n8_tiles : 4;
#pragma unroll
    for (int first = 0; first < n8_tiles; first += together) {
      float partial[together][4] = {};
#pragma unroll
      for (int word = 0; word < words; ++word) {
        const uint32_t low_codes = reinterpret_cast<const uint32_t*>(low)[word];
        const uint32_t high_codes = reinterpret_cast<const uint32_t*>(high)[word];
        uint32_t a[2][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          a[0][j] = Format::decode(low_codes, j);
          a[1][j] = Format::decode(high_codes, j);
        }
#pragma unroll
        for (int n = 0; n < together; ++n) {
          const uint4 b = *reinterpret_cast<const uint4*>(x + 8 * (first + n) * pitch + 64 * word);
          // Codes are decoded as inputs 0 and 4, 1 and 5 ... of each 8.
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
void launch_words(Launch& launch, StreamHandle stream) {
  with_n8_tiles(launch.parts[0].p.rows,
                [&](auto n8) { launch_kernel<Int4Warp<n8.value, words>>(launch, stream); });
}

template <int words>
Result<void> prepare_words() {
  MOTLEY_TRY_VOID((prepare<Int4Warp<1, words>>()));
  MOTLEY_TRY_VOID((prepare<Int4Warp<2, words>>()));
  MOTLEY_TRY_VOID((prepare<Int4Warp<4, words>>()));
  return prepare<Int4Warp<8, words>>();
}

// Whether each step of 128 inputs has a single scale.
bool has_wide_groups(const Linear& p) {
  return p.w.block_columns % Int4Format<4>::group_multiple == 0 && p.w.in % 32 == 0;
}

static_assert(Int4Format<1>::group_multiple == gemv_streamed_int4_group);
static_assert(Int4Format<4>::step_k == gemv_streamed_int4_tile.k);
static_assert(warps * Int4Warp<1, 4>::outputs == narrow_outputs &&
              gemv_streamed_int4_tile.outputs == narrow_outputs);

}  // namespace
}  // namespace streamed

Result<void> prepare_gemv_streamed_int4() {
  MOTLEY_TRY_VOID(streamed::prepare_words<4>());
  return streamed::prepare_words<1>();
}

void gemv_streamed_int4(std::span<const Linear> products, StreamHandle stream) {
  streamed::Launch launch = streamed::make_launch(products);
  if (launch.count == 0) return;
  streamed::share_out_k(launch);
  bool wide = true;
  for (int i = 0; i < launch.count; ++i)
    wide = wide && streamed::has_wide_groups(launch.parts[i].p);
  wide ? streamed::launch_words<4>(launch, stream) : streamed::launch_words<1>(launch, stream);
}

}  // namespace motley::kernels::cuda
