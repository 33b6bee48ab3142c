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
  BlobLayout blob;
  void* packed;
  float* row_scales;
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

// The code of element (row, k), as it is stored.
__device__ std::uint32_t code_of(const WeightView& w, int row, int k, int bits) {
  const auto* const bytes = static_cast<const unsigned char*>(w.data);
  if (bits == 8) return bytes[w.in * row + k];
  const unsigned byte = bytes[(w.in + 1) / 2 * row + k / 2];
  return k % 2 == 0 ? byte & 15U : byte >> 4;
}

// A row's scale for the inputs from k on, and its zero point.
struct PackedScale {
  const WeightView& w;
  std::int64_t at;

  __device__ PackedScale(const WeightView& weight, int row, int k)
      : w(weight), at(row / weight.block_rows * weight.groups() + k / weight.block_columns) {}

  // In its own type if that has this width, else as float32.
  __device__ void put(unsigned char* to, const BlobLayout& blob) const {
    const int bytes = blob.scale_bytes;
    if (bytes == 4) {
      *reinterpret_cast<float*>(to) = scale_at(w, at) * w.scale_factor;
    } else if (bytes == 2) {
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<const std::uint16_t*>(w.scales)[at];
    } else {
      *to = static_cast<const unsigned char*>(w.scales)[at] + blob.scale_offset;
    }
  }
  __device__ unsigned char zero() const {
    return w.zero_points != nullptr
               ? w.zero_points[at]
               : static_cast<unsigned char>(middle_code(w.kind) + zero_offset(w.kind));
  }
};

// The 16 bytes of codes of thread t of a warpgroup, from k16 step `step` on.
__device__ uint4 pack_codes(const PackMatrix& p, int expert, int first_row, int first_k, int t) {
  const int bits = p.blob.bits;
  const int steps = 16 / bits;  // k16 steps
  std::uint32_t words[4] = {};
  for (int i = 0; i < 8 * steps; ++i) {
    const int j = i % 8;
    const int packed_row = first_row + 16 * (t / 32) + t % 32 / 4 + 8 * (j % 2);
    const int k = first_k + i / 8 * 16 + 2 * (t % 4) + 8 * (j % 4 / 2) + j / 4;
    const bool is_int4 = bits == 4 && p.first[expert].kind == WeightKind::int4;
    std::uint32_t code = is_int4 ? 8 : 0;
    if (packed_row < p.rows && k < p.columns) {
      int row = 0;
      const WeightView& w = source_of(p, expert, packed_row, row);
      code = code_of(w, row, k, bits);
    }
    words[i * bits / 32] |= code << (i * bits % 32);
  }
  return {words[0], words[1], words[2], words[3]};
}

// The 16 bytes of codes of a row from first_k on.
__device__ uint4 pack_row_codes(const PackMatrix& p, int expert, int packed_row, int first_k) {
  std::uint32_t words[4] = {};
  if (packed_row >= p.rows) return {};
  int row = 0;
  const WeightView& w = source_of(p, expert, packed_row, row);
  for (int i = 0; i < 16 && first_k + i < p.columns; ++i)
    words[i / 4] |= code_of(w, row, first_k + i, 8) << (i % 4 * 8);
  return {words[0], words[1], words[2], words[3]};
}

__device__ void pack_scales(const PackMatrix& p, int expert, int first_row, int first_k,
                            unsigned char* blob) {
  const int rows = p.blob.rows;
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.blob.scales; i += threads) {
    const int packed_row = first_row + i % rows;
    const int k = first_k + i / rows * (128 / p.blob.scales);
    const int at = p.blob.scale_at(i % rows, i / rows);
    unsigned char* const scale = blob + p.blob.code_bytes() + at * p.blob.scale_bytes;
    unsigned char* const zero = blob + p.blob.zeros_at() + at;
    if (packed_row < p.rows && k < p.columns) {
      int row = 0;
      const PackedScale from(source_of(p, expert, packed_row, row), row, k);
      from.put(scale, p.blob);
      if (p.blob.zero_points) *zero = from.zero();
    } else {
      for (int byte = 0; byte < p.blob.scale_bytes; ++byte) scale[byte] = 0;
      if (p.blob.zero_points) *zero = 8;
    }
  }
}

// A block packs blobs of one expert, one after the other.
__global__ void __launch_bounds__(threads) pack_blobs(PackMatrix p) {
  wait_for_previous_grid();
  const int expert = static_cast<int>(blockIdx.x);
  const int row_pairs = (p.rows + 127) / 128;
  const int groups = (p.columns + 127) / 128;
  const int bytes = p.blob.bytes();
  const int of_pair = 128 / p.blob.rows;
  const int blobs = row_pairs * groups * of_pair;
  for (int blob = static_cast<int>(blockIdx.y); blob < blobs; blob += static_cast<int>(gridDim.y)) {
    const int first_row = blob / of_pair / groups * 128 + blob % of_pair * p.blob.rows;
    const int first_k = blob / of_pair % groups * 128;
    auto* const to = static_cast<unsigned char*>(p.packed) +
                     (static_cast<std::size_t>(expert) * blobs + blob) * bytes;
    auto* const codes = reinterpret_cast<uint4*>(to);
    for (int i = static_cast<int>(threadIdx.x); i < p.blob.code_bytes() / 16; i += threads) {
      if (p.blob.rows == 128) {
        const int row = i / 8;
        codes[row * 8 + (i % 8 ^ row % 8)] =
            pack_row_codes(p, expert, first_row + row, first_k + i % 8 * 16);
      } else {
        codes[i] =
            pack_codes(p, expert, first_row, first_k + i / 128 * (256 / p.blob.bits), i % 128);
      }
    }
    pack_scales(p, expert, first_row, first_k, to);
  }
  if (!p.blob.row_scales) return;
  for (int packed_row = static_cast<int>(blockIdx.y * threads + threadIdx.x); packed_row < p.rows;
       packed_row += static_cast<int>(gridDim.y) * threads) {
    int row = 0;
    const WeightView& w = source_of(p, expert, packed_row, row);
    p.row_scales[static_cast<std::size_t>(expert) * p.rows + packed_row] = w.scale_factor;
  }
}

Result<void> pack(const PackExperts& p, const PackMatrix& matrix, StreamHandle stream) {
  const LaunchShape shape{
      .grid = static_cast<unsigned>(p.shape.experts), .grid_y = 256, .threads = threads};
  if (p.format == ExpertFormat::bf16)
    return try_launch("the packing of bf16 experts", pack_bf16, shape, stream, matrix);
  return try_launch("the packing of experts", pack_blobs, shape, stream, matrix);
}

}  // namespace

std::size_t packed_expert_bytes(ExpertFormat format, int experts, int rows, int columns) {
  const auto all = static_cast<std::size_t>(experts);
  if (format == ExpertFormat::bf16)
    return all * static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * 2;
  const BlobLayout blob = blob_layout(format);
  const int blobs = (rows + 127) / 128 * (128 / blob.rows) * ((columns + 127) / 128);
  return all * static_cast<std::size_t>(blobs) * static_cast<std::size_t>(blob.bytes());
}

Result<void> pack_experts(const PackExperts& params, StreamHandle stream) {
  const ExpertShape& shape = params.shape;
  MOTLEY_TRY_VOID(pack(params,
                       {.first = params.gate,
                        .second = params.up,
                        .rows = 2 * shape.intermediate,
                        .columns = shape.hidden,
                        .blob = blob_layout(params.format),
                        .packed = params.packed_gate_up,
                        .row_scales = params.gate_up_rows},
                       stream));
  return pack(params,
              {.first = params.down,
               .second = nullptr,
               .rows = shape.hidden,
               .columns = shape.down_columns(),
               .blob = blob_layout(params.format),
               .packed = params.packed_down,
               .row_scales = params.down_rows},
              stream);
}

}  // namespace motley::kernels::cuda
