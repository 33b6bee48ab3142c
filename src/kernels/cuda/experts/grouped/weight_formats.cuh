// The weight formats of the grouped GEMMs, as traits for the load stage and the products. Both are
// weight-only: tokens stay bf16.
#pragma once

#include "kernels/cuda/experts/packed_layout.h"
#include "kernels/cuda/primitives/weight_format.cuh"

namespace motley::kernels::cuda::grouped {

struct Bf16Weights {
  static constexpr ExpertFormat format = ExpertFormat::bf16;
  static constexpr int bits = 16;
  static constexpr OperandSource source = OperandSource::shared_memory;
  static constexpr int stage_k = 64;
  static constexpr int scales_per_128 = 0;
  static constexpr bool has_zero_points = false;
  static constexpr bool has_column_index = false;
  static constexpr int block_bytes = 8192;  // 64 rows of a stage
};

// (code - 8) times a bf16 scale.
template <int scales>
struct Int4Weights {
  static constexpr ExpertFormat format = ExpertFormat::int4;
  static constexpr int bits = 4;
  static constexpr OperandSource source = OperandSource::registers;
  static constexpr int stage_k = 128;
  static constexpr int scales_per_128 = scales;
  static constexpr bool has_zero_points = false;
  static constexpr bool has_column_index = false;
  static constexpr int block_bytes = blob_bytes(scales);
};

template <class Format>
concept PackedFormat = requires {
  Format::format;
  Format::bits;
  Format::source;
  Format::stage_k;
  Format::scales_per_128;
  Format::has_zero_points;
  Format::has_column_index;
  Format::block_bytes;
} && Format::stage_k % 64 == 0 && Format::block_bytes % 16 == 0;

}  // namespace motley::kernels::cuda::grouped
