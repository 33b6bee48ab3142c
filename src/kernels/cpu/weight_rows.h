#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/decode_scales.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_variants.h"

// How vector loops read a row of a weight, for the Isa of the including file: one type of row for
// each kind of code and way of its scales. The formats of files differ further, in the scales'
// type, a factor, zero points; that is gone when a row is opened: its scales and zeros are float32
// then, in place where the file has them so, else decoded to the row's scratch.
//
// A row is opened for a span of inputs, and counts them from there. A vector's `open` loads what
// one step needs; `take(v)` gives its vector v, in the order that `arrange` brings x into. The
// tail's bytes come from a zeroed copy. Four rows that are read side by side lie so close that the
// processor's own prefetching loses its way in them: `fetch_ahead` asks for what the next four have
// at the same place.
//
// A number is (code - zero) * scale, the difference exact and the product rounded once, whichever
// loop reads it.
namespace motley::kernels::cpu::gemm_body {

inline constexpr std::int64_t chunk_inputs = 1024;
inline constexpr std::int64_t rows_at_once = 64;  // of x
inline constexpr int weight_rows = 4;             // of a register block

[[gnu::always_inline]] constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// Calls body.template operator()<v>() for v in [0, count).
template <int count, class Body>
[[gnu::always_inline]] inline void unrolled(Body&& body) {
  [&]<int... v>(std::integer_sequence<int, v...>) __attribute__((always_inline)) {
    (body.template operator()<v>(), ...);
  }(std::make_integer_sequence<int, count>());
}

// Inputs that rows are opened for, from a multiple of 256 on.
struct Span {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

[[gnu::always_inline]] inline const std::byte* codes_at(const RowLayout& layout, std::int64_t o,
                                                        const Span& span) {
  const std::int64_t bits = code_bits(layout.w->kind);
  return static_cast<const std::byte*>(layout.w->data) + o * layout.row_bytes +
         span.begin * bits / 8;
}

// The first scale of a row.
[[gnu::always_inline]] inline std::int64_t first_scale(const RowLayout& layout, std::int64_t o) {
  const std::int64_t block_rows = layout.w->block_rows;
  return (block_rows == 1 ? o : o / block_rows) * layout.groups;
}

struct NoScratch {};

// Scales of a span's groups, which have four inputs at least.
struct GroupScratch {
  alignas(64) float scales[chunk_inputs / 4];
  alignas(64) float zeros[chunk_inputs / 4];
  std::byte tail[64];
};

struct RowScales {
  const float* scales;
  const float* zeros;
};

// Of the groups that a span of row o meets.
template <class Isa, bool zeros>
[[gnu::always_inline]] inline RowScales group_scales(const RowLayout& layout, std::int64_t o,
                                                     const Span& span, GroupScratch& scratch) {
  if (layout.groups == 0) {
    scratch.scales[0] = 1;  // it has none
    return {scratch.scales, scratch.zeros};
  }
  const std::int64_t first = first_scale(layout, o) + (span.begin >> layout.block_log);
  const std::int64_t count = ((span.count - 1) >> layout.block_log) + 1;
  decode_scales<Isa>(*layout.w, first, count, scratch.scales);
  if constexpr (zeros) decode_zeros<Isa>(*layout.w, first, count, scratch.zeros);
  return {scratch.scales, scratch.zeros};
}

// How a row's scales belong to the numbers of a step.
enum class Grouping : std::uint8_t {
  wide,    // the step has one
  narrow,  // each of its parts has one
};

// Each vector of a step has one.
template <class Isa>
struct VectorScales {
  using Floats = typename Isa::Floats;

  const float* scales;
  const float* zero_points;
  int block_log;

  template <int v>
  Floats scale() const {
    return Isa::broadcast(scales[(std::int64_t{v} * Isa::lanes) >> block_log]);
  }
  template <int v>
  Floats zero() const {
    return Isa::broadcast(zero_points[(std::int64_t{v} * Isa::lanes) >> block_log]);
  }
};

// Each word of a step has one, so that all vectors have the same.
template <class Isa, bool zeros>
struct WordScales {
  using Floats = typename Isa::Floats;

  Floats scales;
  Floats zero_points;

  // `blocks` of them; beyond the last input they are zero, and so is x.
  WordScales(const float* scale, const float* zero, int blocks, int shift)
      : scales(Isa::spread(scale, blocks, shift)),
        zero_points(zeros ? Isa::spread(zero, blocks, shift) : Floats{}) {}

  template <int v>
  Floats scale() const {
    return scales;
  }
  template <int v>
  Floats zero() const {
    return zero_points;
  }
};

template <class Isa, WeightKind kind>
struct PlainRow {
  using Floats = typename Isa::Floats;
  using Open = Floats;
  using Scratch = NoScratch;
  static constexpr int vectors = 1;
  static constexpr std::int64_t step = Isa::lanes;
  static constexpr std::int64_t element_bytes = kind == WeightKind::f32 ? 4 : 2;
  // float32 rows are panels already; widening the others costs half of what six rows' products do.
  static constexpr std::int64_t max_in_place = kind == WeightKind::f32 ? rows_at_once : 16;

  const std::byte* data;
  std::int64_t row_bytes;

  PlainRow(const RowLayout& layout, std::int64_t o, const Span& span, Scratch& /*scratch*/)
      : data(static_cast<const std::byte*>(layout.w->data) + o * layout.row_bytes +
             span.begin * element_bytes),
        row_bytes(layout.row_bytes) {}

  static Floats widen(const std::byte* from) {
    if constexpr (kind == WeightKind::f32) return Isa::load(from);
    if constexpr (kind == WeightKind::f16) return Isa::widen_f16(from);
    if constexpr (kind == WeightKind::bf16) return Isa::widen_bf16(from);
  }
  void fetch_ahead(std::int64_t k) const {
    __builtin_prefetch(data + k * element_bytes + weight_rows * row_bytes);
  }
  Open open(std::int64_t k) const { return widen(data + k * element_bytes); }
  Open open_tail(std::int64_t k, std::int64_t count) const {
    alignas(64) std::byte rest[Isa::lanes * element_bytes] = {};
    __builtin_memcpy(rest, data + k * element_bytes, std::size_t(count * element_bytes));
    return widen(rest);
  }
  template <int v>
  static Floats take(const Open& open) {
    return open;
  }
};

// A step is four vectors, which share a float32 scale that stands in place.
template <class Isa>
struct F8Row {
  using Floats = typename Isa::Floats;
  using Open = typename Isa::F8;
  using Scratch = NoScratch;
  static constexpr int vectors = 4;
  static constexpr std::int64_t step = 4 * Isa::lanes;
  static constexpr std::int64_t max_in_place = 1;

  const std::byte* data;
  const float* scales;
  std::int64_t row_bytes;
  int block_log;

  F8Row(const RowLayout& layout, std::int64_t o, const Span& span, Scratch& /*scratch*/)
      : data(codes_at(layout, o, span)),
        scales(layout.plain_scales + first_scale(layout, o) + (span.begin >> layout.block_log)),
        row_bytes(layout.row_bytes),
        block_log(layout.block_log) {}

  void fetch_ahead(std::int64_t k) const { __builtin_prefetch(data + k + weight_rows * row_bytes); }
  Open open(std::int64_t k) const { return Isa::open_f8(data + k, scales[k >> block_log]); }
  Open open_tail(std::int64_t k, std::int64_t count) const {
    alignas(64) std::byte rest[step] = {};
    __builtin_memcpy(rest, data + k, std::size_t(count));
    return Isa::open_f8(rest, scales[k >> block_log]);
  }
  template <int v>
  static Floats take(const Open& open) {
    return Isa::template f8<v>(open);
  }
};

// Codes of a byte, with scales of any type. A step is four vectors.
template <class Isa, WeightKind kind, bool zeros>
struct ByteRow {
  using Floats = typename Isa::Floats;
  using Scratch = GroupScratch;
  using Scales = VectorScales<Isa>;
  static constexpr int vectors = 4;
  static constexpr std::int64_t step = 4 * Isa::lanes;
  static constexpr std::int64_t max_in_place = 1;

  // FP8's codes are opened with a scale of one, which is NaN where one of them is.
  static auto open_codes(const std::byte* codes) {
    if constexpr (kind == WeightKind::f8_e4m3) {
      return Isa::open_f8(codes, 1.0F);
    } else {
      return codes;
    }
  }
  struct Open {
    decltype(open_codes(nullptr)) codes;
    Scales each;
  };

  const std::byte* data;
  RowScales each;
  std::byte* tail;
  std::int64_t row_bytes;
  int block_log;

  ByteRow(const RowLayout& layout, std::int64_t o, const Span& span, Scratch& scratch)
      : data(codes_at(layout, o, span)),
        each(group_scales<Isa, zeros>(layout, o, span, scratch)),
        tail(scratch.tail),
        row_bytes(layout.row_bytes),
        block_log(layout.block_log) {}

  void fetch_ahead(std::int64_t k) const { __builtin_prefetch(data + k + weight_rows * row_bytes); }
  Open open(std::int64_t k) const { return {open_codes(data + k), scales_at(k)}; }
  Open open_tail(std::int64_t k, std::int64_t count) const {
    __builtin_memset(tail, 0, std::size_t(step));
    __builtin_memcpy(tail, data + k, std::size_t(count));
    return {open_codes(tail), scales_at(k)};
  }
  template <int v>
  static Floats take(const Open& open) {
    Floats code{};
    if constexpr (kind == WeightKind::f8_e4m3) {
      code = Isa::template f8<v>(open.codes);
    } else {
      code = Isa::widen_i8(open.codes + v * Isa::lanes);
    }
    if constexpr (zeros) code = code - open.each.template zero<v>();
    return code * open.each.template scale<v>();
  }

 private:
  Scales scales_at(std::int64_t k) const {
    const std::int64_t at = k >> block_log;
    return {each.scales + at, zeros ? each.zeros + at : nullptr, block_log};
  }
};

// A step is `lanes` words of eight codes. Vector v has code v of every word, so its lane l is
// element 8 l + v of the step.
template <class Isa, WeightKind kind, Grouping grouping, bool zeros>
struct NibbleRow {
  using Floats = typename Isa::Floats;
  using Words = typename Isa::Words;
  using Scratch = GroupScratch;
  using Scales = WordScales<Isa, zeros>;
  static constexpr int vectors = 8;
  static constexpr bool arranged = true;  // x comes in this order too
  static constexpr std::int64_t step = 8 * Isa::lanes;
  // With more rows of x, what a step holds open would no longer fit the registers.
  static constexpr std::int64_t max_in_place = 1;
  static_assert(kind == WeightKind::int4 || (grouping == Grouping::narrow && !zeros));

  struct Codes {
    Words words;
    Scales each;
  };
  static auto open_wide(const std::byte* words, const float* scale, const float* zero) {
    if constexpr (zeros) {
      return Isa::open_int4(words, *scale, *zero);
    } else {
      return Isa::open_int4(words, *scale);
    }
  }
  using Open = std::conditional_t<grouping == Grouping::wide,
                                  decltype(open_wide(nullptr, nullptr, nullptr)), Codes>;

  const std::byte* data;
  RowScales each;
  std::int64_t row_bytes;
  int block_log;

  NibbleRow(const RowLayout& layout, std::int64_t o, const Span& span, Scratch& scratch)
      : data(codes_at(layout, o, span)),
        each(scales_of(layout, o, span, scratch)),
        row_bytes(layout.row_bytes),
        block_log(layout.block_log) {}

  void fetch_ahead(std::int64_t k) const {
    __builtin_prefetch(data + k / 2 + weight_rows * row_bytes);
  }
  Open open(std::int64_t k) const { return open_words(data + k / 2, k, step); }
  Open open_tail(std::int64_t k, std::int64_t count) const {
    alignas(64) std::byte rest[step / 2] = {};
    __builtin_memcpy(rest, data + k / 2, std::size_t((count + 1) / 2));
    return open_words(rest, k, count);
  }
  template <int v>
  static Floats take(const Open& open) {
    if constexpr (grouping == Grouping::wide) {
      return Isa::template int4<v>(open);
    } else {
      Floats code = code_of<v>(open.words);
      if constexpr (zeros) code = code - open.each.template zero<v>();
      return code * open.each.template scale<v>();
    }
  }

 private:
  static RowScales scales_of(const RowLayout& layout, std::int64_t o, const Span& span,
                             Scratch& scratch) {
    if constexpr (kind == WeightKind::int4 && !zeros) {
      const std::int64_t first = first_scale(layout, o) + (span.begin >> layout.block_log);
      if (layout.plain_scales != nullptr) return {layout.plain_scales + first, nullptr};
    }
    return group_scales<Isa, zeros>(layout, o, span, scratch);
  }
  template <int v>
  static Floats code_of(Words words) {
    if constexpr (kind == WeightKind::f4_e2m1) return Isa::template e2m1<v>(words);
    if constexpr (zeros) return Isa::template unsigned_int4<v>(words);
    return Isa::template signed_int4<v>(words);
  }
  // Of the words that share a scale; those of a step, where all of a row do.
  static int word_log(int block_log) { return block_log < 32 ? block_log - 3 : 31; }
  // k is a multiple of the step.
  Open open_words(const std::byte* words, std::int64_t k, std::int64_t count) const {
    const std::int64_t at = k >> block_log;
    const auto* const zero_points = zeros ? each.zeros + at : nullptr;
    if constexpr (grouping == Grouping::wide) {
      return open_wide(words, each.scales + at, zero_points);
    } else {
      const auto blocks = static_cast<int>((count - 1) >> block_log) + 1;
      return {Isa::load_words(words),
              Scales(each.scales + at, zero_points, blocks, word_log(block_log))};
    }
  }
};

// Rows of a panel, already float32 and padded.
template <class Isa>
struct PanelRow {
  using Floats = typename Isa::Floats;
  using Open = Floats;
  static constexpr int vectors = 1;
  static constexpr std::int64_t max_in_place = rows_at_once;

  const float* data;

  Open open(std::int64_t k) const {
    return Isa::load(reinterpret_cast<const std::byte*>(data + k));
  }
  template <int v>
  static Floats take(const Open& open) {
    return open;
  }
};

// A format without vector loops: panels are decoded number by number.
template <class Isa>
struct AnyRow {
  using Floats = typename Isa::Floats;
  using Scratch = NoScratch;
  static constexpr int vectors = 1;
};

// Calls body.template operator()<Row>() for the row of a weight with codes of half a byte.
template <class Isa, class Body>
[[gnu::always_inline]] inline void with_nibble_row(const WeightView& w, const Body& body) {
  constexpr WeightKind int4 = WeightKind::int4;
  if (w.kind == WeightKind::f4_e2m1)
    return body.template operator()<NibbleRow<Isa, WeightKind::f4_e2m1, Grouping::narrow, false>>();
  const bool zeros = has_scales(w) && w.zero_points != nullptr;
  // Whether a step never meets two scales of a row.
  if (!has_scales(w) || w.block_columns >= w.in || w.block_columns >= 8 * Isa::lanes) {
    if (zeros) return body.template operator()<NibbleRow<Isa, int4, Grouping::wide, true>>();
    return body.template operator()<NibbleRow<Isa, int4, Grouping::wide, false>>();
  }
  if (zeros) return body.template operator()<NibbleRow<Isa, int4, Grouping::narrow, true>>();
  return body.template operator()<NibbleRow<Isa, int4, Grouping::narrow, false>>();
}

// The same for any format but f32, f16 and bf16 without scales.
template <class Isa, class Body>
[[gnu::always_inline]] inline void with_row(const WeightView& w, const Body& body) {
  constexpr WeightKind f8 = WeightKind::f8_e4m3;
  constexpr WeightKind i8 = WeightKind::i8;
  if (w.kind == f8 && has_vector_groups(w, 4 * Isa::lanes) && layout_of(w).plain_scales != nullptr)
    return body.template operator()<F8Row<Isa>>();
  const bool nibbles = code_bits(w.kind) == 4;
  if (!has_vector_groups(w, nibbles ? 8 : Isa::lanes))
    return body.template operator()<AnyRow<Isa>>();
  if (nibbles) return with_nibble_row<Isa>(w, body);
  if (w.kind == f8) return body.template operator()<ByteRow<Isa, f8, false>>();
  if (has_scales(w) && w.zero_points != nullptr)
    return body.template operator()<ByteRow<Isa, i8, true>>();
  return body.template operator()<ByteRow<Isa, i8, false>>();
}

}  // namespace motley::kernels::cpu::gemm_body
