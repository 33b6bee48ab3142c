#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/elementary_loops.h"
#include "kernels/cpu/lanes.h"
#include "kernels/kv_codes.h"

// Attention of one row's heads to its sequence, for the Isa of the including file. Positions come
// in blocks that are cut at multiples of block_positions, whatever the window or the batch; each
// block's scores rescale what stands so far (a running softmax). So a row's bits depend on its own
// sequence and position only.
namespace motley::kernels::cpu::attention_body {

inline constexpr std::int64_t block_positions = 64;

template <class Isa>
struct State {
  using Floats = typename Lanes<Isa>::Floats;
  static constexpr std::int64_t vectors = max_head_width / 16 + 1;  // shared columns apart

  Floats query[heads_a_task][vectors];
  Floats sums[heads_a_task][vectors];
  alignas(64) float scores[heads_a_task][block_positions];
  float most[heads_a_task];
  float total[heads_a_task];
};

// A number of pages of codes.
struct Code {
  std::uint8_t bits;
};
// Columns that all kv heads share are bf16 where the others are codes.
template <class KV>
struct SharedType {
  using Type = KV;
};
template <>
struct SharedType<Code> {
  using Type = std::uint16_t;
};
template <class KV>
using Shared = typename SharedType<KV>::Type;

// Numbers [at, at + 16) of a row of `size`, without their exponent; zeros behind its end.
template <class Isa, class KV>
[[gnu::always_inline]] inline typename Lanes<Isa>::Floats read(const KV* row, std::int64_t at,
                                                               std::int64_t size) {
  using L = Lanes<Isa>;
  if constexpr (!std::is_same_v<KV, Code>) {
    return L::read(row, at, size);
  } else {
    using Words = typename L::Words;
    using Ints = typename L::Ints;
    typedef std::uint8_t Bytes __attribute__((vector_size(16)));
    Bytes bytes{};
    if (at + L::count <= size) {
      __builtin_memcpy(&bytes, row + at, sizeof bytes);
    } else {
      __builtin_memcpy(&bytes, row + at, std::size_t(size - at));
    }
    // Subnormal codes are small integers; the others get float32's exponent.
    const Words code = __builtin_convertvector(bytes, Words);
    const Words magnitude = code & 0x7FU;
    const auto integer = __builtin_bit_cast(Ints, magnitude);
    const auto small =
        __builtin_bit_cast(Words, __builtin_convertvector(integer, typename L::Floats) * 0x1p-9F);
    const Words value = magnitude < 8U ? small : (magnitude << 20) + (120U << 23);
    return __builtin_bit_cast(typename L::Floats, value | ((code & 0x80U) << 24));
  }
}

// The key or value of every position of a block.
template <class T>
struct BlockRows {
  const T* rows[block_positions];
  float powers[block_positions];  // of codes
};

// Positions [first, end) of a sequence, within one block.
struct BlockPositions {
  std::int64_t sequence;
  std::int64_t first;
  std::int64_t end;
};

template <class T>
[[gnu::always_inline]] inline void find_rows(const BlockTable& table, const Pages& pages,
                                             std::int64_t kv_head, const BlockPositions& positions,
                                             BlockRows<T>& block) {
  const auto& [sequence, first, end] = positions;
  const std::int32_t* pages_of = table.pages + sequence * table.stride;
  for (std::int64_t position = first; position < end; ++position) {
    const std::int64_t page = pages_of[position / table.page_tokens];
    const std::int64_t token = position % table.page_tokens;
    block.rows[position - first] = static_cast<const T*>(pages.data) + page * pages.page_stride +
                                   token * pages.token_stride + kv_head * pages.head_stride;
    if constexpr (std::is_same_v<T, Code>) {
      block.powers[position - first] =
          kv_power(pages.exponents[page * pages.page_stride + kv_head * table.page_tokens + token]);
    }
  }
}

// scores[h][j] = scale * q[h] . k[j] for `count` positions. Columns that all kv heads share begin
// with a vector of their own.
template <class Isa, int heads, class KV>
void score_block(const Attention& p, State<Isa>& state, std::int64_t head,
                 const BlockRows<KV>& keys, const BlockRows<Shared<KV>>& shared_keys,
                 std::int64_t count) {
  using L = Lanes<Isa>;
  using Floats = typename L::Floats;
  const float factor = kv_factor(p.k.fixed_scale);
  for (std::int64_t j = 0; j < count; ++j) {
    Floats dots[heads];
    for (Floats& dot : dots) dot = Floats{};
    std::int64_t v = 0;
    const auto add = [&]<class T>(const T* key, std::int64_t width) {
      for (std::int64_t i = 0; i < width; i += L::count, ++v) {
        const Floats k = read<Isa>(key, i, width);
        for (int h = 0; h < heads; ++h) dots[h] += state.query[head + h][v] * k;
      }
    };
    add(keys.rows[j], p.key_width - p.shared_width);
    if constexpr (std::is_same_v<KV, Code>) {
      for (Floats& dot : dots) dot *= keys.powers[j] * factor;
    }
    if (p.shared_width > 0) add(shared_keys.rows[j], p.shared_width);
    for (int h = 0; h < heads; ++h) state.scores[head + h][j] = L::sum(dots[h]) * p.scale;
  }
}

// sums[h] += sum over j of scores[h][j] * v[j], j ascending.
template <class Isa, int heads, class KV>
void add_values(const Attention& p, State<Isa>& state, std::int64_t head,
                const BlockRows<KV>& values, std::int64_t count) {
  using L = Lanes<Isa>;
  using Floats = typename L::Floats;
  const float factor = kv_factor(p.v.fixed_scale);
  for (std::int64_t i = 0, v = 0; i < p.value_width; i += L::count, ++v) {
    Floats sums[heads];
    for (int h = 0; h < heads; ++h) sums[h] = state.sums[head + h][v];
    for (std::int64_t j = 0; j < count; ++j) {
      Floats value = read<Isa>(values.rows[j], i, p.value_width);
      if constexpr (std::is_same_v<KV, Code>) value *= values.powers[j] * factor;
      for (int h = 0; h < heads; ++h) sums[h] += value * state.scores[head + h][j];
    }
    for (int h = 0; h < heads; ++h) state.sums[head + h][v] = sums[h];
  }
}

// Scores become e^(score - most); what stands so far is scaled to the new maximum.
template <class Isa>
void soften(State<Isa>& state, std::int64_t head, std::int64_t count, std::int64_t value_width) {
  using L = Lanes<Isa>;
  using Floats = typename L::Floats;
  float* scores = state.scores[head];
  float most = state.most[head];
  for (std::int64_t j = 0; j < count; ++j) most = scores[j] > most ? scores[j] : most;
  // Lanes behind the last position hold the lowest number, whose exponential is 0.
  for (std::int64_t j = count; j < block_positions; ++j) scores[j] = -__builtin_huge_valf();
  Floats total{};
  for (std::int64_t j = 0; j < block_positions; j += L::count) {
    const Floats weight = L::exp(L::read(scores, j, block_positions) - most);
    L::write(scores, j, block_positions, weight);
    total += weight;
  }
  if (most > state.most[head]) {
    const float factor = L::exp(L::all(state.most[head] - most))[0];
    state.total[head] *= factor;
    for (std::int64_t i = 0, v = 0; i < value_width; i += L::count, ++v)
      state.sums[head][v] *= factor;
    state.most[head] = most;
  }
  state.total[head] += L::sum(total);
}

template <class Isa, class KV>
void attend(const Attention& p, State<Isa>& state, std::int64_t sequence, std::int64_t row,
            std::int64_t head, std::int64_t heads) {
  const std::int64_t kv_head = head / (p.heads / p.kv_heads);
  const std::int64_t end = std::int64_t{p.sequences.positions[row]} + 1;
  const std::int64_t begin = p.window > 0 && end > p.window ? end - p.window : 0;
  BlockRows<KV> rows;            // NOLINT(*-member-init): filled block by block
  BlockRows<Shared<KV>> shared;  // NOLINT(*-member-init)
  for (std::int64_t first = begin; first < end;) {
    const std::int64_t cut = (first / block_positions + 1) * block_positions;
    const std::int64_t stop = cut < end ? cut : end;
    const std::int64_t count = stop - first;
    const BlockPositions positions{sequence, first, stop};
    find_rows(p.table, p.k, kv_head, positions, rows);
    if (p.shared_width > 0) find_rows(p.table, p.shared_k, 0, positions, shared);
    std::int64_t h = 0;
    for (; h + 4 <= heads; h += 4) score_block<Isa, 4>(p, state, h, rows, shared, count);
    for (; h < heads; ++h) score_block<Isa, 1>(p, state, h, rows, shared, count);
    for (h = 0; h < heads; ++h) soften<Isa>(state, h, count, p.value_width);
    find_rows(p.table, p.v, kv_head, positions, rows);
    for (h = 0; h + 4 <= heads; h += 4) add_values<Isa, 4>(p, state, h, rows, count);
    for (; h < heads; ++h) add_values<Isa, 1>(p, state, h, rows, count);
    first = stop;
  }
}

template <class Isa>
void attention(const Attention& p, std::int64_t sequence, std::int64_t row, std::int64_t head,
               std::int64_t heads) {
  using L = Lanes<Isa>;
  using Half = std::uint16_t;
  // Filled as far as the widths go; clearing all of it would cost more than short sequences do.
  State<Isa> state;  // NOLINT(*-member-init)
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::int64_t at = row * p.q_stride + (head + h) * p.q_head_stride;
    std::int64_t v = 0;
    const auto take = [&](std::int64_t first, std::int64_t width) {
      for (std::int64_t i = 0; i < width; i += L::count, ++v) {
        state.query[h][v] = p.q_type == DType::f32
                                ? L::read(static_cast<const float*>(p.q) + at + first, i, width)
                                : L::read(static_cast<const Half*>(p.q) + at + first, i, width);
      }
    };
    const std::int64_t own = p.key_width - p.shared_width;
    take(0, own);
    take(own, p.shared_width);
    for (std::int64_t i = 0, w = 0; i < p.value_width; i += L::count, ++w)
      state.sums[h][w] = typename L::Floats{};
    // A sink stands in the softmax from the start.
    state.most[h] = p.sinks != nullptr ? p.sinks[head + h] : -__builtin_huge_valf();
    state.total[h] = p.sinks != nullptr ? 1.0F : 0.0F;
  }
  if (p.k.type == DType::f32) {
    attend<Isa, float>(p, state, sequence, row, head, heads);
  } else if (p.k.type == DType::f8_e4m3) {
    attend<Isa, Code>(p, state, sequence, row, head, heads);
  } else {
    attend<Isa, Half>(p, state, sequence, row, head, heads);
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::int64_t at = row * p.out_stride + (head + h) * p.out_head_stride;
    const float factor = 1.0F / state.total[h];
    const float* const gates = p.gates.data == nullptr ? nullptr
                                                       : p.gates.data + row * p.gates.stride +
                                                             (head + h) * p.gates.head_stride;
    for (std::int64_t i = 0, v = 0; i < p.value_width; i += L::count, ++v) {
      typename L::Floats value = state.sums[h][v] * factor;
      if (gates != nullptr) value *= L::sigmoid(L::read(gates, i, p.value_width));
      if (p.out_type == DType::f32) {
        L::write(static_cast<float*>(p.out) + at, i, p.value_width, value);
      } else {
        L::write(static_cast<Half*>(p.out) + at, i, p.value_width, value);
      }
    }
  }
}

}  // namespace motley::kernels::cpu::attention_body
