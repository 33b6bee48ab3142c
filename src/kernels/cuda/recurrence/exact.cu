#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/primitives/exponential.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/recurrence/exact.h"
#include "kernels/cuda/recurrence/step.cuh"

namespace motley::kernels::cuda {
namespace {

// A block has some columns of a head's state, and goes through the pages of a sequence. Half a warp
// relates a row to those before it; where the state is read, a thread has a column and four rows.
constexpr int threads = 256;
constexpr int columns = 64;
constexpr int row_groups = threads / columns;
constexpr int group_rows = page_rows / row_groups;
constexpr int lanes = 16;
static_assert(threads / lanes == page_rows);
constexpr int most_parts = static_cast<int>(max_key_width) / lanes;

// Between rows of keys: rows that the halves of a warp read lie in different banks.
__host__ __device__ constexpr int pitch_of(std::int64_t width) {
  return static_cast<int>((width + 31) / 32 * 32 + lanes);
}

// Shared memory, in float32 numbers. Rows are those of one page.
struct Layout {
  int pitch;
  int state = 0;  // [key width, columns]
  int keys;       // [rows, pitch]
  int queries;    // then times e^(the decays from the page's border to the row)
  int far_keys;
  int folded_keys;  // times e^(the decays from the row to the page's end)
  int decays;       // [rows, pitch], or [rows]
  int carry;        // [key width]
  // [rows, rows], of row t: row j's update as row t's key and query see it
  int key_weights;
  int query_weights;
  int seen;  // [rows, columns]
  int outs;
  int updates;
  int betas;  // [rows]
  int end;

  __host__ __device__ Layout(std::int64_t width, bool decay_by_key)
      : pitch(pitch_of(width)),
        keys(state + static_cast<int>(width) * columns),
        queries(keys + page_rows * pitch),
        far_keys(queries + page_rows * pitch),
        folded_keys(far_keys + page_rows * pitch),
        decays(folded_keys + page_rows * pitch),
        carry(decays + page_rows * (decay_by_key ? pitch : 1)),
        key_weights(carry + pitch),
        query_weights(key_weights + page_rows * page_rows),
        seen(query_weights + page_rows * page_rows),
        outs(seen + page_rows * columns),
        updates(outs + page_rows * columns),
        betas(updates + page_rows * columns),
        end(betas + page_rows) {}
  std::size_t bytes() const { return static_cast<std::size_t>(end) * sizeof(float); }
};

struct Head {
  int head;
  int key_head;
  int first_column;  // of the block
  int size;          // columns of the block that there are
};

struct Page {
  int first;   // position
  int old;     // rows of the log
  int rows;    // with the old ones
  bool folds;  // another page follows, or the state moves to its end
};

// The sum over sixteen lanes in the CPU's order, in each of them.
__device__ float half_warp_sum(float value, unsigned lanes_of_half) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(lanes_of_half, value, distance);
  return value;
}
__device__ float dot(const float* a, const float* b, int width, int lane, unsigned lanes_of_half) {
  float sum = 0;
  for (int i = lane; i < width; i += lanes) sum += a[i] * b[i];
  return half_warp_sum(sum, lanes_of_half);
}

template <class Key>
struct Arrays {
  const Recur& p;
  const SequenceStep& s;
  const Head& at;

  __device__ std::int64_t slot() const { return s.slot * p.memory.slot_stride; }
  __device__ std::int64_t row(int position) const { return s.row + position - s.start; }
  __device__ int decay_width() const { return p.decay_by_key ? static_cast<int>(p.key_width) : 1; }
  __device__ std::int64_t logged_head(int position) const {
    return position % log_rows * p.value_heads + at.head;
  }
  __device__ Key* logged_key(int position) const {
    auto* const all = reinterpret_cast<Key*>(static_cast<float*>(p.memory.keys) + slot());
    return all + (position % log_rows * p.key_heads + at.key_head) * p.key_width;
  }
  __device__ float* logged_update(int position) const {
    return p.memory.updates + slot() + logged_head(position) * p.value_width + at.first_column;
  }
  __device__ float* logged_decay(int position) const {
    return p.memory.decays + slot() + logged_head(position) * decay_width();
  }
  __device__ float* anchor() const {
    return p.memory.anchors + slot() + at.head * p.key_width * p.value_width + at.first_column;
  }
};

// Rows of a page to shared memory, keys as the log keeps them.
template <class Key>
__device__ void load_page(const Arrays<Key>& arrays, const Page& page, const Layout& layout,
                          float* memory) {
  const Recur& p = arrays.p;
  const auto width = static_cast<int>(p.key_width);
  const int thread = static_cast<int>(threadIdx.x);
  for (int t = thread / 32; t < page.rows; t += threads / 32) {
    const int position = page.first + t;
    const bool fresh = t >= page.old;
    const std::int64_t row = arrays.row(position);
    const float* const key = p.k + row * p.k_stride + arrays.at.key_head * p.key_width;
    const float* const query = p.q + row * p.q_stride + arrays.at.key_head * p.key_width;
    const Key* const logged = arrays.logged_key(position);
    for (int i = thread % 32; i < width; i += 32) {
      const int to = t * layout.pitch + i;
      memory[layout.keys + to] = fresh ? widen(narrow<Key>(key[i])) : widen(logged[i]);
      if (fresh) memory[layout.queries + to] = query[i];
    }
    const int decays = arrays.decay_width();
    const float* const decay =
        fresh ? p.g + row * p.g_stride + arrays.at.head * decays : arrays.logged_decay(position);
    for (int i = thread % 32; i < decays; i += 32)
      memory[layout.decays + t * (p.decay_by_key ? layout.pitch : 1) + i] = decay[i];
    if (thread % 32 == 0 && fresh && p.beta != nullptr)
      memory[layout.betas + t] = p.beta[row * p.beta_stride + arrays.at.head];
  }
}

// What the rows of a page are to each other. The decays between two rows are summed from the later
// one back, so that no large sums are subtracted. Half a warp has a row: those that are new, and
// the last one of a page that folds.
struct Relation {
  const Page& page;
  const Layout& layout;
  float* memory;
  int width;
  bool corrects;  // there is a beta
  int t;
  int lane;
  unsigned lanes_of_half;

  __device__ bool is_new() const { return t >= page.old; }
  __device__ bool is_last() const { return page.folds && t == page_rows - 1; }
  __device__ float* row(int array, int j) const { return memory + array + j * layout.pitch; }
  __device__ void weigh(int j, float key, float query) const {
    if (lane != 0) return;
    memory[layout.query_weights + t * page_rows + j] = query;
    memory[layout.key_weights + t * page_rows + j] = key;
  }

  // Where S decays as a whole.
  __device__ void by_head() const {
    const float* const decays = memory + layout.decays;
    float exponent = 0;  // from row `lane` to row t
    float sum = 0;
    for (int j = t; j >= 0; --j) {
      if (j == lane) exponent = sum;
      sum += decays[j];
    }
    const float near = exponential(exponent);
    const float far = exponential(sum);
    float* const query = row(layout.queries, t);
    const float* const key = row(layout.keys, t);
    if (is_new()) {
      for (int j = 0; j <= t; ++j) {
        const float* const other = row(layout.keys, j);
        const float between = __shfl_sync(lanes_of_half, near, j, lanes);
        const float by_query = between * dot(other, query, width, lane, lanes_of_half);
        float by_key = 0;
        if (corrects && j < t) by_key = between * dot(other, key, width, lane, lanes_of_half);
        weigh(j, by_key, by_query);
      }
      __syncwarp(lanes_of_half);
      float* const far_key = row(layout.far_keys, t);
      for (int i = lane; i < width; i += lanes) {
        query[i] *= far;
        far_key[i] = key[i] * far;
      }
    }
    if (!is_last()) return;
    for (int j = 0; j < page_rows; ++j) {
      const float between = __shfl_sync(lanes_of_half, near, j, lanes);
      for (int i = lane; i < width; i += lanes)
        row(layout.folded_keys, j)[i] = row(layout.keys, j)[i] * between;
    }
    for (int i = lane; i < width; i += lanes) memory[layout.carry + i] = far;
  }

  // Where each row of S has a decay of its own.
  __device__ void by_key() const {
    float* const query = row(layout.queries, t);
    const float* const key = row(layout.keys, t);
    float sums[most_parts] = {};  // numbers lane, lane + 16, ...
    for (int j = t; j >= 0; --j) {
      const float* const other = row(layout.keys, j);
      const float* const decay = row(layout.decays, j);
      float by_query = 0;
      float by_key = 0;
#pragma unroll
      for (int part = 0; part < most_parts; ++part) {
        const int i = part * lanes + lane;
        if (i >= width) continue;
        const float faded = other[i] * exponential(sums[part]);
        if (is_new()) {
          by_query += faded * query[i];
          by_key += faded * key[i];
        }
        if (is_last()) row(layout.folded_keys, j)[i] = faded;
        sums[part] += decay[i];
      }
      if (is_new())
        weigh(j, half_warp_sum(by_key, lanes_of_half), half_warp_sum(by_query, lanes_of_half));
    }
    __syncwarp(lanes_of_half);
    float* const far_key = row(layout.far_keys, t);
#pragma unroll
    for (int part = 0; part < most_parts; ++part) {
      const int i = part * lanes + lane;
      if (i >= width) continue;
      const float far = exponential(sums[part]);
      if (is_new()) {
        query[i] *= far;
        far_key[i] = key[i] * far;
      }
      if (is_last()) memory[layout.carry + i] = far;
    }
  }
};

// outs = S^T of four rows' queries, seen = S^T of their keys; the rows of S ascending.
__device__ void read_state(const Page& page, const Layout& layout, float* memory, int width,
                           int column, int first_row) {
  if (first_row >= page.rows || first_row + group_rows <= page.old) return;
  float outs[group_rows] = {};
  float seen[group_rows] = {};
  const float* const state = memory + layout.state + column;
  const float* const queries = memory + layout.queries + first_row * layout.pitch;
  const float* const keys = memory + layout.far_keys + first_row * layout.pitch;
  const auto add = [&](int t, float s, float query, float key) {
    outs[t] += s * query;
    seen[t] += s * key;
  };
  int d = 0;
  for (; d + 4 <= width; d += 4) {
    float s[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] = state[(d + i) * columns];
#pragma unroll
    for (int t = 0; t < group_rows; ++t) {
      const auto query = *reinterpret_cast<const float4*>(queries + t * layout.pitch + d);
      const auto key = *reinterpret_cast<const float4*>(keys + t * layout.pitch + d);
      add(t, s[0], query.x, key.x);
      add(t, s[1], query.y, key.y);
      add(t, s[2], query.z, key.z);
      add(t, s[3], query.w, key.w);
    }
  }
  for (; d < width; ++d) {
#pragma unroll
    for (int t = 0; t < group_rows; ++t)
      add(t, state[d * columns], queries[t * layout.pitch + d], keys[t * layout.pitch + d]);
  }
#pragma unroll
  for (int t = 0; t < group_rows; ++t) {
    memory[layout.outs + (first_row + t) * columns + column] = outs[t];
    memory[layout.seen + (first_row + t) * columns + column] = seen[t];
  }
}

// The updates of a column: those of the log, then row by row.
template <class Key>
__device__ void correct(const Arrays<Key>& arrays, const Page& page, const Layout& layout,
                        float* memory, int column) {
  const Recur& p = arrays.p;
  float updates[page_rows];
#pragma unroll
  for (int t = 0; t < page_rows; ++t) {
    if (t >= page.rows) break;
    const int position = page.first + t;
    if (t < page.old) {
      updates[t] = arrays.logged_update(position)[column];
    } else {
      updates[t] = p.v[arrays.row(position) * p.v_stride + arrays.at.head * p.value_width +
                       arrays.at.first_column + column];
      if (p.beta != nullptr) {
        float seen = memory[layout.seen + t * columns + column];
#pragma unroll
        for (int j = 0; j < t; ++j)
          seen += updates[j] * memory[layout.key_weights + t * page_rows + j];
        updates[t] = (updates[t] - seen) * memory[layout.betas + t];
      }
      if (position >= arrays.s.next_anchor) arrays.logged_update(position)[column] = updates[t];
    }
    memory[layout.updates + t * columns + column] = updates[t];
  }
}

template <class Key>
__device__ void write_outs(const Arrays<Key>& arrays, const Page& page, const Layout& layout,
                           const float* memory, int column, int first_row) {
  const Recur& p = arrays.p;
  for (int t = max(first_row, page.old); t < min(first_row + group_rows, page.rows); ++t) {
    float out = memory[layout.outs + t * columns + column];
    for (int j = 0; j <= t; ++j)
      out += memory[layout.updates + j * columns + column] *
             memory[layout.query_weights + t * page_rows + j];
    p.out[arrays.row(page.first + t) * p.out_stride + arrays.at.head * p.value_width +
          arrays.at.first_column + column] = out;
  }
}

// The state at the page's end.
template <class Key>
__device__ void fold(const Arrays<Key>& arrays, const Page& page, const Layout& layout,
                     float* memory, int column, int first_key) {
  const Recur& p = arrays.p;
  float updates[page_rows];
#pragma unroll
  for (int j = 0; j < page_rows; ++j) updates[j] = memory[layout.updates + j * columns + column];
  const bool stays = page.first + page_rows == arrays.s.next_anchor;
  for (int d = first_key; d < p.key_width; d += row_groups) {
    float& number = memory[layout.state + d * columns + column];
    float s = number * memory[layout.carry + d];
#pragma unroll
    for (int j = 0; j < page_rows; ++j)
      s += updates[j] * memory[layout.folded_keys + j * layout.pitch + d];
    number = s;
    if (stays) arrays.anchor()[d * p.value_width + column] = s;
  }
}

// What the log keeps of a page's new rows. Keys are those of all heads that share them.
template <class Key>
__device__ void store_page(const Arrays<Key>& arrays, const Page& page, const Layout& layout,
                           const float* memory) {
  const Recur& p = arrays.p;
  const int thread = static_cast<int>(threadIdx.x);
  const int decays = arrays.decay_width();
  const bool has_keys = arrays.at.head % (p.value_heads / p.key_heads) == 0;
  for (int t = page.old + thread / 32; t < page.rows; t += threads / 32) {
    const int position = page.first + t;
    if (position < arrays.s.next_anchor) continue;
    for (int i = thread % 32; i < decays; i += 32)
      arrays.logged_decay(position)[i] =
          memory[layout.decays + t * (p.decay_by_key ? layout.pitch : 1) + i];
    if (!has_keys) continue;
    for (int i = thread % 32; i < p.key_width; i += 32)
      arrays.logged_key(position)[i] = narrow<Key>(memory[layout.keys + t * layout.pitch + i]);
  }
}

// `stores`: the log has room, so that the kernel writes all of it.
template <class Key, bool decay_by_key>
__global__ void __launch_bounds__(threads)
    recur_rows(const __grid_constant__ Recur p, int tiles, bool stores) {
  extern __shared__ __align__(16) float memory[];
  launch_dependents();
  wait_for_previous_grid();
  const SequenceStep s = sequence_step(p.steps, static_cast<int>(blockIdx.y));
  if (s.count <= 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  const int head = static_cast<int>(blockIdx.x) / tiles;
  const Head at{.head = head,
                .key_head = head / static_cast<int>(p.value_heads / p.key_heads),
                .first_column = tile * columns,
                .size = min(columns, static_cast<int>(p.value_width) - tile * columns)};
  const Arrays<Key> arrays{.p = p, .s = s, .at = at};
  const auto width = static_cast<int>(p.key_width);
  const Layout layout(width, decay_by_key);
  const int column = thread % columns;
  const int group = thread / columns;
  const bool has_column = column < at.size;
  for (int d = group; d < width; d += row_groups) {
    float number = 0;
    if (s.anchor > 0 && has_column) number = arrays.anchor()[d * p.value_width + column];
    memory[layout.state + d * columns + column] = number;
  }
  for (int first = s.anchor; first < s.end(); first += page_rows) {
    const Page page{.first = first,
                    .old = min(max(s.start - first, 0), page_rows),
                    .rows = min(s.end() - first, page_rows),
                    .folds = first < s.next_anchor || first + page_rows < s.end()};
    load_page(arrays, page, layout, memory);
    __syncthreads();
    const Relation relation{.page = page,
                            .layout = layout,
                            .memory = memory,
                            .width = width,
                            .corrects = p.beta != nullptr,
                            .t = thread / lanes,
                            .lane = thread % lanes,
                            .lanes_of_half = 0xFFFFU << (thread / lanes % 2 * lanes)};
    if (relation.t < page.rows && (relation.is_new() || relation.is_last())) {
      if constexpr (decay_by_key) {
        relation.by_key();
      } else {
        relation.by_head();
      }
    }
    __syncthreads();
    if (has_column) read_state(page, layout, memory, width, column, group * group_rows);
    __syncthreads();
    if (group == 0 && has_column) correct(arrays, page, layout, memory, column);
    if (stores && tile == 0) store_page(arrays, page, layout, memory);
    __syncthreads();
    if (has_column) {
      write_outs(arrays, page, layout, memory, column, group * group_rows);
      if (page.folds) fold(arrays, page, layout, memory, column, group);
    }
    __syncthreads();
  }
}

// What the log keeps of keys and decays, after every head has read it.
template <class Key>
__global__ void __launch_bounds__(threads) store_rows(const __grid_constant__ Recur p) {
  launch_dependents();
  wait_for_previous_grid();
  const SequenceStep s = sequence_step(p.steps, static_cast<int>(blockIdx.y));
  if (s.count <= 0) return;
  const int position = s.kept_from() + static_cast<int>(blockIdx.x);
  if (position >= s.end()) return;
  const std::int64_t row = s.row + position - s.start;
  const std::int64_t slot = s.slot * p.memory.slot_stride;
  const std::int64_t keys = p.key_heads * p.key_width;
  auto* const log = reinterpret_cast<Key*>(static_cast<float*>(p.memory.keys) + slot) +
                    position % log_rows * keys;
  for (std::int64_t i = threadIdx.x; i < keys; i += threads)
    log[i] = narrow<Key>(p.k[row * p.k_stride + i]);
  const std::int64_t decays = p.value_heads * (p.decay_by_key ? p.key_width : 1);
  float* const decay = p.memory.decays + slot + position % log_rows * decays;
  for (std::int64_t i = threadIdx.x; i < decays; i += threads) decay[i] = p.g[row * p.g_stride + i];
}

template <class Key>
void launch_all(const Recur& p, StreamHandle stream) {
  const bool stores = log_has_room(p.steps);
  const auto tiles = static_cast<int>((p.value_width + columns - 1) / columns);
  const auto sequences = static_cast<unsigned>(p.steps.rows.count);
  const LaunchShape shape{.grid = static_cast<unsigned>(tiles * p.value_heads),
                          .grid_y = sequences,
                          .threads = threads,
                          .shared_bytes = Layout(p.key_width, p.decay_by_key).bytes()};
  with_flag(p.decay_by_key, [&](auto flag) {
    launch("recur", recur_rows<Key, flag.value>, shape, stream, p, tiles, stores);
  });
  if (stores) return;
  launch("recur_store", store_rows<Key>,
         {.grid = static_cast<unsigned>(std::min(most_rows(p.steps), most_kept_rows)),
          .grid_y = sequences,
          .threads = threads},
         stream, p);
}

template <class Key, bool decay_by_key>
Result<void> prepare() {
  return allow_shared_memory("recur", recur_rows<Key, decay_by_key>,
                             Layout(max_key_width, decay_by_key).bytes());
}

}  // namespace

Result<void> prepare_recur_exact() {
  MOTLEY_TRY_VOID((prepare<float, false>()));
  MOTLEY_TRY_VOID((prepare<float, true>()));
  MOTLEY_TRY_VOID((prepare<bf16, false>()));
  return prepare<bf16, true>();
}

void recur_exact(const Recur& p, StreamHandle stream) {
  with_type(p.memory.key_type, [&](auto key) { launch_all<decltype(key)>(p, stream); });
}

}  // namespace motley::kernels::cuda
