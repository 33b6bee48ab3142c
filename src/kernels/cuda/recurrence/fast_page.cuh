// A page of the gated delta rule on tensor cores: what its rows are to each other, and what a warp
// does with them that holds sixteen columns of a head's state. docs/design/kernels-recurrence.md
// has the formulas. Every kernel of the fast path is made of these functions, so that all have the
// same bits; files that include this are compiled without fused multiply-add.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"
#include "kernels/cuda/recurrence/step.cuh"

namespace motley::kernels::cuda::fast {

inline constexpr int width = 128;        // of keys and of values
inline constexpr int warp_columns = 16;  // of a head's values, that a warp holds
inline constexpr int all_tiles = 16;     // of eight keys
inline constexpr int key_pitch = width + 8;
inline constexpr int small_pitch = page_rows + 8;

struct Page {
  int first;  // position
  int old;    // rows of the log
  int rows;   // with the old ones

  __device__ Page(const SequenceStep& s, int number)
      : first(s.anchor + number * page_rows),
        old(min(max(s.start - first, 0), page_rows)),
        rows(min(s.end() - first, page_rows)) {}
};
__device__ inline int pages_of(const SequenceStep& s) {
  return (s.end() - 1) / page_rows - s.anchor / page_rows + 1;
}

// A page in shared memory. Rows that there are not have zeros for keys, decays and betas.
struct alignas(16) Stage {
  Bf16 k[page_rows][key_pitch];
  Bf16 q[page_rows][key_pitch];  // of new rows
  // In two parts of bf16 each: (I + tril(beta K K^T decay, -1))^-1, and tril(Q K^T decay).
  Bf16 solve[2][page_rows][small_pitch];
  Bf16 query[2][page_rows][small_pitch];
  float g[page_rows];
  float beta[page_rows];
  float near[page_rows];    // e^(the decays from the border to a row)
  float to_end[page_rows];  // e^(the decays from a row to the page's end)
};
// What the two warps that relate a page need besides.
struct alignas(16) RelateScratch {
  float weights[page_rows][page_rows + 4];    // of row t by row j: [j][t]
  float decays[2][page_rows][page_rows + 1];  // of each warp: between rows t and j
};

// One value head of a sequence. What is kept is that of slot s.slot.
struct Head {
  const Recur& p;
  const SequenceStep& s;
  int head;
  int key_head;

  __device__ Head(const Recur& params, const SequenceStep& step, int value_head)
      : p(params),
        s(step),
        head(value_head),
        key_head(value_head / static_cast<int>(params.value_heads / params.key_heads)) {}

  __device__ std::int64_t slot() const { return s.slot * p.memory.slot_stride; }
  __device__ std::int64_t row(int position) const { return s.row + position - s.start; }
  __device__ const float* key(int position) const {
    return p.k + row(position) * p.k_stride + key_head * width;
  }
  __device__ const float* query(int position) const {
    return p.q + row(position) * p.q_stride + key_head * width;
  }
  __device__ const float* value(int position) const {
    return p.v + row(position) * p.v_stride + head * width;
  }
  __device__ float* out(int position) const {
    return p.out + row(position) * p.out_stride + head * width;
  }
  __device__ const float* decay(int position) const {
    return p.g + row(position) * p.g_stride + head;
  }
  __device__ const float* beta(int position) const {
    return p.beta + row(position) * p.beta_stride + head;
  }
  __device__ bool stores_keys() const {
    return head % static_cast<int>(p.value_heads / p.key_heads) == 0;
  }
  __device__ Bf16* logged_key(int position) const {
    auto* const all = reinterpret_cast<Bf16*>(static_cast<float*>(p.memory.keys) + slot());
    return all + (position % log_rows * p.key_heads + key_head) * width;
  }
  __device__ std::int64_t logged(int position) const {
    return position % log_rows * p.value_heads + head;
  }
  __device__ float* logged_error(int position) const {
    return p.memory.updates + slot() + logged(position) * width;
  }
  __device__ float* logged_decay(int position) const {
    return p.memory.decays + slot() + logged(position);
  }
  __device__ float* logged_beta(int position) const {
    return p.memory.betas + slot() + logged(position);
  }
  // The anchor is [column / 16, tile of eight keys, lane] of four numbers: a warp's accumulators.
  __device__ float4* anchor(int column, int tile, int lane) const {
    auto* const of_head =
        reinterpret_cast<float4*>(p.memory.anchors + slot() + std::int64_t{head} * width * width);
    return of_head + (column / warp_columns * all_tiles + tile) * 32 + lane;
  }
};

__device__ inline std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  std::memcpy(&bits, &both, 4);
  return bits;
}
// Two parts of bf16, whose sum has 16 bits of mantissa.
struct Parts {
  std::uint32_t high, low;
};
__device__ inline Parts split(float a, float b) {
  const std::uint32_t high = pack(a, b);
  const float left_a = a - __uint_as_float(high << 16);
  const float left_b = b - __uint_as_float(high & 0xFFFF0000U);
  return {high, pack(left_a, left_b)};
}
__device__ inline void split(float a, Bf16& high, Bf16& low) {
  high = __float2bfloat16_rn(a);
  low = __float2bfloat16_rn(a - __bfloat162float(high));
}
__device__ inline std::uint32_t pair(const Bf16* at) {
  return *reinterpret_cast<const std::uint32_t*>(at);
}

// Begins to copy what the log has of a page.
template <int threads>
__device__ inline void load_log(const Head& at, const Page& page, Stage& stage, int thread) {
  constexpr int chunks = width / 8;  // of 16 bytes
  for (int i = thread; i < page.old * chunks; i += threads) {
    const int t = i / chunks, column = i % chunks * 8;
    copy_16(smem_addr(&stage.k[t][column]), at.logged_key(page.first + t) + column);
  }
  if (thread < 2 * page_rows && thread % page_rows < page.old) {
    const int t = thread % page_rows, position = page.first + t;
    const bool is_decay = thread < page_rows;
    copy_4_or_zero(smem_addr(is_decay ? &stage.g[t] : &stage.beta[t]),
                   is_decay ? at.logged_decay(position) : at.logged_beta(position), true);
  }
}

// Numbers [0, 8) of a row, rounded; zeros for no row.
__device__ inline uint4 rounded(const float4 (&x)[2]) {
  return {pack(x[0].x, x[0].y), pack(x[0].z, x[0].w), pack(x[1].x, x[1].y), pack(x[1].z, x[1].w)};
}
__device__ inline void read_8(const float* from, float4 (&to)[2]) {
  to[0] = reinterpret_cast<const float4*>(from)[0];
  to[1] = reinterpret_cast<const float4*>(from)[1];
}
// The step's rows of a page: all of a thread's numbers are read before the first is stored.
template <int threads>
struct FetchedRows {
  static constexpr int chunks = width / 8;  // of a row
  static constexpr int rows_at_once = threads / chunks;
  static constexpr int passes = page_rows / rows_at_once;
  static_assert(passes * rows_at_once == page_rows);

  float scalar;  // of threads below 16 a decay, of the next 16 a beta
  float4 keys[passes][2];
  float4 queries[passes][2];

  __device__ void fetch(const Head& at, const Page& page, int thread) {
    const int scalar_row = thread % page_rows;
    scalar = 0;
    if (thread < 2 * page_rows && scalar_row >= page.old && scalar_row < page.rows)
      scalar = thread < page_rows ? *at.decay(page.first + scalar_row)
                                  : *at.beta(page.first + scalar_row);
    const int first_row = thread / chunks, column = thread % chunks * 8;
    const float* const key = at.key(page.first + first_row) + column;
    const float* const query = at.query(page.first + first_row) + column;
#pragma unroll
    for (int n = 0; n < passes; ++n) {
      const int t = first_row + n * rows_at_once;
#pragma unroll
      for (int i = 0; i < 2; ++i) keys[n][i] = queries[n][i] = float4{0, 0, 0, 0};
      if (t < page.old || t >= page.rows) continue;
      read_8(key + n * rows_at_once * at.p.k_stride, keys[n]);
      read_8(query + n * rows_at_once * at.p.q_stride, queries[n]);
    }
  }
  __device__ void store(const Page& page, Stage& stage, int thread) const {
    if (thread < 2 * page_rows && thread % page_rows >= page.old)
      (thread < page_rows ? stage.g : stage.beta)[thread % page_rows] = scalar;
    const int first_row = thread / chunks, column = thread % chunks * 8;
#pragma unroll
    for (int n = 0; n < passes; ++n) {
      const int t = first_row + n * rows_at_once;
      if (t >= page.old) *reinterpret_cast<uint4*>(&stage.k[t][column]) = rounded(keys[n]);
      *reinterpret_cast<uint4*>(&stage.q[t][column]) = rounded(queries[n]);
    }
  }
};

// In the accumulators' form, of a warp's columns: errors of the log's rows.
__device__ inline void read_logged(const Head& at, const Page& page, int column, int lane,
                                   float (&errors)[2][4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = 8 * n + lane % 4 * 2 + e % 2;
      errors[n][e] = 0;
      if (t < page.old)
        errors[n][e] = at.logged_error(page.first + t)[column + lane / 4 + e / 2 * 8];
    }
  }
}
// A column of the inverse of a unit lower triangle for each lane; a row that is done is taken from
// those after it.
template <int rows>
__device__ inline void invert(const float (&weights)[page_rows][page_rows + 4], int lane,
                              float (&column)[page_rows]) {
#pragma unroll
  for (int t = 0; t < page_rows; ++t) column[t] = t == lane ? 1.0F : 0.0F;
#pragma unroll
  for (int i = 0; i < rows; ++i) {
#pragma unroll
    for (int t = i + 1; t < rows; ++t) column[t] = __fmaf_rn(-weights[i][t], column[i], column[t]);
  }
}

// Where a lane reads 16 x 16 numbers from, with load_matrix_x4: as rows of a product's first
// operand; or as its second operand, of which [0] and [1] are eight columns, [2] and [3] the next.
template <int pitch>
__device__ inline std::uint32_t operand_at(const Bf16 (&rows)[page_rows][pitch], int lane) {
  return smem_addr(&rows[lane % 16][lane / 16 * 8]);
}
template <int pitch>
__device__ inline std::uint32_t columns_at(const Bf16 (&rows)[page_rows][pitch], int lane) {
  return smem_addr(&rows[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
}

// What a page's rows are to each other: warp 0 makes `solve`, warp 1 the rest. What is made of row
// t reads rows up to t only.
__device__ inline void relate(const Page& page, Stage& stage, RelateScratch& scratch, int warp,
                              int lane) {
  const int g = lane / 4, t2 = lane % 4 * 2;
  float(&decays)[page_rows][page_rows + 1] = scratch.decays[warp];
  // Rows from the ninth on there may be none of.
  const bool short_page = page.rows <= 8;
  if (lane < page_rows) {
    float sum = 0;
#pragma unroll
    for (int j = page_rows - 1; j >= 0; --j) {
      decays[lane][j] = sum;
      sum += j <= lane ? stage.g[j] : 0.0F;
    }
    if (warp == 1) stage.near[lane] = __expf(sum);
  }
  __syncwarp();
  // Two sums each, so that products do not wait for each other.
  const std::uint32_t row_at = operand_at(warp == 0 ? stage.k : stage.q, lane);
  const std::uint32_t key_at = columns_at(stage.k, lane);
  float products[2][2][4] = {};
#pragma unroll
  for (int d = 0; d < width; d += 16) {
    float(&sums)[2][4] = products[d / 16 % 2];
    std::uint32_t a[4], b[4];
    load_matrix_x4(a, row_at + d * 2);
    load_matrix_x4(b, key_at + d * 2);
    multiply_add(sums[0], a[0], a[1], a[2], a[3], b[0], b[1]);
    if (!short_page) multiply_add(sums[1], a[0], a[1], a[2], a[3], b[2], b[3]);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int t = g + high * 8, j = 8 * n + t2;
      float weights[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int e = 2 * high + i;
        weights[i] = (products[0][n][e] + products[1][n][e]) * __expf(decays[t][j + i]);
      }
      if (warp == 0) {
        scratch.weights[j][t] = j < t ? weights[0] * stage.beta[t] : 0.0F;
        scratch.weights[j + 1][t] = j + 1 < t ? weights[1] * stage.beta[t] : 0.0F;
      } else {
        const Parts parts = split(j <= t ? weights[0] : 0.0F, j + 1 <= t ? weights[1] : 0.0F);
        *reinterpret_cast<std::uint32_t*>(&stage.query[0][t][j]) = parts.high;
        *reinterpret_cast<std::uint32_t*>(&stage.query[1][t][j]) = parts.low;
      }
    }
  }
  if (warp == 1) {
    if (lane < page_rows) stage.to_end[lane] = __expf(decays[page_rows - 1][lane]);
    return;
  }
  __syncwarp();
  if (lane >= page_rows) return;
  float column[page_rows];
  if (short_page) {
    invert<8>(scratch.weights, lane, column);
  } else {
    invert<page_rows>(scratch.weights, lane, column);
  }
#pragma unroll
  for (int t = 0; t < page_rows; ++t)
    split(column[t], stage.solve[0][t][lane], stage.solve[1][t][lane]);
}

// d += a b^T, each in two parts, without the product of the low ones. b: the high part's numbers,
// then the low part's.
__device__ inline void multiply_parts(float (&d)[4], const Parts (&a)[4],
                                      const std::uint32_t (&b)[4]) {
  multiply_add(d, a[0].high, a[1].high, a[2].high, a[3].high, b[0], b[1]);
  multiply_add(d, a[0].low, a[1].low, a[2].low, a[3].low, b[0], b[1]);
  multiply_add(d, a[0].high, a[1].high, a[2].high, a[3].high, b[2], b[3]);
}
// Rows [8 n, 8 n + 8) of a matrix in two parts, as such a b.
struct RowParts {
  std::uint32_t at[4];
};
__device__ inline RowParts load_parts(const Bf16 (&parts)[2][page_rows][small_pitch], int n,
                                      int lane) {
  RowParts b;
  load_matrix_x4(b.at, smem_addr(&parts[lane / 16][8 * n + lane % 8][lane / 8 % 2 * 8]));
  return b;
}
// Two tiles of eight columns as an operand of sixteen.
__device__ inline void operand(const float (&tiles)[2][4], Parts (&a)[4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    a[2 * n] = split(tiles[n][0], tiles[n][1]);
    a[2 * n + 1] = split(tiles[n][2], tiles[n][3]);
  }
}

// Numbers that have overflowed may reach rows from theirs on only: a drafted row must not spoil a
// certain one before it. But a product over the page spoils every row, since zero times infinity is
// no number. So they are taken out before each such product, and rows from the first of a column on
// are lost afterwards. Arrays have the accumulators' form: row 8 n + t2 + e % 2, column g + e / 2
// * 8.
struct FirstLost {
  bool any = false;                     // of the warp's
  int row[2] = {page_rows, page_rows};  // of columns g and g + 8

  __device__ static bool is_lost(float number) {
    // From here on a number's high part is infinite.
    return !(fabsf(number) < __uint_as_float(0x7F7F8000U));
  }
  __device__ void take_out(float (&numbers)[2][4], int t2) {
    bool here = false;
#pragma unroll
    for (int e = 0; e < 8; ++e) here = here || is_lost(numbers[e / 4][e % 4]);
    if (__any_sync(0xFFFFFFFFU, here) == 0) return;
    any = true;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (!is_lost(numbers[n][e])) continue;
        numbers[n][e] = 0;
        row[e / 2] = min(row[e / 2], 8 * n + t2 + e % 2);
      }
    }
#pragma unroll
    for (int& first : row) {
      first = min(first, __shfl_xor_sync(0xFFFFFFFFU, first, 1));
      first = min(first, __shfl_xor_sync(0xFFFFFFFFU, first, 2));
    }
  }
  // Of column g or g + 8.
  __device__ bool has(int column, int t) const { return t >= row[column]; }
  // Rows from the first on.
  __device__ void fill(float (&numbers)[2][4], int t2, float value) const {
    if (!any) return;
    for (int n = 0; n < 2; ++n)
      for (int e = 0; e < 4; ++e)
        if (8 * n + t2 + e % 2 >= row[e / 2]) numbers[n][e] = value;
  }
};

// Sixteen columns of a head's state, or those of half of its keys: the accumulators of the fold.
// Sums over keys are made of the sums over the two halves, also where one warp makes both.
template <int tiles>
struct State {
  static constexpr int halves = all_tiles / tiles;
  float at[tiles][4];

  __device__ void read(const Head& head, int column, int half, int lane) {
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      float4 four{0, 0, 0, 0};
      if (head.s.anchor > 0) four = *head.anchor(column, half * tiles + n, lane);
      at[n][0] = four.x;
      at[n][1] = four.y;
      at[n][2] = four.z;
      at[n][3] = four.w;
    }
  }
  __device__ void write(const Head& head, int column, int half, int lane) const {
#pragma unroll
    for (int n = 0; n < tiles; ++n)
      *head.anchor(column, half * tiles + n, lane) = float4{at[n][0], at[n][1], at[n][2], at[n][3]};
  }

  // keys, outs = S^T of the keys and queries of rows [8 first_n, 8 (first_n + count)).
  template <int count>
  __device__ void multiply(const Stage& stage, int half, int first_n, int lane, float (*keys)[4],
                           float (*outs)[4]) const {
    const int g = lane / 4, t2 = lane % 4 * 2;
#pragma unroll
    for (int own = 0; own < 2 / halves; ++own) {
      float keys_high[count][4] = {}, keys_low[count][4] = {};
      float outs_high[count][4] = {}, outs_low[count][4] = {};
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        const float(&low_keys)[4] = at[8 * own + 2 * d];
        const float(&high_keys)[4] = at[8 * own + 2 * d + 1];
        const Parts a[4] = {split(low_keys[0], low_keys[1]), split(low_keys[2], low_keys[3]),
                            split(high_keys[0], high_keys[1]), split(high_keys[2], high_keys[3])};
        const int column = 64 * (half + own) + 16 * d + t2;
#pragma unroll
        for (int n = 0; n < count; ++n) {
          const int row = 8 * (first_n + n) + g;
          const std::uint32_t k0 = pair(&stage.k[row][column]);
          const std::uint32_t k1 = pair(&stage.k[row][column + 8]);
          const std::uint32_t q0 = pair(&stage.q[row][column]);
          const std::uint32_t q1 = pair(&stage.q[row][column + 8]);
          multiply_add(keys_high[n], a[0].high, a[1].high, a[2].high, a[3].high, k0, k1);
          multiply_add(keys_low[n], a[0].low, a[1].low, a[2].low, a[3].low, k0, k1);
          multiply_add(outs_high[n], a[0].high, a[1].high, a[2].high, a[3].high, q0, q1);
          multiply_add(outs_low[n], a[0].low, a[1].low, a[2].low, a[3].low, q0, q1);
        }
      }
#pragma unroll
      for (int n = 0; n < count; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float key = keys_high[n][e] + keys_low[n][e];
          const float out = outs_high[n][e] + outs_low[n][e];
          keys[n][e] = own == 0 ? key : keys[n][e] + key;
          outs[n][e] = own == 0 ? out : outs[n][e] + out;
        }
      }
    }
  }

  __device__ void decay(const Stage& stage) {
    const float carry = stage.near[page_rows - 1];
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
#pragma unroll
      for (float& number : at[n]) number *= carry;
    }
  }
  // Keeps the compiler from computing it later.
  __device__ void hold() {
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
#pragma unroll
      for (float& number : at[n]) asm volatile("" : "+f"(number));
    }
  }
  // After that: the state at the page's end, of updates times e^(the decays to it).
  __device__ void add(const Stage& stage, int half, int lane, const Parts (&a)[4]) {
#pragma unroll
    for (int n = 0; n < tiles; n += 2) {
      std::uint32_t b[2][2];
      load_matrix_x4_trans(b,
                           smem_addr(&stage.k[lane % 16][8 * (half * tiles + n) + lane / 16 * 8]));
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        float(&tile)[4] = at[n + each];
        multiply_add(tile, a[0].high, a[1].high, a[2].high, a[3].high, b[each][0], b[each][1]);
        multiply_add(tile, a[0].low, a[1].low, a[2].low, a[3].low, b[each][0], b[each][1]);
      }
    }
  }
};

// Updates of a page as the operand of its fold.
__device__ inline void fold_operand(const Stage& stage, int lane, const float (&updates)[2][4],
                                    Parts (&a)[4]) {
  float faded[2][4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      faded[n][e] = updates[n][e] * stage.to_end[8 * n + lane % 4 * 2 + e % 2];
  }
  operand(faded, a);
}

// Not zero if a high part is no finite number, so that one of its numbers is lost.
__device__ inline std::uint32_t lost_parts(const Parts (&a)[4]) {
  std::uint32_t lost = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) lost |= (a[i].high & 0x7F807F80U) + 0x00800080U;
  return lost & 0x80008000U;
}

// u = T e, as numbers and as an operand; errors are one, too. solve(n) returns rows [8 n, 8 n + 8)
// of T as multiply_parts() takes them.
template <class Solve>
__device__ inline void multiply_errors(const Solve& solve, const Parts (&errors)[4],
                                       float (&updates)[2][4], Parts (&operand_of)[4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (float& number : updates[n]) number = 0;
    multiply_parts(updates[n], errors, solve(n).at);
  }
  operand(updates, operand_of);
}
// The same where something may be lost, which is zero in `updates`.
template <class Solve>
__device__ inline FirstLost multiply_lost(const Solve& solve, int t2, float (&errors)[2][4],
                                          float (&updates)[2][4], Parts (&operand_of)[4]) {
  FirstLost lost;
  lost.take_out(errors, t2);
  Parts a[4];
  operand(errors, a);
  multiply_errors(solve, a, updates, operand_of);
  lost.fill(updates, t2, 0);
  lost.take_out(updates, t2);
  lost.fill(updates, t2, 0);
  operand(updates, operand_of);
  return lost;
}
// What a warp makes of a page, from S^T of its keys and queries on. `errors` holds the log's errors
// of old rows and the values of new ones, and zeros for rows that there are not. With two halves of
// keys, each finishes eight rows.
template <int tiles>
__device__ inline void finish_page(const Head& at, const Page& page, const Stage& stage, int column,
                                   int half, int lane, State<tiles>& state,
                                   const float (&keys)[2][4], float (&outs)[2][4],
                                   float (&errors)[2][4]) {
  constexpr bool divided = State<tiles>::halves == 2;
  const int g = lane / 4, t2 = lane % 4 * 2;
  const SequenceStep& s = at.s;
  const auto has_new = [&](int n) { return page.old < 8 * n + 8 && page.rows > 8 * n; };
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if (!has_new(n)) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = 8 * n + t2 + e % 2;
      outs[n][e] = stage.near[t] * outs[n][e];
      if (t < page.old || t >= page.rows) continue;
      errors[n][e] = stage.beta[t] * __fmaf_rn(-stage.near[t], keys[n][e], errors[n][e]);
      if (half == 0 && page.first + t >= s.next_anchor)
        at.logged_error(page.first + t)[column + g + e / 2 * 8] = errors[n][e];
    }
  }
  const auto solve = [&](int n) { return load_parts(stage.solve, n, lane); };
  // Short steps have one form of the rest, which is read from memory once.
  float updates[2][4];
  Parts by_query[4], a[4];
  operand(errors, a);
  multiply_errors(solve, a, updates, by_query);
  FirstLost lost;
  if (__any_sync(0xFFFFFFFFU, (lost_parts(a) | lost_parts(by_query)) != 0) != 0)
    lost = multiply_lost(solve, t2, errors, updates, by_query);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if (!has_new(n) || (divided && n != half)) continue;
    multiply_parts(outs[n], by_query, load_parts(stage.query, n, lane).at);
  }
  lost.fill(outs, t2, NAN);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if (divided && n != half) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = 8 * n + t2 + e % 2;
      if (t < page.old || t >= page.rows) continue;
      at.out(page.first + t)[column + g + e / 2 * 8] = outs[n][e];
    }
  }
  const int border = page.first + page_rows;
  if (border >= s.end() && border != s.next_anchor) return;
  lost.fill(updates, t2, NAN);
  fold_operand(stage, lane, updates, a);
  state.decay(stage);
  state.add(stage, half, lane, a);
  if (border == s.next_anchor) state.write(at, column, half, lane);
}

}  // namespace motley::kernels::cuda::fast
