#include <algorithm>

#include <cuda_bf16.h>

#include "base/check.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention/find_sequence.cuh"
#include "kernels/cuda/queue.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int store_threads = 128;

// A block a row. Eight numbers a thread where `vector` says that they lie on 16 bytes.
template <class X, class To, bool vector>
__global__ void __launch_bounds__(store_threads) store_rows(StorePaged p) {
  launch_dependents();
  wait_for_previous_grid();
  const int row = static_cast<int>(blockIdx.x);
  const int count = static_cast<int>(p.sequences.count);
  if (row >= p.sequences.seq_begin[count]) return;
  const int sequence = find_sequence(p.sequences.seq_begin, count, row);
  const std::int64_t position = p.sequences.positions[row];
  const std::int64_t page =
      p.table.pages[sequence * p.table.stride + position / p.table.page_tokens];
  const X* const from = static_cast<const X*>(p.x) + row * p.x_stride;
  To* const to = static_cast<To*>(p.pages.data) + page * p.pages.page_stride +
                 position % p.table.page_tokens * p.pages.token_stride;
  constexpr int each = vector ? 8 : 1;
  const int pieces = static_cast<int>(p.width) / each;
  for (int i = static_cast<int>(threadIdx.x); i < p.heads * pieces; i += store_threads) {
    const int head = i / pieces;
    const int at = i % pieces * each;
    const X* const x = from + head * p.x_head_stride + at;
    To* const y = to + head * p.pages.head_stride + at;
    if constexpr (vector) {
      struct alignas(16) Numbers {
        X values[8];
      };
      struct alignas(16) Stored {
        To values[8];
      } out;
      const Numbers in = *reinterpret_cast<const Numbers*>(x);
#pragma unroll
      for (int j = 0; j < 8; ++j) out.values[j] = To(static_cast<float>(in.values[j]));
      *reinterpret_cast<Stored*>(y) = out;
    } else {
      *y = To(static_cast<float>(*x));
    }
  }
}

// A warp a row.
constexpr int gather_warps = 4;
template <class Piece>
__global__ void __launch_bounds__(32 * gather_warps) gather_rows(GatherPaged p) {
  launch_dependents();
  const int row = static_cast<int>(blockIdx.x) * gather_warps + static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= p.rows) return wait_for_previous_grid();
  // Lengths and pages were there before the step began.
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

bool aligned(const void* data, DType type, std::initializer_list<std::int64_t> strides) {
  const std::int64_t each = type == DType::f32 ? 4 : 2;
  const auto fits = [&](std::int64_t stride) { return stride * each % 16 == 0; };
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && std::ranges::all_of(strides, fits);
}

template <class X, class To>
void store(const StorePaged& p, StreamHandle stream) {
  const Pages& pages = p.pages;
  const bool vector =
      p.width % 8 == 0 && aligned(p.x, p.x_type, {p.x_stride, p.x_head_stride}) &&
      aligned(pages.data, pages.type, {pages.page_stride, pages.token_stride, pages.head_stride});
  queue("store_paged", vector ? store_rows<X, To, true> : store_rows<X, To, false>,
        {.grid = static_cast<unsigned>(p.sequences.rows), .threads = store_threads}, stream, p);
}

}  // namespace

void store_paged(const StorePaged& params, StreamHandle stream) {
  const bool from_f32 = params.x_type == DType::f32;
  const bool to_f32 = params.pages.type == DType::f32;
  if (from_f32)
    return to_f32 ? store<float, float>(params, stream)
                  : store<float, __nv_bfloat16>(params, stream);
  return to_f32 ? store<__nv_bfloat16, float>(params, stream)
                : store<__nv_bfloat16, __nv_bfloat16>(params, stream);
}

void gather_paged(const GatherPaged& p, StreamHandle stream) {
  if (p.rows <= 0) return;
  const bool vector =
      p.width % 8 == 0 && aligned(p.out, p.pages.type, {p.out_stride}) &&
      aligned(p.pages.data, p.pages.type, {p.pages.page_stride, p.pages.token_stride});
  const LaunchShape shape{.grid = static_cast<unsigned>((p.rows + gather_warps - 1) / gather_warps),
                          .threads = 32 * gather_warps};
  if (vector) return queue("gather_paged", gather_rows<uint4>, shape, stream, p);
  p.pages.type == DType::f32 ? queue("gather_paged", gather_rows<std::uint32_t>, shape, stream, p)
                             : queue("gather_paged", gather_rows<std::uint16_t>, shape, stream, p);
}

}  // namespace motley::kernels::cuda
