#include "base/check.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/norm.cuh"

namespace motley::kernels::cuda {
namespace {

// Widest head that rms_norm gives to one warp: here the order of its sum is the same.
constexpr int most_normed_width = 256;
constexpr int warps = 4;
constexpr int most_parts = 4;

struct Parts {
  Heads all[most_parts];
  std::int64_t end_head[most_parts];  // of a row, counted through
  bool whole[most_parts];
  int count;
  std::int64_t rows;
  Sequences sequences;
  BlockTable table;
};

// Where a row's numbers go in pages; none for a row that has no sequence.
__device__ std::int64_t place_in_pages(const Parts& p, const Pages& pages, std::int64_t row,
                                       int lane) {
  int before = 0;
  for (std::int64_t i = lane; i <= p.sequences.count; i += 32)
    before += p.sequences.seq_begin[i] <= row ? 1 : 0;
  const auto sequence = static_cast<std::int64_t>(__reduce_add_sync(0xFFFFFFFFU, before)) - 1;
  if (sequence < 0 || sequence >= p.sequences.count) return -1;
  const std::int64_t position = p.sequences.positions[row];
  const std::int64_t page =
      p.table.pages[sequence * p.table.stride + position / p.table.page_tokens];
  return page * pages.page_stride + position % p.table.page_tokens * pages.token_stride;
}

// Number `at` of a head after the turn; `head` is the head before it.
__device__ float turned(const Heads& h, const float* cosines, const float* head, int at) {
  const auto pairs = static_cast<int>(h.pairs);
  if (at >= 2 * pairs) return head[at];
  const int pair = h.interleaved ? at / 2 : at % pairs;
  const bool second = h.interleaved ? at % 2 != 0 : at >= pairs;
  const int other = h.interleaved ? at ^ 1 : (second ? at - pairs : at + pairs);
  const float c = cosines[pair];
  const float s = cosines[pairs + pair];
  return second ? head[at] * c + head[other] * s : head[at] * c + -head[other] * s;
}

// `shared` holds a head in float32, rounded to X after each step.
template <class X, bool whole>
__device__ void prepare(const Parts& p, const Heads& h, std::int64_t row, std::int64_t head,
                        float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto width = static_cast<int>(h.width);
  X* const x = static_cast<X*>(h.x) + row * h.x_stride + head * h.x_head_stride;
  Squares squares;
  for (int at = 4 * lane; at < width; at += 128) {
    const Four value = read_four<whole>(x, at, width);
    squares.add(value);
    write_four<true>(shared, at, width, value);
  }
  if (h.norm_weight != nullptr) {
    const float factor = Squares::factor_of(squares.of_warp(), width, h.eps);
    for (int at = 4 * lane; at < width; at += 128) {
      const Four weight = read_four<whole>(h.norm_weight, at, width);
      Four value = normed<X>(read_four<true>(shared, at, width), weight, factor, h.weight_in_f32);
#pragma unroll
      for (int i = 0; i < 4; ++i) value.at[i] = widen(narrow<X>(value.at[i]));
      write_four<true>(shared, at, width, value);
    }
  }
  __syncwarp();
  const std::int64_t place = h.pages.data != nullptr ? place_in_pages(p, h.pages, row, lane) : -1;
  const std::int64_t to = place + head * h.pages.head_stride;
  for (int at = 4 * lane; at < width; at += 128) {
    Four value = read_four<true>(shared, at, width);
    if (h.cos_sin != nullptr) {
      const float* const cosines = h.cos_sin + row * 2 * h.pairs;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (at + i < width) value.at[i] = widen(narrow<X>(turned(h, cosines, shared, at + i)));
      }
    }
    write_four<whole>(x, at, width, value);
    if (place < 0) continue;
    if (h.pages.type == DType::f32) {
      write_four<whole>(static_cast<float*>(h.pages.data) + to, at, width, value);
    } else {
      write_four<whole>(static_cast<bf16*>(h.pages.data) + to, at, width, value);
    }
  }
}

// A warp a head.
__global__ void __launch_bounds__(32 * warps) prepare_parts(const __grid_constant__ Parts p) {
  __shared__ alignas(16) float shared[warps][max_head_width];
  launch_dependents();
  wait_for_previous_grid();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t index = std::int64_t{blockIdx.x} * warps + warp;
  const std::int64_t heads = p.end_head[p.count - 1];
  const std::int64_t row = index / heads;
  if (row >= p.rows) return;
  int part = 0;
  while (index % heads >= p.end_head[part]) ++part;
  const std::int64_t head = index % heads - (part > 0 ? p.end_head[part - 1] : 0);
  const Heads& h = p.all[part];
  if (h.x_type == DType::f32) {
    if (p.whole[part]) {
      prepare<float, true>(p, h, row, head, shared[warp]);
    } else {
      prepare<float, false>(p, h, row, head, shared[warp]);
    }
  } else if (p.whole[part]) {
    prepare<bf16, true>(p, h, row, head, shared[warp]);
  } else {
    prepare<bf16, false>(p, h, row, head, shared[warp]);
  }
}

bool heads_in_fours(const Heads& h) {
  const bool pages =
      h.pages.data == nullptr || (in_fours(h.pages.data, h.pages.type, h.pages.page_stride) &&
                                  h.pages.token_stride % 4 == 0 && h.pages.head_stride % 4 == 0);
  return h.width % 4 == 0 && in_fours(h.x, h.x_type, h.x_stride) && h.x_head_stride % 4 == 0 &&
         in_fours(h.norm_weight, DType::f32, 0) && pages;
}

void norm_ahead(Heads& h, std::int64_t rows, StreamHandle stream) {
  rms_norm({.size = {rows, h.heads, h.width},
            .x = h.x,
            .x_type = h.x_type,
            .x_stride = h.x_stride,
            .x_part_stride = h.x_head_stride,
            .weight = h.norm_weight,
            .eps = h.eps,
            .weight_in_f32 = h.weight_in_f32,
            .out = h.x,
            .out_type = h.x_type,
            .out_stride = h.x_stride,
            .out_part_stride = h.x_head_stride},
           stream);
  h.norm_weight = nullptr;
}

}  // namespace

void prepare_heads(const PrepareHeads& params, StreamHandle stream) {
  Parts parts{};
  parts.rows = params.rows;
  parts.sequences = params.sequences;
  parts.table = params.table;
  MOTLEY_CHECK(params.count <= most_parts, "as many projections as a launch holds");
  for (std::int64_t i = 0; i < params.count; ++i) {
    Heads h = params.all[i];
    MOTLEY_CHECK(h.width <= max_head_width, "a head that shared memory holds");
    if (h.heads <= 0 || h.width <= 0) continue;
    if (h.norm_weight != nullptr && h.width > most_normed_width) norm_ahead(h, params.rows, stream);
    const int at = parts.count++;
    parts.all[at] = h;
    parts.whole[at] = heads_in_fours(h);
    parts.end_head[at] = h.heads + (at > 0 ? parts.end_head[at - 1] : 0);
  }
  if (parts.count == 0 || params.rows <= 0) return;
  const std::int64_t all = params.rows * parts.end_head[parts.count - 1];
  queue("prepare_heads", prepare_parts,
        {.grid = static_cast<unsigned>((all + warps - 1) / warps), .threads = 32 * warps}, stream,
        parts);
}

}  // namespace motley::kernels::cuda
