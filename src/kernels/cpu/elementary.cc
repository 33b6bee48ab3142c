#include "kernels/elementary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/number_types.h"
#include "base/system/thread_pool.h"
#include "kernels/adapters.h"
#include "kernels/cpu/elementary_loops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/input_maxima.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/recurrence.h"
#include "kernels/cpu/router.h"
#include "kernels/cpu/sampling.h"
#include "kernels/heads_apart.h"
#include "kernels/kv_codes.h"

// The table: who does which rows. The loops themselves stand in elementary_body.h.
namespace motley::kernels::cpu {
namespace {

// About as many numbers as are worth another thread's waking.
constexpr std::int64_t numbers_a_range = 8192;

constexpr std::int64_t threads_worth(std::int64_t numbers) { return numbers / numbers_a_range + 1; }

void for_ranges(StreamHandle stream, std::int64_t count, std::int64_t numbers_each,
                FunctionRef<void(std::int64_t, std::int64_t)> body) {
  auto* pool = static_cast<ThreadPool*>(stream.native);
  if (count <= 0) return;
  if (pool == nullptr) return body(0, count);
  pool->for_ranges(count, numbers_a_range / std::max<std::int64_t>(numbers_each, 1) + 1, body);
}

// Tasks that read or multiply so many numbers in all.
void for_tasks(StreamHandle stream, std::int64_t tasks, std::int64_t numbers,
               FunctionRef<void(std::int64_t)> body) {
  auto* pool = static_cast<ThreadPool*>(stream.native);
  if (pool != nullptr) return pool->for_tasks(tasks, threads_worth(numbers), body);
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
}

std::int64_t threads(StreamHandle stream, std::int64_t numbers) {
  const auto* pool = static_cast<const ThreadPool*>(stream.native);
  return pool == nullptr ? 1 : std::min<std::int64_t>(pool->size(), threads_worth(numbers));
}

template <InstructionSet set>
void rms_norm(const RmsNorm& p, StreamHandle stream) {
  for_ranges(stream, p.size.rows, p.size.parts * p.size.width,
             [&](std::int64_t begin, std::int64_t end) { loops(set).rms_norm(p, begin, end); });
}

template <InstructionSet set>
void add(const Add& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.width,
             [&](std::int64_t begin, std::int64_t end) { loops(set).add(p, begin, end); });
}

template <InstructionSet set>
void add_and_norm(const AddAndNorm& p, StreamHandle stream) {
  for_ranges(stream, p.add.rows, 2 * p.add.width, [&](std::int64_t begin, std::int64_t end) {
    loops(set).add(p.add, begin, end);
    loops(set).rms_norm(p.norm, begin, end);
  });
}

template <InstructionSet set>
void add_scaled(const AddScaled& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.width,
             [&](std::int64_t begin, std::int64_t end) { loops(set).add_scaled(p, begin, end); });
}

template <InstructionSet set>
void round_to(const RoundTo& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.width,
             [&](std::int64_t begin, std::int64_t end) { loops(set).round_to(p, begin, end); });
}

template <InstructionSet set>
void rope(const Rope& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.heads * p.pairs * 2,
             [&](std::int64_t begin, std::int64_t end) { loops(set).rope(p, begin, end); });
}

template <InstructionSet set>
void activate_and_multiply(const ActivateAndMultiply& p, StreamHandle stream) {
  // An exponential costs about as much as eight sums.
  for_ranges(stream, p.rows, p.width * 8, [&](std::int64_t begin, std::int64_t end) {
    loops(set).activate_and_multiply(p, begin, end);
  });
}

template <InstructionSet set>
void combine(const Combine& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.slots * p.width,
             [&](std::int64_t begin, std::int64_t end) { loops(set).combine(p, begin, end); });
}

template <InstructionSet set>
void log_probabilities(const LogProbabilities& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.width * 8, [&](std::int64_t begin, std::int64_t end) {
    loops(set).log_probabilities(p, begin, end);
  });
}

template <InstructionSet set>
void attention(const Attention& p, StreamHandle stream) {
  const std::int64_t heads_a_kv = p.heads / p.kv_heads;
  const std::int64_t groups = (heads_a_kv + heads_a_task - 1) / heads_a_task;
  const Sequences& sequences = p.sequences;
  const std::int64_t rows = sequences.seq_begin[sequences.count] - sequences.seq_begin[0];
  std::int64_t keys = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    keys += sequences.positions[sequences.seq_begin[0] + row] + 1;
  // Tasks walk a kv head's rows one after the other, so that its keys stay in the cache.
  for_tasks(
      stream, rows * p.kv_heads * groups, keys * p.heads * p.key_width, [&](std::int64_t task) {
        const auto row =
            static_cast<std::int32_t>(task / (p.kv_heads * groups) + sequences.seq_begin[0]);
        const std::int64_t kv_head = task / groups % p.kv_heads;
        const std::int64_t first = task % groups * heads_a_task;
        const std::int32_t* after =
            std::upper_bound(sequences.seq_begin, sequences.seq_begin + sequences.count + 1, row);
        loops(set).attention(p, after - sequences.seq_begin - 1, row, kv_head * heads_a_kv + first,
                             std::min(heads_a_task, heads_a_kv - first));
      });
}

// Outputs of one task: enough that packing x is little beside them, few enough that every thread
// has several.
std::int64_t outputs_a_task(std::int64_t out, std::int64_t rows, std::int64_t threads) {
  const std::int64_t most = rows > 8 ? 128 : 64;
  const std::int64_t tasks = std::int64_t{4} * threads;
  const std::int64_t wanted = (out + tasks - 1) / tasks;
  return std::clamp<std::int64_t>((wanted + 3) / 4 * 4, 16, most);
}

template <InstructionSet set>
void linear(const Linear& p, StreamHandle stream) {
  // Weights are read once for some rows.
  const std::int64_t numbers = p.heads * p.out * p.w.in * ((p.rows + 7) / 8);
  const std::int64_t outputs = outputs_a_task(p.out * p.heads, p.rows, threads(stream, numbers));
  const std::int64_t tasks_a_head = (p.out + outputs - 1) / outputs;
  const std::int64_t element_bytes = p.x_type == DType::f32 ? 4 : 2;
  for_tasks(stream, p.heads * tasks_a_head, numbers, [&](std::int64_t task) {
    const std::int64_t head = task / tasks_a_head;
    const std::int64_t begin = task % tasks_a_head * outputs;
    const std::int64_t end = std::min(begin + outputs, p.out);
    const std::int64_t first = head * p.w_rows_per_head + p.w_first;
    gemm_tile(set,
              {.x = static_cast<const std::byte*>(p.x) + head * p.x_head_stride * element_bytes,
               .x_type = p.x_type,
               .x_stride = p.x_stride,
               .maxima = p.maxima,
               .rows = p.rows,
               .w = p.w,
               .out_begin = first + begin,
               .out_end = first + end,
               .y = p.y + head * p.y_head_stride + begin,
               .y_stride = p.y_stride,
               .exact = p.exact});
  });
}

template <InstructionSet set>
void linears(const Linears& p, StreamHandle stream) {
  for (std::int64_t i = 0; i < p.count; ++i) linear<set>(p.all[i], stream);
}

template <InstructionSet set>
void norm_and_route(const NormAndRoute& p, StreamHandle stream) {
  add_and_norm<set>(p.rows, stream);
  linear<set>(p.router, stream);
  if (p.logits_only) return;
  if (p.bias != nullptr) {
    round_to<set>({.rows = p.router.rows,
                   .width = p.router.out,
                   .x = p.router.y,
                   .x_stride = p.router.y_stride,
                   .bias = p.bias,
                   .out = p.router.y,
                   .out_stride = p.router.y_stride},
                  stream);
  }
  route(p.route, stream);
}

float read_number(const void* from, DType type, std::int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(from);
  if (type == DType::f32) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * index, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes + 2 * index, sizeof bits);
  return type == DType::bf16 ? bf16{bits}.to_float() : f16{bits}.to_float();
}

template <InstructionSet set>
void linear_transposed(const LinearTransposed& p, StreamHandle stream) {
  // A task owns some of the inputs' places of one head, for every row.
  constexpr std::int64_t inputs_a_task = 256;
  const std::int64_t tasks_a_head = (p.w.in + inputs_a_task - 1) / inputs_a_task;
  const std::int64_t element_bytes = p.x_type == DType::f32 ? 4 : 2;
  const std::int64_t numbers = p.heads * p.out * p.w.in * p.rows;
  for_tasks(stream, p.heads * tasks_a_head, numbers, [&](std::int64_t task) {
    const std::int64_t head = task / tasks_a_head;
    const std::int64_t begin = task % tasks_a_head * inputs_a_task;
    transposed_tile(
        set, {.x = static_cast<const std::byte*>(p.x) + head * p.x_head_stride * element_bytes,
              .x_type = p.x_type,
              .x_stride = p.x_stride,
              .rows = p.rows,
              .w = p.w,
              .first = head * p.w_rows_per_head + p.w_first,
              .count = p.out,
              .in_begin = begin,
              .in_end = std::min(begin + inputs_a_task, p.w.in),
              .y = p.y + head * p.y_head_stride + begin,
              .y_stride = p.y_stride});
  });
}

void rope_table(const RopeTable& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.pairs * 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* cosines = p.cos_sin + row * 2 * p.pairs;
      for (std::int64_t i = 0; i < p.pairs; ++i) {
        // The angle is rounded to float32 before its cosine, as models are trained.
        const float angle = static_cast<float>(p.positions[row]) * p.inverse_frequencies[i];
        cosines[i] = std::cos(angle) * p.factor;
        cosines[p.pairs + i] = std::sin(angle) * p.factor;
      }
    }
  });
}

void embed(const Embed& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* out = p.out + row * p.out_stride;
      const std::int64_t id = p.ids[row];
      const bool inside = id >= 0 && id < p.table_rows;
      for (std::int64_t i = 0; i < p.width; ++i)
        out[i] = inside ? read_number(p.table, p.table_type, id * p.width + i) : 0.0F;
    }
  });
}

// Writes each row's keys or values, rounded, to its position's place.
struct StorePaged {
  Sequences sequences{};
  BlockTable table{};
  Pages pages{};
  PagedTail tail{};
  std::int64_t heads = 0;
  std::int64_t width = 0;  // the tail's included
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t x_head_stride = 0;
};

// Where a token of a head stands.
struct Place {
  std::int64_t page = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;

  std::int64_t in(const Pages& pages) const {
    return page * pages.page_stride + token * pages.token_stride + head * pages.head_stride;
  }
};

// Numbers of a row of activations.
struct RowNumbers {
  const void* x = nullptr;
  DType type = DType::f32;
  std::int64_t at = 0;
  std::int64_t count = 0;

  float operator[](std::int64_t i) const { return read_number(x, type, at + i); }
};

void store_codes(const RowNumbers& x, const Pages& pages, const Place& place,
                 std::int64_t page_tokens) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < x.count; ++i) largest = kv_largest(largest, x[i]);
  const bool fixed = pages.fixed_scale > 0;
  const std::uint8_t exponent = fixed ? kv_exponent_of_fixed(largest) : kv_exponent(largest);
  pages.exponents[place.page * pages.page_stride + place.head * page_tokens + place.token] =
      exponent;
  auto* const to = static_cast<std::uint8_t*>(pages.data) + place.in(pages);
  const float inverse = kv_inverse_power(exponent);
  for (std::int64_t i = 0; i < x.count; ++i)
    to[i] = kv_code(fixed ? x[i] / pages.fixed_scale : x[i] * inverse);
}

void store_numbers(const RowNumbers& x, const Pages& pages, const Place& place) {
  const std::int64_t to = place.in(pages);
  for (std::int64_t i = 0; i < x.count; ++i) {
    if (pages.type == DType::f32) {
      static_cast<float*>(pages.data)[to + i] = x[i];
    } else {
      static_cast<bf16*>(pages.data)[to + i] = bf16::from(x[i]);
    }
  }
}

void store_paged(const StorePaged& p, StreamHandle stream) {
  const Sequences& sequences = p.sequences;
  const std::int32_t* begins = sequences.seq_begin;
  const std::int64_t rows = begins[sequences.count] - begins[0];
  const std::int64_t own = p.width - p.tail.width;
  for_ranges(stream, rows, p.heads * p.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begins[0] + begin; row < begins[0] + end; ++row) {
      const std::int64_t sequence =
          std::upper_bound(begins, begins + sequences.count + 1, row) - begins - 1;
      const std::int64_t position = sequences.positions[row];
      Place place{.page = p.table.pages[sequence * p.table.stride + position / p.table.page_tokens],
                  .token = position % p.table.page_tokens};
      for (place.head = 0; place.head < p.heads; ++place.head) {
        const std::int64_t from = row * p.x_stride + place.head * p.x_head_stride;
        const RowNumbers numbers{p.x, p.x_type, from, own};
        if (p.pages.type == DType::f8_e4m3) {
          store_codes(numbers, p.pages, place, p.table.page_tokens);
        } else {
          store_numbers(numbers, p.pages, place);
        }
        if (p.tail.width > 0)
          store_numbers({p.x, p.x_type, from + own, p.tail.width}, p.tail.pages, place);
      }
    }
  });
}

// One row of codes and their tail, as bf16.
void gather_codes(const GatherPaged& p, const Place& place, bf16* out) {
  const std::int64_t own = p.width - p.tail.width;
  const auto* const codes = static_cast<const f8_e4m3*>(p.pages.data) + place.in(p.pages);
  const std::uint8_t exponent = p.pages.exponents[place.page * p.pages.page_stride + place.token];
  const float factor = kv_power(exponent) * kv_factor(p.pages.fixed_scale);
  for (std::int64_t i = 0; i < own; ++i) out[i] = bf16::from(codes[i].to_float() * factor);
  if (p.tail.width == 0) return;
  std::memcpy(out + own, static_cast<const bf16*>(p.tail.pages.data) + place.in(p.tail.pages),
              static_cast<std::size_t>(p.tail.width) * sizeof(bf16));
}

void gather_paged(const GatherPaged& p, StreamHandle stream) {
  const std::size_t number = p.pages.type == DType::f32 ? sizeof(float) : sizeof(bf16);
  for_ranges(stream, p.rows, p.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t sequence =
          std::upper_bound(p.begin, p.begin + p.sequences.count + 1, row) - p.begin - 1;
      const std::int64_t position = row - p.begin[sequence];
      const Place place{
          .page = p.table.pages[sequence * p.table.stride + position / p.table.page_tokens],
          .token = position % p.table.page_tokens};
      std::byte* const out =
          static_cast<std::byte*>(p.out) + static_cast<std::size_t>(row * p.out_stride) * number;
      if (p.pages.type == DType::f8_e4m3) {
        gather_codes(p, place, reinterpret_cast<bf16*>(out));
      } else {
        std::memcpy(out,
                    static_cast<const std::byte*>(p.pages.data) +
                        static_cast<std::size_t>(place.in(p.pages)) * number,
                    static_cast<std::size_t>(p.width) * number);
      }
      if (p.labels != nullptr) p.out_labels[row] = p.labels[p.sequences.seq_begin[sequence]];
    }
  });
}

template <InstructionSet set>
void linear_per_head(const LinearPerHead& p, StreamHandle stream) {
  const Linear& product = p.product;
  p.transposed ? linear_transposed<set>(product, stream) : linear<set>(product, stream);
  if (p.rounded == nullptr) return;
  for (std::int64_t head = 0; head < product.heads; ++head) {
    round_to<set>({.rows = product.rows,
                   .width = p.transposed ? product.w.in : product.out,
                   .x = product.y + head * product.y_head_stride,
                   .x_stride = product.y_stride,
                   .out = static_cast<bf16*>(p.rounded) + head * p.rounded_head_stride,
                   .out_type = DType::bf16,
                   .out_stride = p.rounded_stride},
                  stream);
  }
}

template <InstructionSet set>
void prepare_latent(const PrepareLatent& p, StreamHandle stream) {
  float* const latent = p.kv + p.first_row * p.kv_stride;
  rms_norm<set>({.size = {p.rows, 1, p.latent},
                 .x = latent,
                 .x_stride = p.kv_stride,
                 .weight = p.norm_weight,
                 .eps = p.eps,
                 .weight_in_f32 = p.weight_in_f32,
                 .out = latent,
                 .out_stride = p.kv_stride},
                stream);
  Rope turn{.rows = p.rows,
            .heads = 1,
            .pairs = p.pairs,
            .interleaved = p.interleaved,
            .x = latent + p.latent,
            .x_stride = p.kv_stride,
            .cos_sin = p.cos_sin + p.first_row * 2 * p.pairs};
  rope<set>(turn, stream);
  store_paged({.sequences = p.sequences,
               .table = p.table,
               .pages = p.pages,
               .tail = p.tail,
               .heads = 1,
               .width = p.latent + 2 * p.pairs,
               .x = p.kv,
               .x_stride = p.kv_stride},
              stream);
  float* const q = p.q + p.first_row * p.q_stride;
  turn.heads = p.heads;
  turn.x = q + p.width - 2 * p.pairs;
  turn.x_stride = p.q_stride;
  turn.x_head_stride = p.q_head_stride;
  rope<set>(turn, stream);
  const std::size_t number = p.out_type == DType::f32 ? sizeof(float) : sizeof(bf16);
  for (std::int64_t head = 0; head < p.heads; ++head) {
    const std::int64_t to = p.first_row * p.out_stride + head * p.out_head_stride;
    round_to<set>({.rows = p.rows,
                   .width = p.width - p.out_from,
                   .x = q + head * p.q_head_stride + p.out_from,
                   .x_stride = p.q_stride,
                   .out = static_cast<std::byte*>(p.out) + static_cast<std::size_t>(to) * number,
                   .out_type = p.out_type,
                   .out_stride = p.out_stride},
                  stream);
  }
}

template <InstructionSet set>
void prepare_heads(const PrepareHeads& p, StreamHandle stream) {
  for (std::int64_t i = 0; i < p.count; ++i) {
    const Heads& heads = p.all[i];
    if (heads.bias != nullptr) {
      MOTLEY_CHECK(heads.x_head_stride == heads.width, "heads side by side");
      round_to<set>(bias_of(heads, p.rows), stream);
    }
    if (heads.norm_weight != nullptr) rms_norm<set>(norm_of(heads, p.rows), stream);
    if (heads.cos_sin != nullptr) {
      rope<set>({.rows = p.rows,
                 .heads = heads.heads,
                 .pairs = heads.pairs,
                 .interleaved = heads.interleaved,
                 .x = heads.x,
                 .x_type = heads.x_type,
                 .x_stride = heads.x_stride,
                 .x_head_stride = heads.x_head_stride,
                 .cos_sin = heads.cos_sin},
                stream);
    }
    if (heads.pages.data != nullptr) {
      store_paged({.sequences = p.sequences,
                   .table = p.table,
                   .pages = heads.pages,
                   .tail = heads.tail,
                   .heads = heads.heads,
                   .width = heads.width,
                   .x = heads.x,
                   .x_type = heads.x_type,
                   .x_stride = heads.x_stride,
                   .x_head_stride = heads.x_head_stride},
                  stream);
    }
    if (heads.out == nullptr || heads.out == heads.x) continue;
    const std::int64_t in_bytes = heads.x_type == DType::f32 ? 4 : 2;
    const std::int64_t out_bytes = heads.out_type == DType::f32 ? 4 : 2;
    for (std::int64_t head = 0; head < heads.heads; ++head) {
      round_to<set>(
          {.rows = p.rows,
           .width = heads.width,
           .x = static_cast<const std::byte*>(heads.x) + head * heads.x_head_stride * in_bytes,
           .x_type = heads.x_type,
           .x_stride = heads.x_stride,
           .out = static_cast<std::byte*>(heads.out) + head * heads.out_head_stride * out_bytes,
           .out_type = heads.out_type,
           .out_stride = heads.out_stride},
          stream);
    }
  }
}

bool stands_before(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

void top_k(const TopK& p, StreamHandle stream) {
  for_ranges(stream, p.rows, p.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = p.x + row * p.x_stride;
      std::int32_t* ids = p.ids + row * p.k;
      std::int64_t held = 0;
      for (std::int64_t i = 0; i < p.width; ++i) {
        if (held == p.k && (p.k == 0 || !stands_before(x[i], x[ids[held - 1]]))) continue;
        std::int64_t at = held < p.k ? held++ : held - 1;
        for (; at > 0 && stands_before(x[i], x[ids[at - 1]]); --at) ids[at] = ids[at - 1];
        ids[at] = static_cast<std::int32_t>(i);
      }
      if (p.values == nullptr) continue;
      for (std::int64_t i = 0; i < p.k; ++i) p.values[row * p.k + i] = x[ids[i]];
    }
  });
}

// Nothing is read from tables here.
constexpr AdapterTable walked_by_lora{};

template <InstructionSet set>
constexpr RecurrenceTable recurrence_table{
    .kept_types = kept_types,
    .recur = [](const Recur& p, StreamHandle stream) { recur(p, stream, set); },
    .convolve = [](const Convolve& p, StreamHandle stream) { convolve(p, stream, set); },
    .gates = gates};

template <InstructionSet set>
constexpr ElementaryTable table() {
  return {
      .rms_norm = rms_norm<set>,
      .add = add<set>,
      .add_and_norm = add_and_norm<set>,
      .add_scaled = add_scaled<set>,
      .round_to = round_to<set>,
      .rope_table = rope_table,
      .embed = embed,
      .activate_and_multiply = activate_and_multiply<set>,
      .linear = linear<set>,
      .linears = linears<set>,
      .linear_per_head = linear_per_head<set>,
      .gather_paged = gather_paged,
      .prepare_heads = prepare_heads<set>,
      .prepare_latent = prepare_latent<set>,
      .attention = attention<set>,
      .attention_queries = [](const Attention&) { return DType::f32; },
      .attention_scratch = [](const AttentionShape&,
                              StreamHandle) { return AttentionScratchSize(); },
      .combine = combine<set>,
      .log_probabilities = log_probabilities<set>,
      .top_k = top_k,
      .route = route,
      .norm_and_route = norm_and_route<set>,
      .routes_in_one_launch = [](const NormAndRoute&) { return false; },
      .sample = sample,
      .sample_scratch_bytes = sample_scratch_bytes,
      .count_tokens = count_tokens,
      .input_maxima = input_maxima,
      .adapters = &walked_by_lora,
      .recurrence = &recurrence_table<set>,
  };
}

}  // namespace

const ElementaryLoops& loops(InstructionSet set) {
  switch (set) {
    case InstructionSet::plain:
      return elementary_loops_plain;
    case InstructionSet::avx2:
      return elementary_loops_avx2;
    case InstructionSet::avx512:
    case InstructionSet::avx512_vnni:
    case InstructionSet::avx512_bf16:
      break;
  }
  return elementary_loops_avx512;
}

const ElementaryTable& elementary_table(InstructionSet set) {
  static constexpr ElementaryTable tables[] = {
      table<InstructionSet::plain>(), table<InstructionSet::avx2>(),
      table<InstructionSet::avx512>(), table<InstructionSet::avx512_vnni>(),
      table<InstructionSet::avx512_bf16>()};
  return tables[static_cast<std::size_t>(set)];
}

}  // namespace motley::kernels::cpu

namespace motley::kernels {

const ElementaryTable& cpu_table() { return cpu::elementary_table(cpu::current_instruction_set()); }

}  // namespace motley::kernels
