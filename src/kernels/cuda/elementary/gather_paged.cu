#include <algorithm>

#include <cuda_bf16.h>

#include "base/check.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/find_sequence.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/kv_codes.h"

namespace motley::kernels::cuda {
namespace {

// One warp per row.
constexpr int gather_warps = 4;
template <class Piece>
__global__ void __launch_bounds__(32 * gather_warps) gather_rows(GatherPaged p) {
  launch_dependents();
  const int row = static_cast<int>(blockIdx.x) * gather_warps + static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= p.rows) return wait_for_previous_grid();
  // Lengths and pages were written before the step began.
  const int sequence = find_sequence(p.begin, static_cast<int>(p.sequences.count), row);
  const std::int64_t position = row - p.begin[sequence];
  const std::int64_t page =
      p.table.pages[sequence * p.table.stride + position / p.table.page_tokens];
  const std::int64_t number = p.pages.type == DType::f32 ? sizeof(float) : sizeof(__nv_bfloat16);
  const auto* const from = reinterpret_cast<const Piece*>(
      static_cast<const std::byte*>(p.pages.data) +
      (page * p.pages.page_stride + position % p.table.page_tokens * p.pages.token_stride) *
          number);
  auto* const to =
      reinterpret_cast<Piece*>(static_cast<std::byte*>(p.out) + row * p.out_stride * number);
  const int pieces = static_cast<int>(p.width * number / static_cast<std::int64_t>(sizeof(Piece)));
  wait_for_previous_grid();
  for (int i = lane; i < pieces; i += 32) to[i] = from[i];
  if (p.labels != nullptr && lane == 0)
    p.out_labels[row] = p.labels[p.sequences.seq_begin[sequence]];
}

// Codes and their tail as bf16, 4 numbers per lane if `whole`.
template <bool whole>
__global__ void __launch_bounds__(32 * gather_warps) gather_codes(GatherPaged p) {
  launch_dependents();
  const int row = static_cast<int>(blockIdx.x) * gather_warps + static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= p.rows) return wait_for_previous_grid();
  const int sequence = find_sequence(p.begin, static_cast<int>(p.sequences.count), row);
  const std::int64_t position = row - p.begin[sequence];
  const std::int64_t page =
      p.table.pages[sequence * p.table.stride + position / p.table.page_tokens];
  const std::int64_t token = position % p.table.page_tokens;
  const auto place_in = [&](const Pages& pages) {
    return page * pages.page_stride + token * pages.token_stride;
  };
  const auto* const codes = static_cast<const f8_e4m3*>(p.pages.data) + place_in(p.pages);
  const auto* const tail = static_cast<const bf16*>(p.tail.pages.data) + place_in(p.tail.pages);
  const std::uint8_t* const exponent = p.pages.exponents + page * p.pages.page_stride + token;
  auto* const to = static_cast<bf16*>(p.out) + row * p.out_stride;
  const auto own = static_cast<int>(p.width - p.tail.width);
  wait_for_previous_grid();
  const float factor = kv_power(*exponent) * kv_factor(p.pages.fixed_scale);
  for (int at = 4 * lane; at < own; at += 128) {
    PackedVec4<f8_e4m3> four{};
    if constexpr (whole) {
      four = *reinterpret_cast<const PackedVec4<f8_e4m3>*>(codes + at);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (at + i < own) four.at[i] = codes[at + i];
    }
    Vec4 vec4;
#pragma unroll
    for (int i = 0; i < 4; ++i) vec4.at[i] = four.at[i].to_float() * factor;
    store_vec4<whole>(to, at, own, vec4);
  }
  for (int i = lane; i < p.tail.width; i += 32) to[own + i] = tail[i];
  if (p.labels != nullptr && lane == 0)
    p.out_labels[row] = p.labels[p.sequences.seq_begin[sequence]];
}

bool aligned(const void* data, DType type, std::initializer_list<std::int64_t> strides) {
  const std::int64_t each = type == DType::f32 ? 4 : 2;
  const auto fits = [&](std::int64_t stride) { return stride * each % 16 == 0; };
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && std::ranges::all_of(strides, fits);
}

}  // namespace

void gather_paged(const GatherPaged& p, StreamHandle stream) {
  if (p.rows <= 0) return;
  const bool vector =
      p.width % 8 == 0 && aligned(p.out, p.pages.type, {p.out_stride}) &&
      aligned(p.pages.data, p.pages.type, {p.pages.page_stride, p.pages.token_stride});
  const LaunchShape shape{.grid = static_cast<unsigned>((p.rows + gather_warps - 1) / gather_warps),
                          .threads = 32 * gather_warps};
  if (p.pages.type == DType::f8_e4m3) {
    const bool whole = (p.width - p.tail.width) % 4 == 0 &&
                       vec4_aligned(p.pages.data, DType::bf16, p.pages.page_stride) &&
                       p.pages.token_stride % 4 == 0 &&
                       vec4_aligned(p.out, DType::bf16, p.out_stride);
    return launch("gather_paged", whole ? gather_codes<true> : gather_codes<false>, shape, stream,
                  p);
  }
  if (vector) return launch("gather_paged", gather_rows<uint4>, shape, stream, p);
  p.pages.type == DType::f32 ? launch("gather_paged", gather_rows<std::uint32_t>, shape, stream, p)
                             : launch("gather_paged", gather_rows<std::uint16_t>, shape, stream, p);
}

}  // namespace motley::kernels::cuda
