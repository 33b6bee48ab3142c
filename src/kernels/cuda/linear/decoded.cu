#include <algorithm>

#include "kernels/cuda/linear/library.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/primitives/weight_decode.cuh"

// Products of many rows with codes: a panel of the weight's rows at a time is decoded to bf16,
// rounded once, and multiplied by the library. A weight is read once, and its panels stay in L2.
namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int vec = 8;  // numbers of a thread

struct Panel {
  WeightView w;
  std::int64_t first_row;
  std::int64_t rows;
  bf16* out;  // [rows, in]
};

struct alignas(16) Numbers {
  bf16 at[vec];
};

// A scale and a zero point serve all numbers of a thread, unless groups are narrower or in an order
// of their own.
template <WeightKind kind>
__global__ void __launch_bounds__(threads) decode_panel(Panel p, bool one_group) {
  launch_dependents();
  wait_for_previous_grid();
  const WeightView& w = p.w;
  const auto vecs = static_cast<unsigned>(w.in / vec);
  const unsigned i = blockIdx.x * threads + threadIdx.x;
  const std::int64_t row = p.first_row + i / vecs;
  const std::int64_t column = i % vecs * vec;
  if (row >= p.first_row + p.rows) return;
  Numbers numbers;
  if (one_group) {
    const std::int64_t at = row / w.block_rows * w.groups() + column / w.block_columns;
    const float scale = scale_at(w, at) * w.scale_factor;
    const float zero =
        w.zero_points != nullptr ? w.zero_points[at] - zero_offset(kind) : middle_code(kind);
#pragma unroll
    for (int j = 0; j < vec; ++j)
      numbers.at[j] = narrow<bf16>((code_at<kind>(w, row, column + j, true) - zero) * scale);
  } else {
#pragma unroll
    for (int j = 0; j < vec; ++j)
      numbers.at[j] = narrow<bf16>(decode<kind>(w, row, column + j, true));
  }
  *reinterpret_cast<Numbers*>(p.out + (row - p.first_row) * w.in + column) = numbers;
}

template <WeightKind kind>
void launch_decode(const Panel& panel, StreamHandle stream) {
  const WeightView& w = panel.w;
  const bool one_group =
      w.scales != nullptr && (w.block_columns >= w.in || w.block_columns % vec == 0);
  const auto blocks = static_cast<unsigned>((panel.rows * (w.in / vec) + threads - 1) / threads);
  launch("decode_panel", decode_panel<kind>, {.grid = blocks, .threads = threads}, stream, panel,
         one_group);
}

void decode_rows(const Panel& panel, StreamHandle stream) {
  switch (panel.w.kind) {
    case WeightKind::f8_e4m3:
      return launch_decode<WeightKind::f8_e4m3>(panel, stream);
    case WeightKind::i8:
      return launch_decode<WeightKind::i8>(panel, stream);
    case WeightKind::int4:
      return launch_decode<WeightKind::int4>(panel, stream);
    case WeightKind::f4_e2m1:
      return launch_decode<WeightKind::f4_e2m1>(panel, stream);
    default:
      break;  // refused by the kernel's conditions
  }
}

}  // namespace

std::int64_t decoded_panel_rows(const Linear& p) {
  constexpr std::int64_t unit = 64;
  const std::int64_t most = decoded_panel_numbers / p.w.in;
  return std::min(p.out, most / unit * unit);
}

Linear decoded_part(const Linear& p, const void* panel, std::int64_t first) {
  Linear part = p;
  part.out = std::min(decoded_panel_rows(p), p.out - first);
  part.w = {.kind = WeightKind::bf16, .data = panel, .out = part.out, .in = p.w.in};
  part.w_rows_per_head = part.out;
  part.w_first = 0;
  part.y += first;
  return part;
}

void linear_decoded(const Linear& p, MatmulLibrary& library, StreamHandle stream) {
  if (p.rows <= 0) return;
  auto* const panel = static_cast<bf16*>(library.panel());
  for (std::int64_t first = 0; first < p.out; first += decoded_panel_rows(p)) {
    const Linear part = decoded_part(p, panel, first);
    decode_rows({.w = p.w, .first_row = p.w_first + first, .rows = part.out, .out = panel}, stream);
    library.multiply(part, false, stream);
  }
}

}  // namespace motley::kernels::cuda
