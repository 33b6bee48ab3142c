// A prototype of the delta rule on a GPU, in the form of docs/design/state.md: an anchor and a log.
// One kernel for prompts, decoding and verification: a warp keeps sixteen columns of a head's state
// in registers, as the accumulators of the fold, and reads it as the operand of products over the
// page's keys and queries. bench_recurrent_state [check] checks it against a loop in float64,
// checks that prompts in any pieces, decoded rows and verified rows have the same bits, and prints
// times.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "graph_time.h"
#include "kernels/cuda/primitives/tensor_core.cuh"
#include "kernels/recurrence.h"

namespace {

using motley::bench::on_device;
using motley::kernels::anchor_after;
using motley::kernels::state_log_rows;
using motley::kernels::state_page;
using motley::kernels::cuda::multiply_add;
using bf16 = __nv_bfloat16;

constexpr int width = 128;  // of keys and of values
constexpr int value_heads = 32;
constexpr int key_heads = 16;
constexpr int page_rows = static_cast<int>(state_page);
constexpr int log_rows = static_cast<int>(state_log_rows);
constexpr int key_pitch = width + 8;
constexpr int small_pitch = page_rows + 8;

struct Sequence {
  int row;    // the first of the step
  int start;  // its position
  int count;  // rows
  int slot;
  int anchor;      // before the step
  int new_anchor;  // after it
};

struct Step {
  const Sequence* sequences;
  const bf16* q;  // [rows, key_heads, width]
  const bf16* k;
  const bf16* v;      // [rows, value_heads, width]
  const float* g;     // [rows, value_heads]
  const float* beta;  // [rows, value_heads]
  float* out;         // [rows, value_heads, width]
  float* anchors;     // [slots, value_heads, 8 warps, 16, 32 lanes, 4]
  bf16* log_keys;     // [slots, log_rows, key_heads, width]
  float* log_errors;  // [slots, log_rows, value_heads, width]: beta (v - S^T k), S at the anchor
  float* log_g;       // [slots, log_rows, value_heads]
  float* log_beta;
  bool stores;  // the log has room for the step beside what is in it: the kernel writes it itself
  // To measure which chain is the longer: with one part alone no warp waits for the other part, and
  // the results mean nothing.
  enum class Runs { all, state, helpers } runs = Runs::all;
};

template <int warps>
struct Stage {
  bf16 k[page_rows][key_pitch];
  bf16 q[page_rows][key_pitch];
  bf16 v[page_rows][16 * warps + 8];
  float g[page_rows];
  float beta[page_rows];
  // In two parts of bf16 each: (I + tril(beta K K^T ∘ decay, -1))^-1, and tril(Q K^T ∘ decay).
  bf16 solve[2][page_rows][small_pitch];
  bf16 query[2][page_rows][small_pitch];
  float near[page_rows];    // e^(the decays from the border to a row)
  float behind[page_rows];  // e^(the decays from a row to the page's end)
};

// Sixteen columns of a head's state are a warp's, or the two halves of their keys are each a
// warp's. Sums over keys are made of those over the halves, also where one warp makes both. A page
// is related by two warps. Of long prompts these are helpers beside those that hold the state, a
// pair for each stage; with no helpers the first two warps do it themselves.
template <int groups, int halves, int pairs>
struct Shared {
  static constexpr int stages = pairs > 0 ? pairs : 1;
  Stage<groups> stage[stages];
  // What the warps of two halves tell each other, alternating: sums with keys, and with the queries
  // of a half's rows.
  float4 sums[2][groups][halves][halves > 1 ? 3 : 1][32];
  float weights[stages][page_rows][page_rows + 4];  // of row t by row j: [j][t]
  float decays[stages][2][page_rows][page_rows + 1];
};

__device__ inline std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  std::memcpy(&bits, &both, 4);
  return bits;
}
// Two parts whose sum has 16 bits of mantissa.
struct Parts {
  std::uint32_t high, low;
};
__device__ inline Parts split(float a, float b) {
  const std::uint32_t high = pack(a, b);
  const float left_a = a - __uint_as_float(high << 16);
  const float left_b = b - __uint_as_float(high & 0xFFFF0000U);
  return {high, pack(left_a, left_b)};
}
__device__ inline std::uint32_t pair(const bf16* at) {
  return *reinterpret_cast<const std::uint32_t*>(at);
}

__device__ inline void copy16(void* to, const void* from, bool there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(there ? 16 : 0));
}
__device__ inline void copy4(void* to, const void* from, bool there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from),
               "r"(there ? 4 : 0));
}
template <int threads>
__device__ inline void meet(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}
template <int threads>
__device__ inline void arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

// Named barriers: of each pair, then of each stage: it is full, it is empty.
constexpr int pair_barrier = 1;
constexpr int full_barrier = 5;
constexpr int empty_barrier = 9;

// Rows of a page to shared memory.
template <int warps, int threads>
__device__ inline void load_page(const Step& p, const Sequence& s, int head, int part, int first,
                                 Stage<warps>& to, int thread) {
  const int key_head = head / (value_heads / key_heads);
  for (int i = thread; i < page_rows * width / 8; i += threads) {
    const int t = i / (width / 8), at = i % (width / 8) * 8, position = first + t;
    const bool logged = position < s.start, there = position < s.start + s.count;
    const std::int64_t row = s.row + position - s.start;
    const std::int64_t kept = std::int64_t{s.slot} * log_rows + position % log_rows;
    const bf16* const key = logged ? p.log_keys + (kept * key_heads + key_head) * width + at
                                   : p.k + (row * key_heads + key_head) * width + at;
    copy16(&to.k[t][at], there ? key : p.k, there);
    const bool fresh = there && !logged;
    copy16(&to.q[t][at], fresh ? p.q + (row * key_heads + key_head) * width + at : p.q, fresh);
    if (at < 16 * warps) {
      copy16(&to.v[t][at],
             fresh ? p.v + (row * value_heads + head) * width + part * 16 * warps + at : p.v,
             fresh);
    }
  }
  if (thread < 2 * page_rows) {
    const int t = thread % page_rows, position = first + t;
    const bool logged = position < s.start, there = position < s.start + s.count;
    const std::int64_t row = (s.row + position - s.start) * std::int64_t{value_heads} + head;
    const std::int64_t kept =
        (std::int64_t{s.slot} * log_rows + position % log_rows) * value_heads + head;
    const bool is_g = thread < page_rows;
    const float* const from =
        is_g ? (logged ? p.log_g + kept : p.g + row) : (logged ? p.log_beta + kept : p.beta + row);
    copy4(is_g ? &to.g[t] : &to.beta[t], there ? from : p.g, there);
  }
  asm volatile("cp.async.commit_group;");
}

// What a page's rows are to each other: the first helper makes `solve`, the second the rest.
template <int warps>
__device__ inline void relate(Stage<warps>& stage, float (&weights)[page_rows][page_rows + 4],
                              float (&decays)[page_rows][page_rows + 1], int helper, int lane) {
  const int g = lane / 4, t2 = lane % 4 * 2;
  if (lane < page_rows) {
    float sum = 0;
#pragma unroll
    for (int j = page_rows - 1; j >= 0; --j) {
      decays[lane][j] = sum;
      sum += j <= lane ? stage.g[j] : 0;
    }
    if (helper == 1) stage.near[lane] = __expf(sum);
  }
  __syncwarp();
  const bf16(&rows)[page_rows][key_pitch] = helper == 0 ? stage.k : stage.q;
  float products[2][4] = {};
  for (int d = 0; d < width; d += 16) {
    const std::uint32_t a0 = pair(&rows[g][d + t2]), a1 = pair(&rows[g + 8][d + t2]);
    const std::uint32_t a2 = pair(&rows[g][d + 8 + t2]), a3 = pair(&rows[g + 8][d + 8 + t2]);
    for (int n = 0; n < 2; ++n)
      multiply_add(products[n], a0, a1, a2, a3, pair(&stage.k[8 * n + g][d + t2]),
                   pair(&stage.k[8 * n + g][d + 8 + t2]));
  }
  for (int n = 0; n < 2; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int t = g + e / 2 * 8, j = 8 * n + t2 + e % 2;
      if (helper == 0) {
        weights[j][t] = j < t ? products[n][e] * __expf(decays[t][j]) * stage.beta[t] : 0.0F;
      } else {
        const float weight = j <= t ? products[n][e] * __expf(decays[t][j]) : 0.0F;
        const bf16 high = __float2bfloat16_rn(weight);
        stage.query[0][t][j] = high;
        stage.query[1][t][j] = __float2bfloat16_rn(weight - __bfloat162float(high));
      }
    }
  }
  if (helper == 1) {
    if (lane < page_rows) stage.behind[lane] = __expf(decays[page_rows - 1][lane]);
    return;
  }
  __syncwarp();
  // A column of the inverse each lane; a row that is done is taken from those after it.
  if (lane < page_rows) {
    float column[page_rows];
#pragma unroll
    for (int t = 0; t < page_rows; ++t) column[t] = t == lane ? 1.0F : 0.0F;
#pragma unroll
    for (int i = 0; i < page_rows; ++i) {
#pragma unroll
      for (int t = i + 1; t < page_rows; ++t) column[t] -= weights[i][t] * column[i];
    }
#pragma unroll
    for (int t = 0; t < page_rows; ++t) {
      const bf16 high = __float2bfloat16_rn(column[t]);
      stage.solve[0][t][lane] = high;
      stage.solve[1][t][lane] = __float2bfloat16_rn(column[t] - __bfloat162float(high));
    }
  }
}

// d += a b^T, each in two parts, without the product of the small ones.
__device__ inline void multiply_parts(float (&d)[4], const Parts (&a)[4], const bf16* high,
                                      const bf16* low) {
  multiply_add(d, a[0].high, a[1].high, a[2].high, a[3].high, pair(high), pair(high + 8));
  multiply_add(d, a[0].low, a[1].low, a[2].low, a[3].low, pair(high), pair(high + 8));
  multiply_add(d, a[0].high, a[1].high, a[2].high, a[3].high, pair(low), pair(low + 8));
}
// Two tiles of eight columns as an operand of sixteen.
__device__ inline void operand(const float (&tiles)[2][4], Parts (&a)[4]) {
  for (int n = 0; n < 2; ++n) {
    a[2 * n] = split(tiles[n][0], tiles[n][1]);
    a[2 * n + 1] = split(tiles[n][2], tiles[n][3]);
  }
}

// Numbers that have overflowed may reach the rows after theirs only: a drafted row must not spoil a
// certain one before it. But a product spoils every row, since zero times infinity is no number. So
// they are taken out of it, and what lies behind the first of a column is lost
// afterwards.
struct FirstLost {
  bool any = false;                     // of the warp's
  int row[2] = {page_rows, page_rows};  // of columns g and g + 8

  // Rows from the first on.
  __device__ void fill(float (&numbers)[2][4], int t2, float value) const {
    if (!any) return;
    for (int n = 0; n < 2; ++n)
      for (int e = 0; e < 4; ++e)
        if (8 * n + t2 + e % 2 >= row[e / 2]) numbers[n][e] = value;
  }
};
__device__ inline FirstLost take_out_lost(float (&errors)[2][4], int t2) {
  FirstLost lost;
  float odd = 0;  // no number where one isn't finite
#pragma unroll
  for (int e = 0; e < 8; ++e) odd += errors[e / 4][e % 4] * 0.0F;
  lost.any = __any_sync(0xFFFFFFFFU, odd != 0.0F) != 0;
  if (!lost.any) return lost;
  for (int n = 0; n < 2; ++n) {
    for (int e = 0; e < 4; ++e) {
      if (isfinite(errors[n][e])) continue;
      errors[n][e] = 0;
      lost.row[e / 2] = min(lost.row[e / 2], 8 * n + t2 + e % 2);
    }
  }
  for (int& row : lost.row) {
    row = min(row, __shfl_xor_sync(0xFFFFFFFFU, row, 1));
    row = min(row, __shfl_xor_sync(0xFFFFFFFFU, row, 2));
  }
  return lost;
}

template <int groups, int halves, int pairs>
__global__ void __launch_bounds__((groups * halves + 2 * pairs) * 32,
                                  pairs > 0 ? 1 : (halves == 1 ? 16 : 20) / (groups * halves))
    recur(Step p) {
  using Memory = Shared<groups, halves, pairs>;
  constexpr int warps = groups * halves;          // that hold the state
  constexpr int page_threads = (warps + 2) * 32;  // that work on a page, where there are helpers
  constexpr int halves_barrier = pairs > 0 ? empty_barrier + pairs : 1;  // of each group of columns
  constexpr int tiles = 16 / halves;  // of eight keys, that a warp holds
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Memory*>(memory);
  const Sequence s = p.sequences[blockIdx.z];
  const int head = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = warp / halves, half = warp % halves;
  if (s.count == 0) return;
  const int end = s.start + s.count;
  const int pages = (end - 1) / page_rows - s.anchor / page_rows + 1;

  if constexpr (pairs > 0) {
    if (warp >= warps) {
      const int own = (warp - warps) / 2, helper = (warp - warps) % 2;
      if (p.runs == Step::Runs::state) return;
      Stage<groups>& stage = shared.stage[own];
      for (int i = own; i < pages; i += pairs) {
        // The page that stood there.
        if (i >= pairs && p.runs == Step::Runs::all) meet<page_threads>(empty_barrier + own);
        load_page<groups, 64>(p, s, head, part, s.anchor + i * page_rows, stage,
                              helper * 32 + lane);
        asm volatile("cp.async.wait_group 0;");
        meet<64>(pair_barrier + own);
        relate<groups>(stage, shared.weights[own], shared.decays[own][helper], helper, lane);
        if (p.runs == Step::Runs::all) arrive<page_threads>(full_barrier + own);
      }
      return;
    }
    if (p.runs == Step::Runs::helpers) return;
  }

  const int g = lane / 4, t2 = lane % 4 * 2;
  const int column = part * 16 * groups + group * 16;  // of the head's values
  auto* const anchor =
      reinterpret_cast<float4*>(p.anchors) +
      ((std::int64_t{s.slot} * value_heads + head) * (width / 16) + column / 16) * 16 * 32 +
      half * tiles * 32 + lane;
  float state[tiles][4];
#pragma unroll
  for (int n = 0; n < tiles; ++n) {
    const float4 four = s.anchor == 0 ? float4{0, 0, 0, 0} : anchor[n * 32];
    state[n][0] = four.x;
    state[n][1] = four.y;
    state[n][2] = four.z;
    state[n][3] = four.w;
  }
  const auto logged = [&](int position) {
    return p.log_errors +
           ((std::int64_t{s.slot} * log_rows + position % log_rows) * value_heads + head) * width +
           column;
  };
  // A page in the middle of a prompt has no rows in the log and leaves none: `whole`.
  const auto work = [&](auto middle, const Stage<groups>& stage, int i, float(&errors)[2][4]) {
    constexpr bool whole = decltype(middle)::value;
    const int first = s.anchor + i * page_rows;
    const int old = whole ? 0 : min(max(s.start - first, 0), page_rows);
    const int rows = whole ? page_rows : min(end - first, page_rows);
    float keys[2][4] = {}, outs[2][4] = {};
    // Decoding seldom has rows in both tiles of eight, and registers for one at a time.
    constexpr int at_once = pairs > 0 ? 2 : 1;
#pragma unroll
    for (int first_n = 0; first_n < 2; first_n += at_once) {
      if (at_once == 1 && (old >= 8 * first_n + 8 || rows <= 8 * first_n)) continue;
#pragma unroll
      for (int own = 0; own < 2 / halves; ++own) {
        float keys_high[at_once][4] = {}, keys_low[at_once][4] = {};
        float outs_high[at_once][4] = {}, outs_low[at_once][4] = {};
#pragma unroll
        for (int d = 0; d < 4; ++d) {
          const float(&low_keys)[4] = state[8 * own + 2 * d];
          const float(&high_keys)[4] = state[8 * own + 2 * d + 1];
          const Parts a[4] = {split(low_keys[0], low_keys[1]), split(low_keys[2], low_keys[3]),
                              split(high_keys[0], high_keys[1]), split(high_keys[2], high_keys[3])};
          const int at = 64 * (half + own) + 16 * d + t2;
#pragma unroll
          for (int n = 0; n < at_once; ++n) {
            const int row = 8 * (first_n + n) + g;
            const std::uint32_t k0 = pair(&stage.k[row][at]), k1 = pair(&stage.k[row][at + 8]);
            const std::uint32_t q0 = pair(&stage.q[row][at]), q1 = pair(&stage.q[row][at + 8]);
            multiply_add(keys_high[n], a[0].high, a[1].high, a[2].high, a[3].high, k0, k1);
            multiply_add(keys_low[n], a[0].low, a[1].low, a[2].low, a[3].low, k0, k1);
            multiply_add(outs_high[n], a[0].high, a[1].high, a[2].high, a[3].high, q0, q1);
            multiply_add(outs_low[n], a[0].low, a[1].low, a[2].low, a[3].low, q0, q1);
          }
        }
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float key = keys_high[n][e] + keys_low[n][e];
            const float out = outs_high[n][e] + outs_low[n][e];
            float(&all_keys)[4] = keys[first_n + n];
            float(&all_outs)[4] = outs[first_n + n];
            all_keys[e] = own == 0 ? key : all_keys[e] + key;
            all_outs[e] = own == 0 ? out : all_outs[e] + out;
          }
        }
      }
    }
    if constexpr (halves == 2) {
      // Each finishes the outs of eight rows.
      auto& mine = shared.sums[i % 2][group][half];
      mine[0][lane] = float4{keys[0][0], keys[0][1], keys[0][2], keys[0][3]};
      mine[1][lane] = float4{keys[1][0], keys[1][1], keys[1][2], keys[1][3]};
      const float(&others)[4] = outs[1];
      mine[2][lane] = half == 0 ? float4{others[0], others[1], others[2], others[3]}
                                : float4{outs[0][0], outs[0][1], outs[0][2], outs[0][3]};
      meet<64>(halves_barrier + group);
      const auto& theirs = shared.sums[i % 2][group][1 - half];
      const float4 key[2] = {theirs[0][lane], theirs[1][lane]}, out = theirs[2][lane];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        keys[n][0] += key[n].x;
        keys[n][1] += key[n].y;
        keys[n][2] += key[n].z;
        keys[n][3] += key[n].w;
        if (n != half) continue;
        outs[n][0] += out.x;
        outs[n][1] += out.y;
        outs[n][2] += out.z;
        outs[n][3] += out.w;
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = 8 * n + t2 + e % 2, v = g + e / 2 * 8;
        outs[n][e] = __fmul_rn(stage.near[t], outs[n][e]);
        if (t < old || t >= rows) continue;
        const float value = __bfloat162float(stage.v[t][group * 16 + v]);
        errors[n][e] = __fmul_rn(stage.beta[t], __fmaf_rn(-stage.near[t], keys[n][e], value));
        if (!whole && first + t >= s.new_anchor && half == 0) logged(first + t)[v] = errors[n][e];
      }
    }
    const FirstLost lost = take_out_lost(errors, t2);
    Parts a[4];
    operand(errors, a);
    float updates[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n)
      multiply_parts(updates[n], a, &stage.solve[0][8 * n + g][t2], &stage.solve[1][8 * n + g][t2]);
    lost.fill(updates, t2, 0);
    operand(updates, a);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      if (old >= 8 * n + 8 || rows <= 8 * n || (halves == 2 && n != half)) continue;
      multiply_parts(outs[n], a, &stage.query[0][8 * n + g][t2], &stage.query[1][8 * n + g][t2]);
      lost.fill(outs, t2, NAN);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = 8 * n + t2 + e % 2;
        if (t < old || t >= rows) continue;
        const std::int64_t row = s.row + first + t - s.start;
        p.out[(row * value_heads + head) * width + column + g + e / 2 * 8] = outs[n][e];
      }
    }
    const int border = first + page_rows;
    if (border < end || border == s.new_anchor) {
      lost.fill(updates, t2, NAN);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) updates[n][e] *= stage.behind[8 * n + t2 + e % 2];
      }
      operand(updates, a);
      const float carry = stage.near[page_rows - 1];
#pragma unroll
      for (int n = 0; n < tiles; n += 2) {
        std::uint32_t b[4];
        const auto at = static_cast<std::uint32_t>(
            __cvta_generic_to_shared(&stage.k[lane % 16][8 * (half * tiles + n) + lane / 16 * 8]));
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                     : "r"(at));
#pragma unroll
        for (int each = 0; each < 2; ++each) {
          float(&tile)[4] = state[n + each];
          for (float& number : tile) number *= carry;
          multiply_add(tile, a[0].high, a[1].high, a[2].high, a[3].high, b[2 * each],
                       b[2 * each + 1]);
          multiply_add(tile, a[0].low, a[1].low, a[2].low, a[3].low, b[2 * each], b[2 * each + 1]);
        }
      }
      if (border == s.new_anchor) {
#pragma unroll
        for (int n = 0; n < tiles; ++n)
          anchor[n * 32] = float4{state[n][0], state[n][1], state[n][2], state[n][3]};
      }
    }
  };

  for (int i = 0; i < pages; ++i) {
    const int first = s.anchor + i * page_rows;
    const int old = min(max(s.start - first, 0), page_rows);
    const int rows = min(end - first, page_rows);
    Stage<groups>& stage = shared.stage[i % Memory::stages];
    const bool whole =
        pairs > 0 && old == 0 && rows == page_rows && first + page_rows <= s.new_anchor;
    float errors[2][4] = {};
    if (!whole) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t = 8 * n + t2 + e % 2;
          if (t < old) errors[n][e] = logged(first + t)[g + e / 2 * 8];
        }
      }
    }
    if constexpr (pairs > 0) {
      if (p.runs == Step::Runs::all) meet<page_threads>(full_barrier + i % pairs);
    } else {
      load_page<groups, warps * 32>(p, s, head, part, first, stage, static_cast<int>(threadIdx.x));
      asm volatile("cp.async.wait_group 0;");
      __syncthreads();
      if (warp < 2) relate<groups>(stage, shared.weights[0], shared.decays[0][warp], warp, lane);
      __syncthreads();
    }
    if constexpr (pairs > 0) {
      if (whole) {
        work(std::true_type{}, stage, i, errors);
      } else {
        work(std::false_type{}, stage, i, errors);
      }
    } else {
      work(std::false_type{}, stage, i, errors);
    }
    if constexpr (pairs > 0) {
      // No helper waits for the last pages.
      if (i + pairs < pages && p.runs == Step::Runs::all)
        arrive<page_threads>(empty_barrier + i % pairs);
    } else {
      if (p.stores && part == 0) {
        for (int at = static_cast<int>(threadIdx.x); at < page_rows * width / 8; at += warps * 32) {
          const int t = at / (width / 8), position = first + t;
          if (t < old || t >= rows || position < s.new_anchor) continue;
          const std::int64_t to = std::int64_t{s.slot} * log_rows + position % log_rows;
          constexpr int shared_by = value_heads / key_heads;
          if (head % shared_by == 0) {
            *reinterpret_cast<uint4*>(p.log_keys + (to * key_heads + head / shared_by) * width +
                                      at % (width / 8) * 8) =
                *reinterpret_cast<const uint4*>(&stage.k[t][at % (width / 8) * 8]);
          }
          if (at % (width / 8) == 0) {
            p.log_g[to * value_heads + head] = stage.g[t];
            p.log_beta[to * value_heads + head] = stage.beta[t];
          }
        }
      }
      if (i + 1 < pages) __syncthreads();
    }
  }
}

// What the log keeps of a step's rows, after every head has read it.
__global__ void store_log(Step p) {
  const Sequence s = p.sequences[blockIdx.y];
  const int kept = max(s.start, s.new_anchor);
  const int position = kept + static_cast<int>(blockIdx.x);
  if (position >= s.start + s.count) return;
  const std::int64_t row = s.row + position - s.start;
  const std::int64_t to = std::int64_t{s.slot} * log_rows + position % log_rows;
  const auto* const from = reinterpret_cast<const uint4*>(p.k + row * key_heads * width);
  auto* const keys = reinterpret_cast<uint4*>(p.log_keys + to * key_heads * width);
  for (int i = static_cast<int>(threadIdx.x); i < key_heads * width / 8; i += 256)
    keys[i] = from[i];
  if (threadIdx.x < value_heads) {
    p.log_g[to * value_heads + threadIdx.x] = p.g[row * value_heads + threadIdx.x];
    p.log_beta[to * value_heads + threadIdx.x] = p.beta[row * value_heads + threadIdx.x];
  }
}

template <int groups, int halves, int pairs>
void launch(Step p, int sequences, int kept_rows, cudaStream_t stream) {
  using Memory = Shared<groups, halves, pairs>;
  static const bool once = [] {
    CHECK_CUDA(cudaFuncSetAttribute(recur<groups, halves, pairs>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Memory)));
    return true;
  }();
  static_cast<void>(once);
  p.stores = pairs == 0;
  recur<groups, halves, pairs><<<dim3(8 / groups, value_heads, static_cast<unsigned>(sequences)),
                                 (groups * halves + 2 * pairs) * 32, sizeof(Memory), stream>>>(p);
  if (!p.stores && kept_rows > 0)
    store_log<<<dim3(static_cast<unsigned>(kept_rows), static_cast<unsigned>(sequences)), 256, 0,
                stream>>>(p);
  CHECK_CUDA(cudaGetLastError());
}
// Steps that the log has room for beside what is in it, without helpers; and longer ones. `groups`
// of sixteen columns are a block's.
struct Form {
  int groups;
  int halves;
};
constexpr Form short_forms[] = {{4, 1}, {8, 1}, {2, 2}, {4, 2}, {8, 2}};
void launch_short(Form form, const Step& p, int sequences, cudaStream_t stream) {
  if (form.halves == 1) {
    if (form.groups == 4) launch<4, 1, 0>(p, sequences, 0, stream);
    if (form.groups == 8) launch<8, 1, 0>(p, sequences, 0, stream);
  } else {
    if (form.groups == 2) launch<2, 2, 0>(p, sequences, 0, stream);
    if (form.groups == 4) launch<4, 2, 0>(p, sequences, 0, stream);
    if (form.groups == 8) launch<8, 2, 0>(p, sequences, 0, stream);
  }
}
constexpr Form long_forms[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
void launch_long(Form form, const Step& p, int sequences, int kept_rows, cudaStream_t stream) {
  if (form.halves == 1) {
    if (form.groups == 1) launch<1, 1, 4>(p, sequences, kept_rows, stream);
    if (form.groups == 2) launch<2, 1, 4>(p, sequences, kept_rows, stream);
  } else {
    if (form.groups == 1) launch<1, 2, 4>(p, sequences, kept_rows, stream);
    if (form.groups == 2) launch<2, 2, 4>(p, sequences, kept_rows, stream);
  }
}

// Reads and writes every state once, as the usual form does for each row.
__global__ void read_and_write(float4* states, std::int64_t count, bool write) {
  const std::int64_t at = std::int64_t{blockIdx.x} * 1024 + threadIdx.x;
  float4 numbers[4];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (at + i * 256 >= count) return;
    numbers[i] = states[at + i * 256];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += numbers[i].x + numbers[i].y + numbers[i].z + numbers[i].w;
    numbers[i].x *= 0.5F;
    if (write) states[at + i * 256] = numbers[i];
  }
  if (sum == 12345.678F) states[at].y = sum;
}

template <class T>
T* space(std::size_t count, int byte) {
  T* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, count * sizeof(T)));
  CHECK_CUDA(cudaMemset(data, byte, count * sizeof(T)));
  return data;
}

struct Inputs {
  std::vector<bf16> q, k, v;
  std::vector<float> g, beta;
};
Inputs make_inputs(int rows, unsigned seed = 7) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  Inputs inputs;
  const auto directions = [&](float length) {
    std::vector<bf16> all;
    for (int i = 0; i < rows * key_heads; ++i) {
      float row[width], squares = 0;
      for (float& number : row) {
        number = normal(random);
        squares += number * number;
      }
      for (const float number : row)
        all.push_back(__float2bfloat16(number * length / std::sqrt(squares)));
    }
    return all;
  };
  inputs.q = directions(1 / std::sqrt(static_cast<float>(width)));
  inputs.k = directions(1);
  for (int i = 0; i < rows * value_heads * width; ++i)
    inputs.v.push_back(__float2bfloat16(normal(random)));
  for (int i = 0; i < rows * value_heads; ++i) {
    inputs.g.push_back(-0.3F * uniform(random) * uniform(random));
    inputs.beta.push_back(uniform(random));
  }
  return inputs;
}

// Slots of one layer, and steps over them.
class Layer {
 public:
  Layer(int slots, const Inputs& inputs) : slots_(slots) {
    const auto each = static_cast<std::size_t>(slots);
    step_.q = on_device(inputs.q);
    step_.k = on_device(inputs.k);
    step_.v = on_device(inputs.v);
    step_.g = on_device(inputs.g);
    step_.beta = on_device(inputs.beta);
    rows_ = inputs.g.size() / value_heads;
    step_.out = space<float>(rows_ * value_heads * width, 0xFF);
    step_.anchors = space<float>(each * value_heads * width * width, 0xFF);
    step_.log_keys = space<bf16>(each * log_rows * key_heads * width, 0xFF);
    step_.log_errors = space<float>(each * log_rows * value_heads * width, 0xFF);
    step_.log_g = space<float>(each * log_rows * value_heads, 0xFF);
    step_.log_beta = space<float>(each * log_rows * value_heads, 0xFF);
    CHECK_CUDA(cudaMalloc(&sequences_, 4096 * sizeof(Sequence)));
    step_.sequences = sequences_;
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  ~Layer() {
    for (const void* const memory :
         {static_cast<const void*>(step_.q), static_cast<const void*>(step_.k),
          static_cast<const void*>(step_.v), static_cast<const void*>(step_.g),
          static_cast<const void*>(step_.beta), static_cast<const void*>(step_.out),
          static_cast<const void*>(step_.anchors), static_cast<const void*>(step_.log_keys),
          static_cast<const void*>(step_.log_errors), static_cast<const void*>(step_.log_g),
          static_cast<const void*>(step_.log_beta), static_cast<const void*>(sequences_)})
      cudaFree(const_cast<void*>(memory));
  }

  const Step& step() const { return step_; }
  void set(const std::vector<Sequence>& sequences) {
    CHECK_CUDA(cudaMemcpy(sequences_, sequences.data(), sequences.size() * sizeof(Sequence),
                          cudaMemcpyHostToDevice));
  }
  std::vector<float> outs() const {
    std::vector<float> all(rows_ * value_heads * width);
    CHECK_CUDA(
        cudaMemcpy(all.data(), step_.out, all.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return all;
  }

  // A sequence, whose rows are [first, first + rows) of the inputs.
  struct Running {
    int first = 0;
    int rows = 0;
    int slot = 0;
    int start = 0;
    int anchor = 0;
    // Of the next step.
    int count = 0;
    int certain = 0;

    int next_anchor() const {
      return count == 0 ? anchor : static_cast<int>(anchor_after(start, certain));
    }
  };

  void run(Form long_form, Form short_form, const std::vector<Running>& all) {
    std::vector<Sequence> sequences;
    bool fits = true;
    int most = 0;
    for (const Running& each : all) {
      sequences.push_back({.row = each.first + each.start,
                           .start = each.start,
                           .count = each.count,
                           .slot = each.slot,
                           .anchor = each.anchor,
                           .new_anchor = each.next_anchor()});
      fits = fits && each.start + each.count - each.anchor <= log_rows;
      most = std::max(most, each.count);
    }
    set(sequences);
    const auto count = static_cast<int>(all.size());
    if (fits) {
      launch_short(short_form, step_, count, nullptr);
    } else {
      launch_long(long_form, step_, count, std::min(most, log_rows), nullptr);
    }
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  // Copies a slot, or of it only the anchor; what is not copied is no number.
  void copy_slot(int from, int to, bool only_anchor) {
    const auto copy = [&](auto* data, std::size_t each, bool whole) {
      auto* const target = data + static_cast<std::size_t>(to) * each;
      if (whole)
        CHECK_CUDA(cudaMemcpy(target, data + static_cast<std::size_t>(from) * each,
                              each * sizeof(*data), cudaMemcpyDeviceToDevice));
      else
        CHECK_CUDA(cudaMemset(target, 0xFF, each * sizeof(*data)));
    };
    copy(step_.anchors, std::size_t{value_heads} * width * width, true);
    copy(step_.log_keys, std::size_t{log_rows} * key_heads * width, !only_anchor);
    copy(step_.log_errors, std::size_t{log_rows} * value_heads * width, !only_anchor);
    copy(step_.log_g, std::size_t{log_rows} * value_heads, !only_anchor);
    copy(step_.log_beta, std::size_t{log_rows} * value_heads, !only_anchor);
  }

  // Rows of the inputs, from others.
  void replace_rows(const Inputs& inputs, int first, int count) {
    const auto copy = [&](const auto* to, const auto& from, std::size_t each) {
      CHECK_CUDA(cudaMemcpy(
          const_cast<void*>(static_cast<const void*>(to + static_cast<std::size_t>(first) * each)),
          from.data() + static_cast<std::size_t>(first) * each,
          static_cast<std::size_t>(count) * each * sizeof(from[0]), cudaMemcpyHostToDevice));
    };
    copy(step_.q, inputs.q, std::size_t{key_heads} * width);
    copy(step_.k, inputs.k, std::size_t{key_heads} * width);
    copy(step_.v, inputs.v, std::size_t{value_heads} * width);
    copy(step_.g, inputs.g, value_heads);
    copy(step_.beta, inputs.beta, value_heads);
  }

 private:
  int slots_;
  std::size_t rows_ = 0;
  Step step_{};
  Sequence* sequences_ = nullptr;
};

// What a wrong draft may hold: other numbers, and in every third row no numbers at all.
Inputs make_garbage(int rows) {
  Inputs garbage = make_inputs(rows, 99);
  const bf16 none = __float2bfloat16(NAN);
  for (int row = 0; row < rows; row += 3) {
    const auto fill = [&](auto& numbers, std::size_t each, auto value) {
      std::fill_n(
          numbers.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * each), each,
          value);
    };
    if (row % 2 == 0) fill(garbage.q, std::size_t{key_heads} * width, none);
    if (row % 4 < 2) fill(garbage.k, std::size_t{key_heads} * width, none);
    fill(garbage.v, std::size_t{value_heads} * width, none);
    if (row % 9 == 0) fill(garbage.g, value_heads, NAN);
  }
  return garbage;
}

// Two sequences and an empty one beside each other, each in steps of up to so many rows: some are
// drafts, of which some are wrong; and now and then one goes on in a copy of its slot, or from its
// anchor alone.
std::vector<float> in_steps(int most, const Inputs& inputs, const Inputs& garbage, int rows) {
  std::mt19937 random(static_cast<unsigned>(most));
  const auto up_to = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit + 1));
  };
  Layer layer(4, inputs);
  std::vector<Layer::Running> all = {
      {.first = 0, .rows = rows, .slot = 0}, {.slot = 3}, {.first = rows, .rows = rows, .slot = 1}};
  int free_slot = 2;
  std::size_t form = 0;
  while (all[0].start < rows || all[2].start < rows) {
    std::vector<int> accepted;
    for (Layer::Running& each : all) {
      each.count = std::min(up_to(most), each.rows - each.start);
      const int drafts = std::min(up_to(std::max(each.count - 1, 0)),
                                  static_cast<int>(motley::kernels::max_uncertain_rows));
      each.certain = each.count - drafts;
      accepted.push_back(up_to(drafts));
      const int right = each.certain + accepted.back();
      if (right < each.count)
        layer.replace_rows(garbage, each.first + each.start + right, each.count - right);
    }
    layer.run(long_forms[form % std::size(long_forms)], short_forms[form % std::size(short_forms)],
              all);
    ++form;
    for (std::size_t i = 0; i < all.size(); ++i) {
      Layer::Running& each = all[i];
      layer.replace_rows(inputs, each.first + each.start, each.count);
      each.anchor = each.next_anchor();
      each.start += each.count == 0 ? 0 : each.certain + accepted[i];
      const int what = each.rows == 0 ? 3 : up_to(7);
      if (what > 1) continue;
      layer.copy_slot(each.slot, free_slot, what == 1);
      layer.copy_slot(3, each.slot, true);  // of the sequence without rows
      std::swap(each.slot, free_slot);
      if (what == 1) each.start = each.anchor;
    }
  }
  return layer.outs();
}

bool check() {
  constexpr int rows = 300;
  const Inputs inputs = make_inputs(2 * rows);
  const Inputs garbage = make_garbage(2 * rows);
  std::vector<float> whole;
  bool good = true;
  const auto compare = [&](const std::vector<float>& outs) {
    if (whole.empty()) whole = outs;
    const bool same = std::memcmp(outs.data(), whole.data(), outs.size() * sizeof(float)) == 0;
    good = good && same;
    return same ? "the same bits" : "OTHER BITS";
  };
  for (const Form form : long_forms) {
    Layer layer(2, inputs);
    for (const int first : {0, rows})
      layer.run(form, {8, 1},
                {{.first = first,
                  .rows = rows,
                  .slot = first > 0 ? 1 : 0,
                  .count = rows,
                  .certain = rows}});
    std::printf("whole, %d x %d warps a block: %s\n", form.groups, form.halves,
                compare(layer.outs()));
  }
  for (const int most : {1, 4, 9, 40})
    std::printf("steps of up to %d rows: %s\n", most,
                compare(in_steps(most, inputs, garbage, rows)));
  double worst = 0, largest = 0;
  for (int head = 0; head < value_heads; head += 11) {
    std::vector<double> state(width * width, 0.0);
    const int key_head = head / (value_heads / key_heads);
    for (int t = 0; t < rows; ++t) {
      const bf16* const k = inputs.k.data() + (t * key_heads + key_head) * width;
      const bf16* const q = inputs.q.data() + (t * key_heads + key_head) * width;
      const auto scalar = static_cast<std::size_t>(t * value_heads + head);
      const double decay = std::exp(static_cast<double>(inputs.g[scalar]));
      for (double& number : state) number *= decay;
      for (int v = 0; v < width; ++v) {
        double seen = 0, out = 0;
        for (int d = 0; d < width; ++d)
          seen += static_cast<double>(__bfloat162float(k[d])) *
                  state[static_cast<std::size_t>(d * width + v)];
        const auto at = scalar * width + static_cast<std::size_t>(v);
        const double update = static_cast<double>(inputs.beta[scalar]) *
                              (static_cast<double>(__bfloat162float(inputs.v[at])) - seen);
        for (int d = 0; d < width; ++d) {
          double& number = state[static_cast<std::size_t>(d * width + v)];
          number += static_cast<double>(__bfloat162float(k[d])) * update;
          out += static_cast<double>(__bfloat162float(q[d])) * number;
        }
        worst = std::max(worst, std::abs(out - static_cast<double>(whole[at])));
        largest = std::max(largest, std::abs(out));
      }
    }
  }
  std::printf("against float64: at most %.2g apart, outputs up to %.2g\n", worst, largest);
  return good && worst < 1e-4 * largest;
}

void measure_decoding() {
  std::printf("\n%-9s %-5s %-6s %10s %10s %10s %9s\n", "sequences", "rows", "warps", "us",
              "read us", "r+w us", "of read");
  for (const int sequences : {1, 8, 64, 256}) {
    const Inputs inputs = make_inputs(sequences * 4);
    // Each launch of a graph has slots of its own, so that states come from memory.
    const int turns = sequences >= 64 ? 2 : sequences == 8 ? 8 : 40;
    Layer layer(sequences * turns, inputs);
    const std::int64_t vec4s = std::int64_t{sequences} * value_heads * width * width / 4;
    const auto blocks = static_cast<unsigned>((vec4s + 1023) / 1024);
    const auto pass = [&](bool write) {
      return motley::bench::graph_time(turns * 2, 15, [&](int i, motley::StreamHandle stream) {
        read_and_write<<<blocks, 256, 0, static_cast<cudaStream_t>(stream.native)>>>(
            reinterpret_cast<float4*>(layer.step().anchors) + (i % turns) * vec4s, vec4s, write);
      });
    };
    const double read = pass(false), both = pass(true);
    for (const int rows : {1, 4}) {
      for (const Form form : short_forms) {
        std::vector<Sequence> all;
        for (int turn = 0; turn < turns; ++turn) {
          for (int i = 0; i < sequences; ++i) {
            // Logs of every length, and folds as often as they come.
            const int start = 160 + i * 7 % page_rows;
            const int end = start + 1;
            all.push_back({.row = i * rows,
                           .start = start,
                           .count = rows,
                           .slot = turn * sequences + i,
                           .anchor = 160,
                           .new_anchor = end / page_rows * page_rows});
          }
        }
        layer.set(all);
        const double us =
            motley::bench::graph_time(turns * 2, 15, [&](int i, motley::StreamHandle stream) {
              Step step = layer.step();
              step.sequences += i % turns * sequences;
              launch_short(form, step, sequences, static_cast<cudaStream_t>(stream.native));
            });
        std::printf("%-9d %-5d %d x %d  %10.2f %10.2f %10.2f %9.2f\n", sequences, rows, form.groups,
                    form.halves, us, read, both, us / read);
      }
    }
  }
}

void measure_prompts() {
  std::printf("\n%-6s %-6s %10s %14s %14s\n", "rows", "warps", "us", "state alone",
              "helpers alone");
  for (const int rows : {1024, 8192}) {
    const Inputs inputs = make_inputs(rows);
    Layer layer(1, inputs);
    for (const Form form : long_forms) {
      layer.set({{.row = 0,
                  .start = 0,
                  .count = rows,
                  .slot = 0,
                  .anchor = 0,
                  .new_anchor = rows / page_rows * page_rows}});
      std::printf("%-6d %d x %d ", rows, form.groups, form.halves);
      for (const auto runs : {Step::Runs::all, Step::Runs::state, Step::Runs::helpers}) {
        Step step = layer.step();
        step.runs = runs;
        const double us = motley::bench::graph_time(2, 9, [&](int, motley::StreamHandle stream) {
          launch_long(form, step, 1, page_rows, static_cast<cudaStream_t>(stream.native));
        });
        std::printf(" %12.1f", us);
      }
      std::printf("\n");
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (!check()) return 1;
  if (count > 1 && std::string(arguments[1]) == "check") return 0;
  measure_decoding();
  measure_prompts();
  return 0;
}
