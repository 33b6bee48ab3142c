#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/recurrence.h"

// One head of one sequence through the rows of a step, and one block of channels of a convolution,
// for the Isa of the including file. Columns of a state do not mix, so a block of sixteen goes
// through two pages at a time; what stands between the two is on the stack, and so is the state of
// a page that may be taken back.
namespace motley::kernels::cpu::recurrence_body {

template <class Isa>
using Floats = typename Lanes<Isa>::Floats;

static_assert(state_page == 16, "the decays of a page are one value of Lanes");

// The rows of one page: `old` ones of the log, then those of the step.
struct Page {
  std::int64_t first;  // position
  std::int64_t old;
  std::int64_t rows;     // with the old ones
  bool folds;            // another page follows, or the state moves to its end
  std::int64_t kept_to;  // updates from this position on go to the log

  const float* keys[state_page];
  const float* queries[state_page];
  const float* values[state_page];
  float* outs[state_page];
  float betas[state_page];
  float* updates[state_page];  // in the log

  // Of a new row: times e^(the decays from the page's border to it).
  alignas(64) float far_keys[state_page][max_key_width];
  alignas(64) float far_queries[state_page][max_key_width];
  // [t][j] with j before t: row j's update as row t's key and query see it.
  alignas(64) float key_weights[state_page][state_page];
  alignas(64) float query_weights[state_page][state_page];
  // Times e^(the decays from a row to the page's end).
  alignas(64) float folded_keys[state_page][max_key_width];
  alignas(64) float carry[max_key_width];
};

struct Head {
  std::int64_t head;
  std::int64_t slot;
  std::int64_t row;    // the first of the step
  std::int64_t start;  // its position
};

template <class Isa>
[[gnu::always_inline]] inline float dot(const float* a, const float* b, std::int64_t width) {
  using L = Lanes<Isa>;
  Floats<Isa> sums{};
  for (std::int64_t i = 0; i < width; i += L::count)
    sums += L::read(a, i, width) * L::read(b, i, width);
  return L::sum(sums);
}

// out = a e^(exponent of each number)
template <class Isa>
[[gnu::always_inline]] inline void scale(const float* a, const float* exponents, std::int64_t width,
                                         float* out) {
  using L = Lanes<Isa>;
  for (std::int64_t i = 0; i < width; i += L::count)
    L::write(out, i, width, L::read(a, i, width) * L::exp(L::read(exponents, i, width)));
}
template <class Isa>
[[gnu::always_inline]] inline void scale(const float* a, float factor, std::int64_t width,
                                         float* out) {
  using L = Lanes<Isa>;
  for (std::int64_t i = 0; i < width; i += L::count)
    L::write(out, i, width, L::read(a, i, width) * factor);
}

// Finds a page's rows, in the log and in the step; the log gets the decays of those that stay in
// it.
template <class Isa>
void find_rows(const Recur& p, const Head& at, const float* (&decays)[state_page], Page& page) {
  const std::int64_t key_head = at.head / (p.value_heads / p.key_heads);
  const std::int64_t decay_width = p.decay_by_key ? p.key_width : 1;
  const std::int64_t slot = at.slot * p.memory.slot_stride;
  for (std::int64_t t = 0; t < page.rows; ++t) {
    const std::int64_t position = page.first + t;
    const std::int64_t logged = position % state_log_rows;
    const std::int64_t value_head = logged * p.value_heads + at.head;
    page.updates[t] = p.memory.updates + slot + value_head * p.value_width;
    float* const decay = p.memory.decays + slot + value_head * decay_width;
    if (t < page.old) {
      page.keys[t] = static_cast<const float*>(p.memory.keys) + slot +
                     (logged * p.key_heads + key_head) * p.key_width;
      decays[t] = decay;
      continue;
    }
    const std::int64_t row = at.row + position - at.start;
    page.keys[t] = p.k + row * p.k_stride + key_head * p.key_width;
    page.queries[t] = p.q + row * p.q_stride + key_head * p.key_width;
    page.values[t] = p.v + row * p.v_stride + at.head * p.value_width;
    page.outs[t] = p.out + row * p.out_stride + at.head * p.value_width;
    page.betas[t] = p.beta == nullptr ? 0 : p.beta[row * p.beta_stride + at.head];
    decays[t] = p.g + row * p.g_stride + at.head * decay_width;
    if (position < page.kept_to) continue;
    for (std::int64_t i = 0; i < decay_width; ++i) decay[i] = decays[t][i];
  }
}

// New rows, and the last one of a page that folds.
template <class Isa>
std::int64_t first_related(const Page& page) {
  return page.folds && page.old == state_page ? state_page - 1 : page.old;
}

// What the rows of a page are to each other, where S decays as a whole. The decays between two rows
// are summed from the later one back, so that no large sums are subtracted.
template <class Isa>
void relate_by_head(const Recur& p, const float* const (&decays)[state_page], Page& page) {
  using L = Lanes<Isa>;
  const std::int64_t width = p.key_width;
  for (std::int64_t t = first_related<Isa>(page); t < page.rows; ++t) {
    const bool last = page.folds && t == state_page - 1;
    alignas(64) float exponents[state_page] = {};
    float sum = 0;
    for (std::int64_t j = t; j >= 0; --j) {
      exponents[j] = sum;
      sum += *decays[j];
    }
    const Floats<Isa> between = L::exp(L::read(exponents, 0, state_page));
    const float far = L::exp(L::all(sum))[0];
    if (t >= page.old) {
      for (std::int64_t j = 0; j <= t; ++j) {
        page.query_weights[t][j] = between[j] * dot<Isa>(page.keys[j], page.queries[t], width);
        if (p.beta != nullptr && j < t)
          page.key_weights[t][j] = between[j] * dot<Isa>(page.keys[j], page.keys[t], width);
      }
      scale<Isa>(page.queries[t], far, width, page.far_queries[t]);
      if (p.beta != nullptr) scale<Isa>(page.keys[t], far, width, page.far_keys[t]);
    }
    if (!last) continue;
    for (std::int64_t j = 0; j < state_page; ++j)
      scale<Isa>(page.keys[j], between[j], width, page.folded_keys[j]);
    for (std::int64_t i = 0; i < width; i += L::count) L::write(page.carry, i, width, L::all(far));
  }
}

// The same where each row of S has a decay of its own.
template <class Isa>
void relate_by_key(const Recur& p, const float* const (&decays)[state_page], Page& page) {
  using L = Lanes<Isa>;
  const std::int64_t width = p.key_width;
  alignas(64) float sums[max_key_width];
  alignas(64) float faded[max_key_width];
  for (std::int64_t t = first_related<Isa>(page); t < page.rows; ++t) {
    const bool last = page.folds && t == state_page - 1;
    for (std::int64_t i = 0; i < width; ++i) sums[i] = 0;
    for (std::int64_t j = t; j >= 0; --j) {
      scale<Isa>(page.keys[j], sums, width, faded);
      if (t >= page.old) {
        page.query_weights[t][j] = dot<Isa>(faded, page.queries[t], width);
        if (p.beta != nullptr && j < t)
          page.key_weights[t][j] = dot<Isa>(faded, page.keys[t], width);
      }
      if (last) scale<Isa>(faded, 1.0F, width, page.folded_keys[j]);
      for (std::int64_t i = 0; i < width; i += L::count)
        L::write(sums, i, width, L::read(sums, i, width) + L::read(decays[j], i, width));
    }
    if (t >= page.old) {
      scale<Isa>(page.queries[t], sums, width, page.far_queries[t]);
      if (p.beta != nullptr) scale<Isa>(page.keys[t], sums, width, page.far_keys[t]);
    }
    if (!last) continue;
    for (std::int64_t i = 0; i < width; i += L::count)
      L::write(page.carry, i, width, L::exp(L::read(sums, i, width)));
  }
}

// Sixteen columns of a state, in the layer's memory or on the stack.
struct Columns {
  float* rows;
  std::int64_t stride;
  std::int64_t at;
  std::int64_t size;
};

// sums[t] = S^T of `count` rows' keys or queries, the rows of S ascending.
template <class Isa, int count>
[[gnu::always_inline]] inline void read_state(const Columns& state, std::int64_t width,
                                              const float (*rows)[max_key_width],
                                              Floats<Isa>* sums) {
  using L = Lanes<Isa>;
  Floats<Isa> local[count];
  for (Floats<Isa>& sum : local) sum = Floats<Isa>{};
  for (std::int64_t d = 0; d < width; ++d) {
    const Floats<Isa> s = L::read(state.rows + d * state.stride, state.at, state.size);
    for (int t = 0; t < count; ++t) local[t] += s * rows[t][d];
  }
  for (int t = 0; t < count; ++t) sums[t] = local[t];
}
template <class Isa>
void read_state(const Columns& state, std::int64_t width, const float (*rows)[max_key_width],
                std::int64_t count, Floats<Isa>* sums) {
  std::int64_t t = 0;
  for (; t + 4 <= count; t += 4) read_state<Isa, 4>(state, width, rows + t, sums + t);
  for (; t < count; ++t) read_state<Isa, 1>(state, width, rows + t, sums + t);
}

// Columns [at, at + 16) of the outputs and updates of a page; then of the state at its end.
template <class Isa>
void pass_page(const Recur& p, const Page& page, const Columns& state, std::int64_t at,
               const Columns& end) {
  using L = Lanes<Isa>;
  const std::int64_t width = p.key_width;
  Floats<Isa> updates[state_page];  // NOLINT(*-member-init): filled row by row
  Floats<Isa> seen[state_page];     // NOLINT(*-member-init)
  Floats<Isa> outs[state_page];     // NOLINT(*-member-init)
  const std::int64_t fresh = page.rows - page.old;
  read_state<Isa>(state, width, page.far_queries + page.old, fresh, outs + page.old);
  if (p.beta != nullptr)
    read_state<Isa>(state, width, page.far_keys + page.old, fresh, seen + page.old);
  for (std::int64_t j = 0; j < page.old; ++j)
    updates[j] = L::read(page.updates[j], at, p.value_width);
  for (std::int64_t t = page.old; t < page.rows; ++t) {
    updates[t] = L::read(page.values[t], at, p.value_width);
    if (p.beta != nullptr) {
      for (std::int64_t j = 0; j < t; ++j) seen[t] += updates[j] * page.key_weights[t][j];
      updates[t] = (updates[t] - seen[t]) * page.betas[t];
    }
    for (std::int64_t j = 0; j <= t; ++j) outs[t] += updates[j] * page.query_weights[t][j];
    L::write(page.outs[t], at, p.value_width, outs[t]);
    if (page.first + t >= page.kept_to) L::write(page.updates[t], at, p.value_width, updates[t]);
  }
  if (!page.folds) return;
  for (std::int64_t d = 0; d < width; ++d) {
    Floats<Isa> s = L::read(state.rows + d * state.stride, state.at, state.size) * page.carry[d];
    for (std::int64_t j = 0; j < state_page; ++j) s += updates[j] * page.folded_keys[j][d];
    L::write(end.rows + d * end.stride, end.at, end.size, s);
  }
}

// Up to two pages that follow each other; the state behind them goes to memory if both are folded.
template <class Isa>
void pass_pages(const Recur& p, const Head& at, const Page* pages, std::int64_t count,
                bool zero_before) {
  using L = Lanes<Isa>;
  float* const memory =
      p.memory.anchors + at.slot * p.memory.slot_stride + at.head * p.key_width * p.value_width;
  alignas(64) float local[max_key_width * L::count];
  for (std::int64_t column = 0; column < p.value_width; column += L::count) {
    const Columns stored{
        .rows = memory, .stride = p.value_width, .at = column, .size = p.value_width};
    const Columns held{.rows = local, .stride = L::count, .at = 0, .size = L::count};
    if (zero_before) {
      for (std::int64_t i = 0; i < p.key_width * L::count; ++i) local[i] = 0;
    }
    Columns before = zero_before ? held : stored;
    for (std::int64_t i = 0; i < count; ++i) {
      pass_page<Isa>(p, pages[i], before, column, i + 1 < count ? held : stored);
      before = held;
    }
  }
}

template <class Isa>
void recur(const Recur& p, std::int64_t sequence, std::int64_t head) {
  const Sequences& rows = p.steps.rows;
  const std::int64_t row = rows.seq_begin[sequence];
  const std::int64_t count = rows.seq_begin[sequence + 1] - row;
  if (count == 0) return;
  const Head at{
      .head = head, .slot = p.steps.slots[sequence], .row = row, .start = rows.positions[row]};
  const std::int64_t end = at.start + count;
  const std::int64_t anchor = anchor_after(at.start, p.steps.certain[sequence]);
  Page pages[2];  // NOLINT(*-member-init): large, filled as far as it is read
  for (std::int64_t first = p.steps.anchors[sequence]; first < end;) {
    // All up to the new anchor in twos; what is behind it is at most two pages.
    const bool moves = first < anchor;
    const std::int64_t before = first;
    const std::int64_t stop = moves && anchor - first < 2 * state_page ? anchor : end;
    std::int64_t filled = 0;
    for (; filled < 2 && first < stop; ++filled, first += state_page) {
      Page& page = pages[filled];
      page.first = first;
      page.old = at.start > first ? at.start - first : 0;
      if (page.old > state_page) page.old = state_page;
      page.rows = end - first < state_page ? end - first : state_page;
      page.folds = moves || (filled == 0 && first + state_page < end);
      page.kept_to = anchor;
      const float* decays[state_page];  // NOLINT(*-member-init)
      find_rows<Isa>(p, at, decays, page);
      if (p.decay_by_key) {
        relate_by_key<Isa>(p, decays, page);
      } else {
        relate_by_head<Isa>(p, decays, page);
      }
    }
    pass_pages<Isa>(p, at, pages, filled, before == 0);
  }
}

// Channels [begin, end) of one sequence.
template <class Isa>
void convolve(const Convolve& p, std::int64_t sequence, std::int64_t begin, std::int64_t end) {
  using L = Lanes<Isa>;
  const std::int64_t first = p.steps.rows.seq_begin[sequence];
  const std::int64_t count = p.steps.rows.seq_begin[sequence + 1] - first;
  if (count == 0) return;
  const std::int64_t start = p.steps.rows.positions[first];
  const std::int64_t slot = p.steps.slots[sequence] * p.memory.slot_stride;
  const std::int64_t anchor = p.steps.anchors[sequence];
  const std::int64_t next_anchor = anchor_after(start, p.steps.certain[sequence]);
  float* const log = static_cast<float*>(p.memory.inputs) + slot;
  const auto logged = [&](std::int64_t position) {
    return log + position % convolution_log_rows * p.channels;
  };
  const auto before_anchor = [&](std::int64_t rows) {
    return static_cast<float*>(p.memory.history) + slot + (p.taps - 1 - rows) * p.channels;
  };
  const auto input = [&](std::int64_t position) -> const float* {
    if (position >= start) return p.x + (first + position - start) * p.x_stride;
    return position < anchor ? before_anchor(anchor - position) : logged(position);
  };
  for (std::int64_t c = begin; c < end; c += L::count) {
    Floats<Isa> weights[max_taps] = {};
    for (std::int64_t lane = 0; lane < L::count && c + lane < p.channels; ++lane) {
      for (std::int64_t i = 0; i < p.taps; ++i)
        weights[i][lane] = p.weight[(c + lane) * p.taps + i];
    }
    for (std::int64_t r = 0; r < count; ++r) {
      Floats<Isa> sum{};
      for (std::int64_t i = 0; i < p.taps; ++i) {
        const std::int64_t position = start + r - (p.taps - 1) + i;
        if (position < 0) continue;
        sum += L::read(input(position), c, p.channels) * weights[i];
      }
      if (p.bias != nullptr) sum += L::read(p.bias, c, p.channels);
      if (p.silu) sum *= L::sigmoid(sum);
      L::write(p.out + (first + r) * p.out_stride, c, p.channels, sum);
    }
    if (next_anchor > anchor) {
      for (std::int64_t back = p.taps - 1; back > 0; --back)
        L::write(before_anchor(back), c, p.channels,
                 L::read(input(next_anchor - back), c, p.channels));
    }
    // Only what a later row or a taken-back one reads is kept.
    for (std::int64_t r = count > convolution_log_rows ? count - convolution_log_rows : 0;
         r < count; ++r)
      L::write(logged(start + r), c, p.channels,
               L::read(p.x + (first + r) * p.x_stride, c, p.channels));
  }
}

}  // namespace motley::kernels::cpu::recurrence_body
