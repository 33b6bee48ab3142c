#include <cuda_bf16.h>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/find_sequence.cuh"
#include "kernels/cuda/attention/gate.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/warp.cuh"
#include "kernels/kv_codes.h"

// Attention by its definition: one block per row and head, blocks of 64 positions with an online
// softmax, float32 throughout.
namespace motley::kernels::cuda {
namespace {

constexpr int plain_threads = 256;
constexpr int plain_warps = plain_threads / 32;
constexpr int block_positions = 64;
constexpr int columns_each = max_head_width / plain_threads;

__device__ float read(const void* data, DType type, std::int64_t at) {
  if (type == DType::f32) return static_cast<const float*>(data)[at];
  if (type == DType::f8_e4m3) return static_cast<const f8_e4m3*>(data)[at].to_float();
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
}

// A position's numbers, and their factor.
struct Place {
  std::int64_t at;
  float factor;
};
__device__ Place place(const BlockTable& table, const Pages& pages, int sequence,
                       std::int64_t position, std::int64_t kv_head) {
  const std::int64_t page = table.pages[sequence * table.stride + position / table.page_tokens];
  const std::int64_t token = position % table.page_tokens;
  const std::int64_t at =
      page * pages.page_stride + token * pages.token_stride + kv_head * pages.head_stride;
  if (pages.type != DType::f8_e4m3) return {at, 1.0F};
  return {at, kv_power(
                  pages.exponents[page * pages.page_stride + kv_head * table.page_tokens + token]) *
                  kv_factor(pages.fixed_scale)};
}

struct PlainShared {
  float query[max_head_width];
  float scores[block_positions];
  float largest;
  float total;
  float factor;
};

// One warp: replaces scores by e^(score - largest). The caller scales its sums by `factor`.
__device__ void soften(PlainShared& s, int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float largest = s.largest;
  for (int j = lane; j < count; j += 32) largest = fmaxf(largest, s.scores[j]);
  largest = warp_max(largest);
  float total = 0;
  for (int j = lane; j < count; j += 32) {
    const float weight = expf(s.scores[j] - largest);
    s.scores[j] = weight;
    total += weight;
  }
  total = warp_sum(total);
  __syncwarp();
  if (lane == 0) {
    s.factor = expf(s.largest - largest);
    s.total = s.total * s.factor + total;
    s.largest = largest;
  }
}

__global__ void __launch_bounds__(plain_threads) attend_plain(Attention p) {
  launch_dependents();
  wait_for_previous_grid();
  __shared__ PlainShared s;
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int count = static_cast<int>(p.sequences.count);
  if (row < p.sequences.seq_begin[0] || row >= p.sequences.seq_begin[count]) return;
  const int sequence = find_sequence(p.sequences.seq_begin, count, row);
  const std::int64_t kv_head = head / (p.heads / p.kv_heads);
  const std::int64_t end = std::int64_t{p.sequences.positions[row]} + 1;
  const std::int64_t begin = p.window > 0 && end > p.window ? end - p.window : 0;
  const int t = static_cast<int>(threadIdx.x);
  const int lane = t % 32;

  for (int i = t; i < p.key_width; i += plain_threads)
    s.query[i] = read(p.q, p.q_type,
                      row * p.q_stride + static_cast<std::int64_t>(head) * p.q_head_stride + i);
  if (t == 0) {
    s.largest = p.sinks != nullptr ? p.sinks[head] : -INFINITY;
    s.total = p.sinks != nullptr ? 1.0F : 0.0F;
  }
  float sums[columns_each] = {};
  for (std::int64_t first = begin; first < end;) {
    const std::int64_t cut = (first / block_positions + 1) * block_positions;
    const std::int64_t stop = cut < end ? cut : end;
    const int positions = static_cast<int>(stop - first);
    __syncthreads();
    for (int j = t / 32; j < positions; j += plain_warps) {
      const Place key = place(p.table, p.k, sequence, first + j, kv_head);
      const std::int64_t own = p.key_width - p.shared_width;
      float dot = 0;
      for (int i = lane; i < own; i += 32)
        dot = fmaf(s.query[i], read(p.k.data, p.k.type, key.at + i), dot);
      dot *= key.factor;
      if (p.shared_width > 0) {
        const Place shared = place(p.table, p.shared_k, sequence, first + j, 0);
        for (int i = lane; i < p.shared_width; i += 32)
          dot = fmaf(s.query[own + i], read(p.shared_k.data, p.shared_k.type, shared.at + i), dot);
      }
      dot = warp_sum(dot);
      if (lane == 0) s.scores[j] = dot * p.scale;
    }
    __syncthreads();
    if (t < 32) soften(s, positions);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < columns_each; ++c) sums[c] *= s.factor;
    for (int j = 0; j < positions; ++j) {
      const Place value = place(p.table, p.v, sequence, first + j, kv_head);
      const float weight = s.scores[j] * value.factor;
#pragma unroll
      for (int c = 0; c < columns_each; ++c) {
        const int i = t + c * plain_threads;
        if (i < p.value_width)
          sums[c] = fmaf(weight, read(p.v.data, p.v.type, value.at + i), sums[c]);
      }
    }
    first = stop;
  }
  __syncthreads();
  const float factor = 1.0F / s.total;
  const std::int64_t at = row * p.out_stride + static_cast<std::int64_t>(head) * p.out_head_stride;
#pragma unroll
  for (int c = 0; c < columns_each; ++c) {
    const int i = t + c * plain_threads;
    if (i >= p.value_width) continue;
    if (p.gates.data != nullptr)
      sums[c] *= 1.0F / (1.0F + expf(-__ldg(gates_of(p.gates, row, head) + i)));
    const float value = sums[c] * factor;
    if (p.out_type == DType::f32) {
      static_cast<float*>(p.out)[at + i] = value;
    } else {
      static_cast<__nv_bfloat16*>(p.out)[at + i] = __float2bfloat16(value);
    }
  }
}

}  // namespace

void attention_plain(const Attention& params, StreamHandle stream) {
  launch("attention_plain", attend_plain,
         {.grid = static_cast<unsigned>(params.sequences.rows),
          .grid_y = static_cast<unsigned>(params.heads),
          .threads = plain_threads},
         stream, params);
}

}  // namespace motley::kernels::cuda
