#include "kernels/cpu/gemm.h"

#include <cstring>

#include "base/check.h"
#include "base/number_types.h"
#include "kernels/cpu/gemm_variants.h"
#include "kernels/cpu/instruction_set.h"

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

float decoded(const WeightView& w, std::int64_t o, std::int64_t k) {
  const std::int64_t index = o * w.in + k;
  switch (w.kind) {
    case WeightKind::f32:
      return element<float>(w.data, index);
    case WeightKind::f16:
      return element<f16>(w.data, index).to_float();
    case WeightKind::bf16:
      return element<bf16>(w.data, index).to_float();
    case WeightKind::f8_block:
    case WeightKind::int4_group:
      break;
  }
  const std::int64_t scales_a_row = (w.in + w.block_columns - 1) / w.block_columns;
  const float scale = w.scales[o / w.block_rows * scales_a_row + k / w.block_columns];
  if (w.kind == WeightKind::f8_block) return element<f8_e4m3>(w.data, index).to_float() * scale;
  const auto byte = element<std::uint8_t>(w.data, o * ((w.in + 1) / 2) + k / 2);
  const int code = k % 2 == 0 ? byte & 15 : byte >> 4;
  return static_cast<float>(code - 8) * scale;
}

}  // namespace

void decode_inputs(const WeightView& w, std::int64_t o, std::int64_t begin, std::int64_t count,
                   float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = decoded(w, o, begin + i);
}

void decode_row(const WeightView& w, std::int64_t o, std::int64_t begin, std::span<float> out) {
  decode_inputs(w, o, begin, static_cast<std::int64_t>(out.size()), out.data());
}

bool has_vector_blocks(const WeightView& w, int f8_step) {
  const std::int64_t block = w.block_columns;
  const bool power_of_two = block > 0 && (block & (block - 1)) == 0;
  return power_of_two && block >= (w.kind == WeightKind::int4_group ? 8 : f8_step);
}

void gemm_tile(InstructionSet set, const GemmTile& tile) {
  switch (set) {
    case InstructionSet::plain:
      return gemm_tile_plain(tile);
    case InstructionSet::avx2:
      return gemm_tile_avx2(tile);
    case InstructionSet::avx512:
      return gemm_tile_avx512(tile);
    case InstructionSet::avx512_bf16:
      if (tile.exact || tile.x_type != DType::bf16 || tile.w.kind != WeightKind::bf16)
        return gemm_tile_avx512(tile);
      return gemm_tile_avx512_bf16(tile);
  }
  MOTLEY_CHECK(false, "an instruction set that has kernels");
}

void transposed_tile(InstructionSet set, const TransposedTile& tile) {
  switch (set) {
    case InstructionSet::plain:
      return transposed_tile_plain(tile);
    case InstructionSet::avx2:
      return transposed_tile_avx2(tile);
    case InstructionSet::avx512:
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
    case InstructionSet::avx512_bf16:
      return expand_tile_avx512(tile);
  }
  MOTLEY_CHECK(false, "an instruction set that has kernels");
}

namespace {
InstructionSet best_set() {
  static const InstructionSet best = available_instruction_sets().back();
  return best;
}
}  // namespace

void gemm_tile(const GemmTile& tile) { gemm_tile(best_set(), tile); }
void transposed_tile(const TransposedTile& tile) { transposed_tile(best_set(), tile); }
void expand_tile(const ExpandTile& tile) { expand_tile(best_set(), tile); }

}  // namespace motley::kernels::cpu
