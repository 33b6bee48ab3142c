#include <algorithm>
#include <span>

#include "kernels/cuda/linear/library.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/primitives/weight_decode.cuh"

// Products of many rows with codes: a panel of the weights' rows at a time is decoded to bf16,
// rounded once, and multiplied by the library. A weight is read once, and its panels stay in L2.
namespace motley::kernels::cuda {
namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int vec = 8;  // numbers of a thread at a time

// Rows of weights of one kind and width that follow each other in a panel.
struct Panel {
  struct Part {
    WeightView w;
    std::int64_t first_row;
    std::int64_t begin;  // in the panel
  };
  Part parts[decoded_max_products];
  int count;
  std::int64_t rows;
  bf16* out;  // [rows, in]
};

template <WeightKind kind>
constexpr int bits_of = code_bits(kind);

struct alignas(16) Numbers {
  bf16 at[vec];
};

// Codes of `vec` columns: those of a byte in two words, those of half a byte in one.
struct Codes {
  std::uint32_t words[2];
};
template <WeightKind kind>
__device__ Codes load_codes(const std::uint8_t* from, bool aligned) {
  constexpr int bytes = vec * bits_of<kind> / 8;
  Codes codes{};
  if (aligned) {
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i)
      codes.words[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
  } else {
#pragma unroll
    for (int i = 0; i < bytes; ++i) codes.words[i / 4] |= std::uint32_t{from[i]} << (i % 4 * 8);
  }
  return codes;
}
template <WeightKind kind>
__device__ float code_of(const Codes& codes, int j) {
  if constexpr (bits_of<kind> == 4) {
    const std::uint32_t code = codes.words[0] >> (4 * j) & 15U;
    if constexpr (kind == WeightKind::int4) return static_cast<float>(code);
    return f4_e2m1{static_cast<std::uint8_t>(code)}.to_float();
  } else {
    const auto code = static_cast<std::uint8_t>(codes.words[j / 4] >> (j % 4 * 8));
    if constexpr (kind == WeightKind::f8_e4m3) return f8_value(code);
    return static_cast<float>(static_cast<std::int8_t>(code));
  }
}

// A warp decodes a row. A scale and a zero point serve all numbers of a thread, unless groups are
// narrower.
template <WeightKind kind>
__global__ void __launch_bounds__(threads) decode_panel(const Panel p) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t place = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32;
  if (place >= p.rows) return;
  int part = 0;
  for (int i = 1; i < p.count; ++i)
    if (place >= p.parts[i].begin) part = i;
  const WeightView& w = p.parts[part].w;
  const std::int64_t row = p.parts[part].first_row + (place - p.parts[part].begin);
  const auto in = static_cast<int>(w.in);
  const auto* const codes = static_cast<const std::uint8_t*>(w.data) + row * in * bits_of<kind> / 8;
  const bool aligned = reinterpret_cast<std::uintptr_t>(w.data) % 4 == 0;
  const std::int64_t first_scale = w.scales == nullptr ? 0 : row / w.block_rows * w.groups();
  const auto columns = static_cast<int>(min(w.block_columns, w.in));
  const bool scaled = w.scales != nullptr;
  const auto scale_of = [&](int column) {
    return scaled ? scale_at(w, first_scale + column / columns) * w.scale_factor : 1.0F;
  };
  const auto zero_of = [&](int column) {
    return w.zero_points != nullptr
               ? w.zero_points[first_scale + column / columns] - zero_offset(kind)
               : middle_code(kind);
  };
  const bool one_group = !scaled || columns >= in || columns % vec == 0;
  bf16* const out = p.out + place * in;
#pragma unroll 4
  for (int column = static_cast<int>(threadIdx.x % 32) * vec; column < in; column += 32 * vec) {
    const Codes some = load_codes<kind>(codes + column * bits_of<kind> / 8, aligned);
    float scale = scale_of(column);
    float zero = zero_of(column);
    Numbers numbers;
#pragma unroll
    for (int j = 0; j < vec; ++j) {
      if (!one_group && j > 0) {
        scale = scale_of(column + j);
        zero = zero_of(column + j);
      }
      numbers.at[j] = narrow<bf16>((code_of<kind>(some, j) - zero) * scale);
    }
    *reinterpret_cast<Numbers*>(out + column) = numbers;
  }
}

template <WeightKind kind>
void launch_decode(const Panel& panel, StreamHandle stream) {
  const auto blocks = static_cast<unsigned>((panel.rows + warps - 1) / warps);
  launch("decode_panel", decode_panel<kind>, {.grid = blocks, .threads = threads}, stream, panel);
}

void decode(const Panel& panel, StreamHandle stream) {
  switch (panel.parts[0].w.kind) {
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

Linear decoded_together(std::span<const Linear> products) {
  Linear all = products[0];
  all.out = products.back().y + products.back().out - all.y;
  return all;
}

void linear_decoded(std::span<const Linear> products, MatmulLibrary& library, StreamHandle stream) {
  const Linear all = decoded_together(products);
  if (all.rows <= 0) return;
  Panel panel{};
  panel.out = static_cast<bf16*>(library.panel());
  // Several products are one panel.
  const bool one_panel = products.size() > 1;
  for (const Linear& product : products) {
    panel.parts[panel.count++] = {
        .w = product.w, .first_row = product.w_first, .begin = product.y - all.y};
  }
  for (std::int64_t first = 0; first < all.out; first += decoded_panel_rows(all)) {
    const Linear part = decoded_part(all, panel.out, first);
    panel.rows = part.out;
    if (!one_panel) panel.parts[0].first_row = all.w_first + first;
    decode(panel, stream);
    library.multiply(part, false, stream);
  }
}

}  // namespace motley::kernels::cuda
