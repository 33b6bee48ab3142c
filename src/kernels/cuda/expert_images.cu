#include "kernels/cuda/expert_images.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;

// Where image row `row` of gate_up comes from.
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
  void* image;
};

__device__ const WeightView& source_of(const PackMatrix& p, int expert, int image_row, int& row) {
  row = image_row;
  if (p.second == nullptr) return p.first[expert];
  const SourceRow from = gate_up_row(image_row);
  row = from.row;
  return from.up ? p.second[expert] : p.first[expert];
}

// A block: one row of the image.
__global__ void __launch_bounds__(threads) pack_bf16(PackMatrix p) {
  wait_for_previous_grid();
  const int expert = static_cast<int>(blockIdx.x);
  for (int image_row = static_cast<int>(blockIdx.y); image_row < p.rows;
       image_row += static_cast<int>(gridDim.y)) {
    int row = 0;
    const WeightView& w = source_of(p, expert, image_row, row);
    const auto* const from = static_cast<const std::uint16_t*>(w.data) + w.in * row;
    auto* const to = static_cast<std::uint16_t*>(p.image) +
                     (static_cast<std::size_t>(expert) * p.rows + image_row) * p.columns;
    for (int k = static_cast<int>(threadIdx.x); k < p.columns; k += threads) to[k] = from[k];
  }
}

// A block: blobs of one expert, one after the other.
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
    auto* const to = static_cast<unsigned char*>(p.image) +
                     (static_cast<std::size_t>(expert) * row_pairs * groups * 2 + blob) * bytes;
    for (int i = static_cast<int>(threadIdx.x); i < 1024; i += threads) {
      const int t = i % 128;
      const int step = i / 128;
      std::uint32_t word = 0;
      for (int j = 0; j < 8; ++j) {
        const int image_row = first_row + 16 * (t / 32) + t % 32 / 4 + 8 * (j % 2);
        const int k = first_k + 16 * step + 2 * (t % 4) + 8 * (j % 4 / 2) + j / 4;
        std::uint32_t code = 8;
        if (image_row < p.rows && k < p.columns) {
          int row = 0;
          const WeightView& w = source_of(p, expert, image_row, row);
          const unsigned byte =
              static_cast<const unsigned char*>(w.data)[(w.in + 1) / 2 * row + k / 2];
          code = k % 2 == 0 ? byte & 15U : byte >> 4;
        }
        word |= code << (4 * j);
      }
      *reinterpret_cast<std::uint32_t*>(to + step / 4 * 2048 + t * 16 + step % 4 * 4) = word;
    }
    for (int i = static_cast<int>(threadIdx.x); i < 64 * p.scales; i += threads) {
      const int image_row = first_row + i % 64;
      const int k = first_k + i / 64 * (128 / p.scales);
      float scale = 0;
      if (image_row < p.rows && k < p.columns) {
        int row = 0;
        const WeightView& w = source_of(p, expert, image_row, row);
        const std::int64_t columns = (w.in + w.block_columns - 1) / w.block_columns;
        scale = w.scales[columns * row + k / w.block_columns];
      }
      reinterpret_cast<Bf16*>(to + 4096)[i] = __float2bfloat16(scale);
    }
  }
}

int even_k_blocks(int in) { return (in + 127) / 128 * 2; }
int image_blocks(int image_rows) { return (image_rows + 255) / 256 * 4; }

__device__ Bf16 factor_a(const PackDelta& p, int split, int column, int k) {
  const int which = column < split ? 0 : 1;
  const int r = column - (which == 0 ? 0 : split);
  if (r >= p.rank[which] || k >= p.in || (which == 1 && p.shared_a != 0))
    return __float2bfloat16(0.0F);
  return static_cast<const Bf16*>(p.a[which])[static_cast<std::size_t>(r) * p.in + k];
}

__device__ Bf16 factor_b(const PackDelta& p, int split, int image_row, int column) {
  int which = 0;
  int row = image_row;
  if (p.gate_up != 0) {
    const SourceRow from = gate_up_row(image_row);
    which = from.up ? 1 : 0;
    row = from.row;
  }
  const int r = column - (which == 1 && p.shared_a == 0 ? split : 0);
  if (row >= p.out || r < 0 || r >= p.rank[which] || (which == 0 && column >= split))
    return __float2bfloat16(0.0F);
  return static_cast<const Bf16*>(p.b[which])[static_cast<std::size_t>(row) * p.padded[which] + r];
}

// Blocks (item, part): the parts share an item's elements.
__global__ void __launch_bounds__(threads) pack_factors(const PackDelta* items) {
  wait_for_previous_grid();
  const PackDelta p = items[blockIdx.x];
  const int split = (p.rank[0] + 7) / 8 * 8;
  const int rank = (split + (p.shared_a != 0 ? 0 : (p.rank[1] + 7) / 8 * 8) + 15) / 16 * 16;
  const auto first = static_cast<std::int64_t>(blockIdx.y) * threads + threadIdx.x;
  const auto stride = static_cast<std::int64_t>(gridDim.y) * threads;
  const std::int64_t columns = std::int64_t{(p.in + 127) / 128} * 128;
  if (p.a_image != nullptr) {
    for (std::int64_t i = first; i < rank * columns; i += stride) {
      const int column = static_cast<int>(i / columns);
      const int k = static_cast<int>(i % columns);
      const int rows = min(32, rank - column / 32 * 32);
      auto* const to = static_cast<unsigned char*>(p.a_image) + column / 32 * 32 * columns * 2 +
                       std::int64_t{k / 64} * rows * 128;
      *reinterpret_cast<Bf16*>(to +
                               swizzled(static_cast<std::uint32_t>(column % 32),
                                        static_cast<std::uint32_t>(k % 64 / 8), 128) +
                               k % 8 * 2) = factor_a(p, split, column, k);
    }
  }
  if (p.b_image != nullptr) {
    const int image_rows = p.gate_up != 0 ? 2 * p.out : p.out;
    const std::int64_t rows = std::int64_t{(image_rows + 255) / 256} * 256;
    for (std::int64_t i = first; i < rows * rank; i += stride) {
      const int row = static_cast<int>(i / rank);
      const int column = static_cast<int>(i % rank);
      auto* const to = static_cast<unsigned char*>(p.b_image) +
                       (std::int64_t{row / 64} * (rank / 16) + column / 16) * 2048;
      *reinterpret_cast<Bf16*>(to +
                               swizzled(static_cast<std::uint32_t>(row % 64),
                                        static_cast<std::uint32_t>(column % 16 / 8), 32) +
                               column % 8 * 2) = factor_b(p, split, row, column);
    }
  }
}

Result<void> pack(const PackExperts& p, const PackMatrix& matrix, StreamHandle stream) {
  const LaunchShape shape{
      .grid = static_cast<unsigned>(p.shape.experts), .grid_y = 256, .threads = threads};
  if (p.format == ExpertFormat::bf16)
    return launch("the packing of bf16 experts", pack_bf16, shape, stream, matrix);
  return launch("the packing of int4 experts", pack_int4, shape, stream, matrix);
}

}  // namespace

std::size_t expert_image_bytes(ExpertFormat format, int scales_per_128, int experts, int rows,
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
                        .image = params.gate_up_image},
                       stream));
  return pack(params,
              {.first = params.down,
               .second = nullptr,
               .rows = shape.hidden,
               .columns = shape.intermediate,
               .scales = params.scales_per_128,
               .blob_bytes = blob_bytes(params.scales_per_128),
               .image = params.down_image},
              stream);
}

std::size_t packed_a_bytes(int packed_rank, int in) {
  return static_cast<std::size_t>(packed_rank) * static_cast<std::size_t>(even_k_blocks(in)) * 128;
}

std::size_t packed_b_bytes(int packed_rank, int image_rows) {
  return static_cast<std::size_t>(packed_rank) *
         static_cast<std::size_t>(image_blocks(image_rows)) * 128;
}

Result<void> pack_deltas(const PackDelta* items, int count, StreamHandle stream) {
  return launch("the packing of an adapter", pack_factors,
                {.grid = static_cast<unsigned>(count), .grid_y = 16, .threads = threads}, stream,
                items);
}

}  // namespace motley::kernels::cuda
