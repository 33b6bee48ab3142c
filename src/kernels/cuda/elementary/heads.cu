#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/elementary/heads.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/heads_apart.h"

namespace motley::kernels::cuda {
namespace {

// The widest head that rms_norm gives to one warp; the order of sums here is the same.
constexpr int max_normed_width = 256;
constexpr int warps = 4;
constexpr int max_parts = 4;

struct Parts {
  Heads all[max_parts];
  std::int64_t end_head[max_parts];  // running count of the heads of a row, by part
  int end_run[max_parts];            // running count of runs of heads, by part
  bool whole[max_parts];
  int count;
  std::int64_t rows;
  Sequences sequences;
  BlockTable table;
};

template <bool whole>
__device__ void write_as(void* to, DType type, std::int64_t begin, int at, int width,
                         const Vec4& value) {
  if (type == DType::f32) {
    store_vec4<whole>(static_cast<float*>(to) + begin, at, width, value);
  } else {
    store_vec4<whole>(static_cast<bf16*>(to) + begin, at, width, value);
  }
}

// Heads that a warp holds at once, 8 numbers per lane.
__host__ __device__ int heads_together(const Heads& h) { return 256 / static_cast<int>(h.width); }

// ---- heads held in registers ----

// Processes `rounds` times as many heads of a row as the warp holds at once, from `first` on, or
// all that are left. Their loads are in flight together. `whole`: what is rotated is the whole
// head, not numbers of its first half; a kernel of its own, since one row waits for a kernel's
// code.
template <class X, int rounds, bool whole>
__device__ void prepare_held(const Parts& p, const Heads& h, int row, int first) {
  const auto width = static_cast<int>(h.width);
  const int half = width / 2;
  const int lanes = half / 4;  // lanes of a head: a power of two
  const int together = heads_together(h);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int at = lane % lanes * 4;
  const int head = first + lane / lanes;
  const auto heads = static_cast<int>(h.heads);
  Halves weight{};
  if (h.norm_weight != nullptr)
    weight = {load_vec4<true>(h.norm_weight, at, half),
              load_vec4<true>(h.norm_weight + half, at, half)};
  // Positions and tables were written before the step began.
  const PagePlace place =
      h.pages.data != nullptr ? place_in_pages(p.sequences, p.table, row) : PagePlace{};
  const bool coded = h.pages.type == DType::f8_e4m3;
  if (h.bias != nullptr && head < heads) prefetch_l2(h.bias + head * width + at);
  wait_for_previous_grid();
  const X* const x = static_cast<const X*>(h.x) + row * h.x_stride + head * h.x_head_stride;
  Halves values[rounds]{};
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    if (head + i * together >= heads) continue;
    const X* const own = x + i * together * h.x_head_stride;
    values[i] = {load_vec4<true>(own, at, half), load_vec4<true>(own + half, at, half)};
  }
  const int pairs = whole ? half : static_cast<int>(h.pairs);
  Halves cos_sin{};
  if (h.cos_sin != nullptr && (whole || at < 2 * pairs)) {
    const float* const cosines = h.cos_sin + static_cast<std::int64_t>(row) * 2 * pairs;
    const int pair = whole || at < pairs ? at : at - pairs;
    cos_sin = {load_vec4<true>(cosines, pair, pairs),
               load_vec4<true>(cosines + pairs, pair, pairs)};
  }
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    Halves value = values[i];
    const int own = head + i * together;
    if (h.bias != nullptr && own < heads) {
      const float* const bias = h.bias + own * width;
      add_bias<X>(value, {load_vec4<true>(bias, at, half), load_vec4<true>(bias + half, at, half)});
    }
    if (h.norm_weight != nullptr) {
      const float sum = sum_of_lanes(sum_of_halves(value, width), lanes);
      const float factor = Squares::factor_of(sum, width, h.eps);
      value.low = normed<X>(value.low, weight.low, factor, h.weight_in_f32);
      value.high = normed<X>(value.high, weight.high, factor, h.weight_in_f32);
      round_as<X>(value.low);
      round_as<X>(value.high);
    }
    if (h.cos_sin != nullptr) {
      if constexpr (whole)
        rotate<X>(value, cos_sin);
      else
        rotate_first<X>(value, cos_sin, at, pairs);
    }
    if (coded)  // all lanes take part
      write_codes(h.pages, p.table, place, own < heads ? own : -1, at, half, lanes, value);
    if (own >= heads) continue;
    if (h.out != nullptr)
      write_halves(h.out, h.out_type, row * h.out_stride + own * h.out_head_stride, at, half,
                   value);
    if (place.stored() && !coded)
      write_halves(h.pages.data, h.pages.type, place.in(h.pages) + own * h.pages.head_stride, at,
                   half, value);
  }
}

// One warp has a run of heads of one part.
template <int rounds, bool whole>
__global__ void __launch_bounds__(32 * warps) prepare_runs(const __grid_constant__ Parts p) {
  launch_dependents();
  const int index = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / 32;
  const int runs = p.end_run[p.count - 1];
  const int row = index / runs;
  if (row >= p.rows) return wait_for_previous_grid();
  int run = index % runs;
  int part = 0;
  while (run >= p.end_run[part]) ++part;
  if (part > 0) run -= p.end_run[part - 1];
  const Heads& h = p.all[part];
  const int first = run * rounds * heads_together(h);
  if (h.x_type == DType::f32) {
    prepare_held<float, rounds, whole>(p, h, row, first);
  } else {
    prepare_held<bf16, rounds, whole>(p, h, row, first);
  }
}

// ---- any heads ----

// Number `at` of a head after rotation; `head` is the head before it.
__device__ float rotated(const Heads& h, const float* cosines, const float* head, int at) {
  const auto pairs = static_cast<int>(h.pairs);
  if (at >= 2 * pairs) return head[at];
  const int pair = h.interleaved ? at / 2 : at % pairs;
  const bool second = h.interleaved ? at % 2 != 0 : at >= pairs;
  const int other = h.interleaved ? at ^ 1 : (second ? at - pairs : at + pairs);
  const float c = cosines[pair];
  const float s = cosines[pairs + pair];
  return second ? head[at] * c + head[other] * s : head[at] * c + -head[other] * s;
}

// Stores a head as codes, but for its tail. `value_of` gives a vec4 of it. A whole warp calls it.
template <class ValueOf>
__device__ void store_coded(const Heads& h, const BlockTable& table, const PagePlace& place,
                            std::int64_t head, const ValueOf& value_of) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto width = static_cast<int>(h.width);
  const int own = width - static_cast<int>(h.tail.width);
  std::uint32_t largest = 0;
  for (int at = 4 * lane; at < own; at += 128) {
    const Vec4 value = value_of(at);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (at + i < own) largest = kv_largest(largest, value.at[i]);
  }
  largest = __reduce_max_sync(0xFFFFFFFFU, largest);
  const CodeScale scale(h.pages, largest);
  auto* const codes =
      static_cast<std::uint8_t*>(h.pages.data) + place.in(h.pages) + head * h.pages.head_stride;
  auto* const tail = static_cast<bf16*>(h.tail.pages.data) + place.in(h.tail.pages) - own;
  for (int at = 4 * lane; at < width; at += 128) {
    const Vec4 value = value_of(at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (at + i < own) {
        codes[at + i] = scale.code(value.at[i]);
      } else if (at + i < width) {
        tail[at + i] = narrow<bf16>(value.at[i]);
      }
    }
  }
  if (lane == 0) *place.exponent(h.pages, table, head) = scale.exponent;
}

// `shared` holds a head in float32, rounded to X after each operation.
template <class X, bool whole>
__device__ void prepare(const Parts& p, const Heads& h, std::int64_t row, std::int64_t head,
                        float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto width = static_cast<int>(h.width);
  const X* const x = static_cast<const X*>(h.x) + row * h.x_stride + head * h.x_head_stride;
  Squares squares;
  for (int at = 4 * lane; at < width; at += 128) {
    Vec4 value = load_vec4<whole>(x, at, width);
    if (h.bias != nullptr) {
      const Vec4 bias = load_vec4<whole>(h.bias + head * width, at, width);
#pragma unroll
      for (int i = 0; i < 4; ++i) value.at[i] = widen(narrow<X>(value.at[i] + bias.at[i]));
    }
    squares.add(value);
    store_vec4<true>(shared, at, width, value);
  }
  if (h.norm_weight != nullptr) {
    const float factor = Squares::factor_of(squares.of_warp(), width, h.eps);
    for (int at = 4 * lane; at < width; at += 128) {
      const Vec4 weight = load_vec4<whole>(h.norm_weight, at, width);
      Vec4 value = normed<X>(load_vec4<true>(shared, at, width), weight, factor, h.weight_in_f32);
#pragma unroll
      for (int i = 0; i < 4; ++i) value.at[i] = widen(narrow<X>(value.at[i]));
      store_vec4<true>(shared, at, width, value);
    }
  }
  __syncwarp();
  const PagePlace place = h.pages.data != nullptr
                              ? place_in_pages(p.sequences, p.table, static_cast<int>(row))
                              : PagePlace{};
  const bool coded = h.pages.type == DType::f8_e4m3;
  const auto value_of = [&](int at) {
    Vec4 value = load_vec4<true>(shared, at, width);
    if (h.cos_sin == nullptr) return value;
    const float* const cosines = h.cos_sin + row * 2 * h.pairs;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (at + i < width) value.at[i] = widen(narrow<X>(rotated(h, cosines, shared, at + i)));
    }
    return value;
  };
  if (coded && place.stored()) store_coded(h, p.table, place, head, value_of);
  for (int at = 4 * lane; at < width; at += 128) {
    const Vec4 value = value_of(at);
    if (h.out != nullptr)
      write_as<whole>(h.out, h.out_type, row * h.out_stride + head * h.out_head_stride, at, width,
                      value);
    if (place.stored() && !coded)
      write_as<whole>(h.pages.data, h.pages.type, place.in(h.pages) + head * h.pages.head_stride,
                      at, width, value);
  }
}

// One warp per head.
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

bool heads_take_vec4(const Heads& h) {
  const bool pages =
      h.pages.data == nullptr || (vec4_aligned(h.pages.data, h.pages.type, h.pages.page_stride) &&
                                  h.pages.token_stride % 4 == 0 && h.pages.head_stride % 4 == 0);
  const bool out = h.out == nullptr ||
                   (vec4_aligned(h.out, h.out_type, h.out_stride) && h.out_head_stride % 4 == 0);
  return h.width % 4 == 0 && vec4_aligned(h.x, h.x_type, h.x_stride) && h.x_head_stride % 4 == 0 &&
         vec4_aligned(h.bias, DType::f32, 0) && vec4_aligned(h.norm_weight, DType::f32, 0) &&
         pages && out;
}

template <int rounds, bool whole>
void launch_runs(Parts& parts, StreamHandle stream) {
  for (int i = 0; i < parts.count; ++i) {
    const int each = rounds * heads_together(parts.all[i]);
    parts.end_run[i] = (static_cast<int>(parts.all[i].heads) + each - 1) / each +
                       (i > 0 ? parts.end_run[i - 1] : 0);
  }
  const std::int64_t all = parts.rows * parts.end_run[parts.count - 1];
  launch("prepare_heads", prepare_runs<rounds, whole>,
         {.grid = static_cast<unsigned>((all + warps - 1) / warps), .threads = 32 * warps}, stream,
         parts);
}

void add_bias_ahead(Heads& h, std::int64_t rows, StreamHandle stream) {
  round_to(bias_of(h, rows), stream);
  h.bias = nullptr;
}

void norm_ahead(Heads& h, std::int64_t rows, StreamHandle stream) {
  if (h.bias != nullptr) add_bias_ahead(h, rows, stream);
  rms_norm(norm_of(h, rows), stream);
  h.norm_weight = nullptr;
}

}  // namespace

bool lanes_hold(const Heads& h) {
  const auto is_power = [](std::int64_t number) { return (number & (number - 1)) == 0; };
  const bool first = 4 * h.pairs <= h.width && h.pairs % 4 == 0 && h.pairs > 0 && is_power(h.pairs);
  const bool rotates =
      h.cos_sin == nullptr || ((2 * h.pairs == h.width || first) && !h.interleaved &&
                               vec4_aligned(h.cos_sin, DType::f32, 0));
  return heads_take_vec4(h) && h.width >= 8 && h.width <= held_width && is_power(h.width) &&
         rotates && h.tail.width == 0;
}

void prepare_heads(const PrepareHeads& params, StreamHandle stream) {
  Parts parts{};
  parts.rows = params.rows;
  parts.sequences = params.sequences;
  parts.table = params.table;
  MOTLEY_CHECK(params.count <= max_parts, "as many projections as a launch holds");
  for (std::int64_t i = 0; i < params.count; ++i) {
    Heads h = params.all[i];
    MOTLEY_CHECK(h.width <= max_head_width, "a head that shared memory holds");
    MOTLEY_CHECK(h.bias == nullptr || h.x_head_stride == h.width, "heads side by side");
    if (h.heads <= 0 || h.width <= 0) continue;
    if (h.norm_weight != nullptr && h.width > max_normed_width) norm_ahead(h, params.rows, stream);
    const int at = parts.count++;
    parts.all[at] = h;
    parts.whole[at] = heads_take_vec4(h);
    parts.end_head[at] = h.heads + (at > 0 ? parts.end_head[at - 1] : 0);
  }
  if (parts.count == 0 || params.rows <= 0) return;
  const auto all_parts = [&](auto&& holds) {
    return std::all_of(parts.all, parts.all + parts.count, holds);
  };
  const auto rotates = [&](bool whole) {
    return all_parts(
        [&](const Heads& h) { return h.cos_sin == nullptr || (2 * h.pairs == h.width) == whole; });
  };
  const bool whole = rotates(true);
  if (all_parts(lanes_hold) && (whole || rotates(false))) {
    // One round of heads per warp, until there are far more than enough warps
    // (bench/results/2026-11-29-heads-in-registers.md).
    constexpr std::int64_t many_heads = 1 << 16;
    const bool many = params.rows * parts.end_head[parts.count - 1] >= many_heads;
    const auto runs = whole ? (many ? launch_runs<4, true> : launch_runs<1, true>)
                            : (many ? launch_runs<4, false> : launch_runs<1, false>);
    return runs(parts, stream);
  }
  const std::int64_t all = params.rows * parts.end_head[parts.count - 1];
  launch("prepare_heads", prepare_parts,
         {.grid = static_cast<unsigned>((all + warps - 1) / warps), .threads = 32 * warps}, stream,
         parts);
}

}  // namespace motley::kernels::cuda
