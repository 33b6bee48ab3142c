#include "kernels/cuda/experts/packed_layout.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/weight_decode.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;

// The source of packed row `row` of gate_up.
struct SourceRow {
  bool up;
  int row;
};
__device__ SourceRow gate_up_row(int row) {
  return {.up = row % 16 >= 8, .row = row / 16 * 8 + row % 8};
}

struct PackMatrix {
  const WeightView* first;   // gate, or down
  const WeightView* second;  // up, or null: rows stay in order
  int rows;
  int columns;
  int scales;
  int blob_bytes;
  void* packed;
};

__device__ const WeightView& source_of(const PackMatrix& p, int expert, int packed_row, int& row) {
  row = packed_row;
  if (p.second == nullptr) return p.first[expert];
  const SourceRow from = gate_up_row(packed_row);
  row = from.row;
  return from.up ? p.second[expert] : p.first[expert];
}

// A block packs one row.
__global__ void __launch_bounds__(threads) pack_bf16(PackMatrix p) {
  wait_for_previous_grid();
  const int expert = static_cast<int>(blockIdx.x);
  for (int packed_row = static_cast<int>(blockIdx.y); packed_row < p.rows;
       packed_row += static_cast<int>(gridDim.y)) {
    int row = 0;
    const WeightView& w = source_of(p, expert, packed_row, row);
    auto* const to = static_cast<Bf16*>(p.packed) +
                     (static_cast<std::size_t>(expert) * p.rows + packed_row) * p.columns;
    for (int k = static_cast<int>(threadIdx.x); k < p.columns; k += threads)
      to[k] = __float2bfloat16(decode(w, row, k));
  }
}

// A block packs blobs of one expert, one after the other.
__global__ void __launch_bounds__(threads) pack_int4(PackMatrix p) {
  wait_for_previous_grid();
  const int expert = static_cast<int>(blockIdx.x);
  const int row_pairs = (p.rows + 127) / 128;
  const int groups = (p.columns + 127) / 128;
  const int bytes = p.blob_bytes;
  for (int blob = static_cast<int>(blockIdx.y); blob < row_pairs * groups * 2;
       blob += static_cast<int>(gridDim.y)) {
    const int first_row = blob / 2 / groups * 128 + blob % 2 * 64;
    const int first_k = blob / 2 % groups * 128;
    auto* const to = static_cast<unsigned char*>(p.packed) +
                     (static_cast<std::size_t>(expert) * row_pairs * groups * 2 + blob) * bytes;
    for (int i = static_cast<int>(threadIdx.x); i < 1024; i += threads) {
      const int t = i % 128;
      const int step = i / 128;
      std::uint32_t word = 0;
      for (int j = 0; j < 8; ++j) {
        const int packed_row = first_row + 16 * (t / 32) + t % 32 / 4 + 8 * (j % 2);
        const int k = first_k + 16 * step + 2 * (t % 4) + 8 * (j % 4 / 2) + j / 4;
        std::uint32_t code = 8;
        if (packed_row < p.rows && k < p.columns) {
          int row = 0;
          const WeightView& w = source_of(p, expert, packed_row, row);
          const unsigned byte =
              static_cast<const unsigned char*>(w.data)[(w.in + 1) / 2 * row + k / 2];
          code = k % 2 == 0 ? byte & 15U : byte >> 4;
        }
        word |= code << (4 * j);
      }
      *reinterpret_cast<std::uint32_t*>(to + step / 4 * 2048 + t * 16 + step % 4 * 4) = word;
    }
    for (int i = static_cast<int>(threadIdx.x); i < 64 * p.scales; i += threads) {
      const int packed_row = first_row + i % 64;
      const int k = first_k + i / 64 * (128 / p.scales);
      float scale = 0;
      if (packed_row < p.rows && k < p.columns) {
        int row = 0;
        const WeightView& w = source_of(p, expert, packed_row, row);
        scale = scale_at(w, w.groups() * row + k / w.block_columns) * w.scale_factor;
      }
      reinterpret_cast<Bf16*>(to + 4096)[i] = __float2bfloat16(scale);
    }
  }
}

Result<void> pack(const PackExperts& p, const PackMatrix& matrix, StreamHandle stream) {
  const LaunchShape shape{
      .grid = static_cast<unsigned>(p.shape.experts), .grid_y = 256, .threads = threads};
  if (p.format == ExpertFormat::bf16)
    return try_launch("the packing of bf16 experts", pack_bf16, shape, stream, matrix);
  return try_launch("the packing of int4 experts", pack_int4, shape, stream, matrix);
}

}  // namespace

std::size_t packed_expert_bytes(ExpertFormat format, int scales_per_128, int experts, int rows,
                                int columns) {
  const auto all = static_cast<std::size_t>(experts);
  if (format == ExpertFormat::bf16)
    return all * static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * 2;
  const auto blobs = static_cast<std::size_t>((rows + 127) / 128 * 2 * ((columns + 127) / 128));
  return all * blobs * static_cast<std::size_t>(blob_bytes(scales_per_128));
}

Result<void> pack_experts(const PackExperts& params, StreamHandle stream) {
  const ExpertShape& shape = params.shape;
  MOTLEY_TRY_VOID(pack(params,
                       {.first = params.gate,
                        .second = params.up,
                        .rows = 2 * shape.intermediate,
                        .columns = shape.hidden,
                        .scales = params.scales_per_128,
                        .blob_bytes = blob_bytes(params.scales_per_128),
                        .packed = params.packed_gate_up},
                       stream));
  return pack(params,
              {.first = params.down,
               .second = nullptr,
               .rows = shape.hidden,
               .columns = shape.intermediate,
               .scales = params.scales_per_128,
               .blob_bytes = blob_bytes(params.scales_per_128),
               .packed = params.packed_down},
              stream);
}

}  // namespace motley::kernels::cuda
