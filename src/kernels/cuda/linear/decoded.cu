#include <algorithm>
#include <span>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

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
constexpr int vec = 8;             // numbers of a thread at a time
constexpr int vecs = 4;            // which it loads together
constexpr int step = 32 * vec;     // columns of a warp at a time
constexpr int part = vecs * step;  // of a row

// Rows of weights of one kind and width that follow each other in a panel. Divisors are 32 bits
// wide: the kernel is bound by its instructions.
struct Panel {
  struct Rows {
    WeightView w;
    int first;
    int begin;  // in the panel
    int groups;
    unsigned block_rows;
    unsigned columns;  // that share a scale
    bool by_vec;       // all of a vec do
  };
  Rows weights[decoded_max_products];
  int count;
  int rows;
  bf16* out;  // [rows, in]
};

template <WeightKind kind>
constexpr int bits_of = code_bits(kind);

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

// Codes 2 j and 2 j + 1.
template <WeightKind kind>
__device__ float2 two_codes(const Codes& codes, int j) {
  if constexpr (kind == WeightKind::f8_e4m3) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(codes.words[j / 2] >> (j % 2 * 16));
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
  } else if constexpr (kind == WeightKind::i8) {
    const std::uint32_t pair = codes.words[j / 2] >> (j % 2 * 16);
    return {static_cast<float>(static_cast<std::int8_t>(pair)),
            static_cast<float>(static_cast<std::int8_t>(pair >> 8))};
  } else {
    const std::uint32_t pair = codes.words[0] >> (8 * j);
    if constexpr (kind == WeightKind::int4)
      return {static_cast<float>(pair & 15U), static_cast<float>(pair >> 4 & 15U)};
    return {f4_e2m1{static_cast<std::uint8_t>(pair & 15U)}.to_float(),
            f4_e2m1{static_cast<std::uint8_t>(pair >> 4 & 15U)}.to_float()};
  }
}

// Scale and zero of a column, whose row's scales begin at `first`.
template <WeightKind kind>
__device__ float2 scale_of(const Panel::Rows& rows, std::int64_t first, int column) {
  const WeightView& w = rows.w;
  if (w.scales == nullptr) return {1.0F, middle_code(kind)};
  const std::int64_t at = first + static_cast<unsigned>(column) / rows.columns;
  float zero = middle_code(kind);
  if constexpr (kind == WeightKind::int4 || kind == WeightKind::i8)
    if (w.zero_points != nullptr) zero = w.zero_points[at] - zero_offset(kind);
  return {scale_at(w, at) * w.scale_factor, zero};
}

template <WeightKind kind>
__device__ void decode_vec(const Codes& codes, const Panel::Rows& rows, std::int64_t first,
                           int column, bf16* to) {
  union {
    __nv_bfloat162 pairs[vec / 2];
    uint4 all;
  } numbers;
  float2 even = scale_of<kind>(rows, first, column);
  float2 odd = even;
#pragma unroll
  for (int j = 0; j < vec / 2; ++j) {
    if (!rows.by_vec) {
      even = scale_of<kind>(rows, first, column + 2 * j);
      odd = scale_of<kind>(rows, first, column + 2 * j + 1);
    }
    const float2 code = two_codes<kind>(codes, j);
    numbers.pairs[j] = __floats2bfloat162_rn((code.x - even.y) * even.x, (code.y - odd.y) * odd.x);
  }
  *reinterpret_cast<uint4*>(to) = numbers.all;
}

// A warp decodes a part of a row.
template <WeightKind kind>
__global__ void __launch_bounds__(threads) decode_panel(const __grid_constant__ Panel p) {
  launch_dependents();
  wait_for_previous_grid();
  const auto in = static_cast<int>(p.weights[0].w.in);
  const unsigned parts = (in + part - 1) / part;
  const unsigned warp = blockIdx.x * warps + threadIdx.x / 32;
  const int place = static_cast<int>(warp / parts);
  if (place >= p.rows) return;
  int number = 0;
  for (int i = 1; i < p.count; ++i)
    if (place >= p.weights[i].begin) number = i;
  const Panel::Rows& rows = p.weights[number];
  const int row = rows.first + (place - rows.begin);
  const auto* const codes =
      static_cast<const std::uint8_t*>(rows.w.data) + std::int64_t{row} * (in * bits_of<kind> / 8);
  const bool aligned = reinterpret_cast<std::uintptr_t>(rows.w.data) % 4 == 0;
  const std::int64_t first_scale =
      std::int64_t{static_cast<unsigned>(row) / rows.block_rows} * rows.groups;
  const int first =
      static_cast<int>(warp % parts) * part + static_cast<int>(threadIdx.x % 32) * vec;
  Codes some[vecs];
#pragma unroll
  for (int i = 0; i < vecs; ++i) {
    const int column = first + i * step;
    if (column < in) some[i] = load_codes<kind>(codes + column * bits_of<kind> / 8, aligned);
  }
  bf16* const out = p.out + std::int64_t{place} * in;
#pragma unroll
  for (int i = 0; i < vecs; ++i) {
    const int column = first + i * step;
    if (column < in) decode_vec<kind>(some[i], rows, first_scale, column, out + column);
  }
}

// `begin` is where the product's rows begin in the panel.
Panel::Rows rows_of(const Linear& product, std::int64_t first, std::int64_t begin) {
  const WeightView& w = product.w;
  const bool scaled = w.scales != nullptr;
  const std::int64_t columns = scaled ? std::min(w.block_columns, w.in) : w.in;
  return {.w = w,
          .first = static_cast<int>(first),
          .begin = static_cast<int>(begin),
          .groups = scaled ? static_cast<int>(w.groups()) : 1,
          .block_rows = static_cast<unsigned>(w.block_rows),
          .columns = static_cast<unsigned>(columns),
          .by_vec = columns == w.in || columns % vec == 0};
}

template <WeightKind kind>
void launch_decode(const Panel& panel, StreamHandle stream) {
  const std::int64_t parts = (panel.weights[0].w.in + part - 1) / part;
  const auto blocks = static_cast<unsigned>((panel.rows * parts + warps - 1) / warps);
  launch("decode_panel", decode_panel<kind>, {.grid = blocks, .threads = threads}, stream, panel);
}

void decode(const Panel& panel, StreamHandle stream) {
  switch (panel.weights[0].w.kind) {
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
  for (const Linear& product : products)
    panel.weights[panel.count++] = rows_of(product, product.w_first, product.y - all.y);
  for (std::int64_t first = 0; first < all.out; first += decoded_panel_rows(all)) {
    const Linear part = decoded_part(all, panel.out, first);
    panel.rows = static_cast<int>(part.out);
    if (!one_panel) panel.weights[0].first = static_cast<int>(all.w_first + first);
    decode(panel, stream);
    library.multiply(part, false, stream);
  }
}

}  // namespace motley::kernels::cuda
