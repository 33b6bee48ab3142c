#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/number_types.h"
#include "kernels/cpu/gemm_variants.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/input_rounding.h"

namespace motley::kernels::cpu {
namespace {

// Reads through memcpy, because tensors of a file stand at any byte.
template <class Stored>
Stored element(const void* data, std::int64_t index) {
  Stored stored{};
  std::memcpy(&stored, static_cast<const std::byte*>(data) + index * std::int64_t{sizeof stored},
              sizeof stored);
  return stored;
}

// The code of number (o, k), before zero point and scale.
float code_of(const WeightView& w, std::int64_t o, std::int64_t k) {
  const std::int64_t index = o * w.in + k;
  const auto half = [&] {
    const auto pair = element<std::uint8_t>(w.data, o * ((w.in + 1) / 2) + k / 2);
    return k % 2 == 0 ? pair & 15 : pair >> 4;
  };
  switch (w.kind) {
    case WeightKind::f32:
      return element<float>(w.data, index);
    case WeightKind::f16:
      return element<f16>(w.data, index).to_float();
    case WeightKind::bf16:
      return element<bf16>(w.data, index).to_float();
    case WeightKind::f8_e4m3:
      return element<f8_e4m3>(w.data, index).to_float();
    case WeightKind::i8:
      return static_cast<float>(element<std::int8_t>(w.data, index));
    case WeightKind::int4:
      return static_cast<float>(half());
    case WeightKind::f4_e2m1:
      return f4_e2m1{static_cast<std::uint8_t>(half())}.to_float();
  }
  return 0;
}

float widened(DType type, const void* data, std::int64_t index) {
  switch (type) {
    case DType::f16:
      return element<f16>(data, index).to_float();
    case DType::bf16:
      return element<bf16>(data, index).to_float();
    case DType::f8_e4m3:
      return element<f8_e4m3>(data, index).to_float();
    case DType::f8_e8m0:
      return element<f8_e8m0>(data, index).to_float();
    default:
      return element<float>(data, index);
  }
}

float decoded(const WeightView& w, std::int64_t o, std::int64_t k) {
  float code = code_of(w, o, k);
  float zero = w.kind == WeightKind::int4 ? 8 : 0;
  if (!has_scales(w)) return code - zero;
  const std::int64_t at = o / w.block_rows * w.groups() + k / w.block_columns;
  if (w.zero_points != nullptr) {
    zero = static_cast<float>(w.zero_points[at]);
    if (w.kind == WeightKind::i8) zero -= 128;
  }
  return (code - zero) * (widened(w.scale_type, w.scales, at) * w.scale_factor);
}

}  // namespace

void decode_inputs(const WeightView& w, std::int64_t o, std::int64_t begin, std::int64_t count,
                   float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = decoded(w, o, begin + i);
}

void decode_row(const WeightView& w, std::int64_t o, std::int64_t begin, std::span<float> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  if (w.input_order == nullptr) return decode_inputs(w, o, begin, count, out.data());
  std::ranges::fill(out, 0.0F);
  for (std::int64_t k = 0; k < w.in; ++k) {
    const std::int64_t at = w.input_order[k] - begin;
    if (at >= 0 && at < count) out[static_cast<std::size_t>(at)] += decoded(w, o, k);
  }
}

float input_scale(const InputRounding& rounding, float largest) {
  return kernels::input_scale(rounding, largest);
}

bool has_scales(const WeightView& w) { return w.scales != nullptr && w.block_columns > 0; }

bool is_plain(const WeightView& w) {
  const bool plain =
      w.kind == WeightKind::f32 || w.kind == WeightKind::f16 || w.kind == WeightKind::bf16;
  return plain && !has_scales(w);
}

RowLayout layout_of(const WeightView& w) {
  // Without scales all are one.
  static constexpr float one = 1;
  RowLayout layout{&w, (w.in * code_bits(w.kind) + 7) / 8, 0, 62, &one};
  if (!has_scales(w)) return layout;
  layout.groups = w.groups();
  // Scalar loads want float32 at its own alignment.
  const bool aligned = reinterpret_cast<std::uintptr_t>(w.scales) % alignof(float) == 0;
  layout.plain_scales = w.has_plain_scales() && aligned ? w.plain_scales() : nullptr;
  if (w.block_columns < w.in)
    layout.block_log =
        static_cast<int>(std::bit_width(static_cast<std::uint64_t>(w.block_columns - 1)));
  return layout;
}

namespace {
// Inputs that share a scale: all of a row, or a power of two that is at least `smallest`.
bool has_blocks(std::int64_t columns, std::int64_t in, std::int64_t smallest) {
  const bool power_of_two = columns > 0 && (columns & (columns - 1)) == 0;
  return columns >= in || (power_of_two && columns >= smallest);
}
}  // namespace

bool has_vector_groups(const WeightView& w, std::int64_t smallest) {
  const bool integers = w.kind == WeightKind::int4 || w.kind == WeightKind::i8;
  const bool floats = w.kind == WeightKind::f8_e4m3 || w.kind == WeightKind::f4_e2m1;
  if (!integers && !floats) return false;
  if (!has_scales(w)) return true;
  if (floats && w.zero_points != nullptr) return false;
  return has_blocks(w.block_columns, w.in, smallest);
}

bool has_integer_products(const WeightView& w) {
  using Scales = InputRounding::Scales;
  const InputRounding& inputs = w.inputs;
  if (w.kind != WeightKind::i8 || !has_scales(w) || w.in == 0) return false;
  if (inputs.scales == Scales::none || inputs.type != DType::i8) return false;
  if (inputs.zero != std::nearbyint(inputs.zero) || std::abs(inputs.zero) > 128) return false;
  return has_blocks(w.block_columns, w.in, integer_block) &&
         (inputs.scales != Scales::row_block ||
          (inputs.first == 0 && has_blocks(inputs.columns, w.in, integer_block)));
}

void gemm_tile(InstructionSet set, const GemmTile& tile) {
  const bool integers = has_integer_products(tile.w);
  const bool bf16_pairs = !tile.exact && tile.x_type == DType::bf16 &&
                          tile.w.kind == WeightKind::bf16 && is_plain(tile.w) &&
                          tile.w.inputs.scales == InputRounding::Scales::none;
  switch (set) {
    case InstructionSet::plain:
      return gemm_tile_plain(tile);
    case InstructionSet::avx2:
      return gemm_tile_avx2(tile);
    case InstructionSet::avx512:
      return gemm_tile_avx512(tile);
    case InstructionSet::avx512_vnni:
      return integers ? gemm_tile_avx512_vnni(tile) : gemm_tile_avx512(tile);
    case InstructionSet::avx512_bf16:
      if (bf16_pairs) return gemm_tile_avx512_bf16(tile);
      return integers ? gemm_tile_avx512_vnni(tile) : gemm_tile_avx512(tile);
  }
  MOTLEY_CHECK(false, "an instruction set that has kernels");
}

namespace {
// Piece by piece, whose results then go to their inputs' places.
void ordered_transposed_tile(InstructionSet set, const TransposedTile& tile) {
  constexpr std::int64_t columns = 256;
  constexpr std::int64_t rows = 16;
  // Only the part that is written is read. NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
  alignas(64) std::array<float, rows * columns> results;
  const std::int64_t x_row_bytes = tile.x_stride * (tile.x_type == DType::f32 ? 4 : 2);
  TransposedTile part = tile;
  part.w.input_order = nullptr;
  part.y = results.data();
  part.y_stride = columns;
  part.y_rows = nullptr;
  part.add = false;
  for (std::int64_t m = 0; m < tile.rows; m += rows) {
    part.rows = std::min(rows, tile.rows - m);
    if (tile.x_rows != nullptr) {
      part.x_rows = tile.x_rows + m;
    } else {
      part.x = static_cast<const std::byte*>(tile.x) + m * x_row_bytes;
    }
    for (part.in_begin = tile.in_begin; part.in_begin < tile.in_end; part.in_begin = part.in_end) {
      part.in_end = std::min(part.in_begin + columns, tile.in_end);
      transposed_tile(set, part);
      for (std::int64_t i = 0; i < part.rows; ++i) {
        const std::int64_t row = tile.y_rows != nullptr ? tile.y_rows[m + i] : m + i;
        float* const to = tile.y + row * tile.y_stride - tile.in_begin;
        const float* from = results.data() + i * columns;
        for (std::int64_t k = part.in_begin; k < part.in_end; ++k, ++from) {
          float& number = to[tile.w.input_order[k]];
          number = tile.add ? number + *from : *from;
        }
      }
    }
  }
}
}  // namespace

void transposed_tile(InstructionSet set, const TransposedTile& tile) {
  if (tile.w.input_order != nullptr) return ordered_transposed_tile(set, tile);
  switch (set) {
    case InstructionSet::plain:
      return transposed_tile_plain(tile);
    case InstructionSet::avx2:
      return transposed_tile_avx2(tile);
    case InstructionSet::avx512:
    case InstructionSet::avx512_vnni:
    case InstructionSet::avx512_bf16:
      return transposed_tile_avx512(tile);
  }
  MOTLEY_CHECK(false, "an instruction set that has kernels");
}

void expand_tile(InstructionSet set, const ExpandTile& tile) {
  MOTLEY_CHECK(tile.padded % 8 == 0, "ranks in eights");
  MOTLEY_CHECK(
      tile.b_type != DType::f8_e4m3 || (tile.b_scales != nullptr && tile.padded <= most_f8_ranks),
      "rows of FP8 with their scales");
  switch (set) {
    case InstructionSet::plain:
      return expand_tile_plain(tile);
    case InstructionSet::avx2:
      return expand_tile_avx2(tile);
    case InstructionSet::avx512:
    case InstructionSet::avx512_vnni:
    case InstructionSet::avx512_bf16:
      return expand_tile_avx512(tile);
  }
  MOTLEY_CHECK(false, "an instruction set that has kernels");
}

void gemm_tile(const GemmTile& tile) { gemm_tile(current_instruction_set(), tile); }
void transposed_tile(const TransposedTile& tile) {
  transposed_tile(current_instruction_set(), tile);
}
void expand_tile(const ExpandTile& tile) { expand_tile(current_instruction_set(), tile); }

}  // namespace motley::kernels::cpu
