#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/weight_view.h"

// The packed layouts of weights that the grouped expert GEMMs read; the device packs them at load.
// Packed rows of gate and up alternate in groups of 8: packed row r is row r / 16 * 8 + r % 8 of
// gate if r % 16 < 8, else of up. Rows of down stay in order.
namespace motley::kernels::cuda {

struct ExpertShape {
  int experts = 0;
  int hidden = 0;        // H
  int intermediate = 0;  // I
  int more_columns = 0;  // of down than I: an order of inputs with columns that mean zero

  constexpr MOTLEY_HOST_DEVICE int down_columns() const { return intermediate + more_columns; }
};

// What the grouped GEMMs can read. A number of `fine` groups is 32 inputs, else 128; wider groups
// and whole rows have their scale once for each of them.
enum class ExpertFormat : std::uint8_t {
  bf16,
  int4,  // bf16 scales
  int4_fine,
  int4_any,  // f16 or bf16 scales, zero points
  int4_any_fine,
  int8,           // float32 scales
  int8_any_fine,  // and zero points
  fp8,
  fp8_fine,
  mxfp8,  // powers of two as scales, as of mxfp4
  mxfp4,
  nvfp4,      // and float32 scales of whole rows
  int8_rows,  // for inputs that are codes, too: as the tensor core reads them
  fp8_rows,
};
inline constexpr auto all_expert_formats = std::to_array(
    {ExpertFormat::bf16, ExpertFormat::int4, ExpertFormat::int4_fine, ExpertFormat::int4_any,
     ExpertFormat::int4_any_fine, ExpertFormat::int8, ExpertFormat::int8_any_fine,
     ExpertFormat::fp8, ExpertFormat::fp8_fine, ExpertFormat::mxfp8, ExpertFormat::mxfp4,
     ExpertFormat::nvfp4, ExpertFormat::int8_rows, ExpertFormat::fp8_rows});

// Decoded weights are this times what they mean, and so are the sums until they are stored: it
// keeps factors in the range of bf16.
inline constexpr float int4_unit = 0x1p-64F;
inline constexpr int fp4_unit_exponent = -64;
inline constexpr float fp4_unit = 0x1p-64F;

// Formats of codes: [E][rows / 128][128 k][128 / blob rows] of blobs of 128 k. In a blob of 64 rows
// thread t of a warpgroup has 16 bytes at i 2048 + t 16, the words of four (4 bits) or two (8 bits)
// k16 steps. Code j (0..3) of a step's words is the even k of A register j, code j + 4 the odd k
// beside it. A thread's two rows, 8 apart, have their scales beside each other behind the codes:
// [32 pairs][scales][2], and zero points in the same order behind those. A blob of 128 rows has the
// codes of one after the other, with the 128-byte swizzle, and then a scale of each. Padding behind
// the true rows and columns means zero.
struct BlobLayout {
  int bits = 4;    // of a code
  int scales = 1;  // per 128 k
  int scale_bytes = 2;
  int scale_offset = 0;      // added to scales of a byte
  bool zero_points = false;  // bytes
  bool row_scales = false;   // float32, in memory of their own
  int rows = 64;

  constexpr MOTLEY_HOST_DEVICE int code_bytes() const { return 16 * bits * rows; }
  constexpr MOTLEY_HOST_DEVICE int bytes() const {
    return code_bytes() + rows * scales * (scale_bytes + (zero_points ? 1 : 0));
  }
  // Where a row's scale of a group stands among all; zero points have its order, too.
  constexpr MOTLEY_HOST_DEVICE int scale_at(int row, int group) const {
    if (rows == 128) return row;
    return ((row / 16 * 8 + row % 8) * scales + group) * 2 + row % 16 / 8;
  }
  constexpr MOTLEY_HOST_DEVICE int zeros_at() const {
    return code_bytes() + rows * scales * scale_bytes;
  }
};
constexpr MOTLEY_HOST_DEVICE BlobLayout blob_layout(ExpertFormat format) {
  switch (format) {
    case ExpertFormat::bf16:
      return {.bits = 16, .scales = 0, .scale_bytes = 0};
    case ExpertFormat::int4:
      return {};
    case ExpertFormat::int4_fine:
      return {.scales = 4};
    case ExpertFormat::int4_any:
      return {.zero_points = true};
    case ExpertFormat::int4_any_fine:
      return {.scales = 4, .zero_points = true};
    case ExpertFormat::int8:
    case ExpertFormat::fp8:
      return {.bits = 8, .scale_bytes = 4};
    case ExpertFormat::int8_any_fine:
      return {.bits = 8, .scales = 4, .scale_bytes = 4, .zero_points = true};
    case ExpertFormat::fp8_fine:
      return {.bits = 8, .scales = 4, .scale_bytes = 4};
    case ExpertFormat::mxfp8:
      return {.bits = 8, .scales = 4, .scale_bytes = 1};
    case ExpertFormat::mxfp4:
      return {.scales = 4, .scale_bytes = 1, .scale_offset = 126 + fp4_unit_exponent};
    case ExpertFormat::nvfp4:
      return {.scales = 8, .scale_bytes = 1, .row_scales = true};
    case ExpertFormat::int8_rows:
    case ExpertFormat::fp8_rows:
      return {.bits = 8, .scale_bytes = 4, .rows = 128};
  }
  return {};
}

// Whether token rows are codes, too.
constexpr bool has_coded_inputs(ExpertFormat format) {
  return format == ExpertFormat::int8_rows || format == ExpertFormat::fp8_rows;
}

// The largest scale of MXFP4 whose products stay in that range, as its code: 2^65.
inline constexpr int max_mxfp4_scale = 192;
constexpr float decoded_unit(ExpertFormat format) {
  switch (format) {
    case ExpertFormat::int4:
    case ExpertFormat::int4_fine:
      return int4_unit;
    case ExpertFormat::mxfp4:
    case ExpertFormat::nvfp4:
      return fp4_unit;
    default:
      return 1;
  }
}

// How the scales of int4_any are stored.
enum class HalfType : std::uint8_t { bf16, f16 };

struct PackedExperts {
  ExpertFormat format = ExpertFormat::bf16;
  HalfType scales = HalfType::bf16;  // of int4_any
  bool scales_of_rows = false;       // a row has the same in all its blobs
  bool scales_of_tiles = false;      // 128 rows of down, 64 of gate or up have the same in a blob
  const void* gate_up = nullptr;     // bf16: [E, 2 I, H]
  const void* down = nullptr;        // bf16: [E, H, down_columns()]
  const float* gate_up_rows = nullptr;  // row scales [E, 2 I], in the order of packed rows
  const float* down_rows = nullptr;     // [E, H]
};

// Whether `rows` rows have the same scales in a tile that has 128 of down's, or 64 of gate's or
// up's.
constexpr bool shares_scales_in_tiles(std::int64_t rows, std::int64_t block_rows, bool down) {
  return block_rows % (down ? 128 : 64) == 0 || block_rows >= rows;
}

std::size_t packed_expert_bytes(ExpertFormat format, int experts, int rows, int columns);

// `gate`, `up` and `down` are [experts] each, in device memory, and of the packed format; for bf16
// they may be of any kind, and are decoded and rounded once. packed_gate_up and packed_down have
// packed_expert_bytes() for 2 I x H and H x down_columns().
struct PackExperts {
  ExpertShape shape{};
  ExpertFormat format = ExpertFormat::bf16;
  const WeightView* gate = nullptr;
  const WeightView* up = nullptr;
  const WeightView* down = nullptr;
  void* packed_gate_up = nullptr;
  void* packed_down = nullptr;
  float* gate_up_rows = nullptr;  // where the format has row scales
  float* down_rows = nullptr;
};
Result<void> pack_experts(const PackExperts& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
