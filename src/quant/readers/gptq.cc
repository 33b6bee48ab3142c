// GPTQ: a column of words for each output, codes along the inputs, the lowest bits of a word first.
// Codes of 3 bits are a stream without gaps: 32 of them in three words.

#include <cstring>

#include "base/cat.h"
#include "quant/readers/reader.h"
#include "quant/readers/row_tiles.h"

namespace motley::quant {
namespace {

using tensor::ConstTensor;
using Tile = RowTile<128>;

// For each width: so many words of a column become so many of a row, which hold the same codes as
// kernels want them. A stored code c of b bits means c - zero, and so do both of them with
// 2^(held - 1) - 2^(b - 1) added.
struct TwoBits {
  static constexpr std::size_t stored = 1;
  static constexpr std::size_t held = 2;
  static std::array<std::uint32_t, held> widen(const std::array<std::uint32_t, stored>& words) {
    std::uint64_t codes = words[0];
    codes = (codes | codes << 16) & 0x0000FFFF0000FFFFU;
    codes = (codes | codes << 8) & 0x00FF00FF00FF00FFU;
    codes = (codes | codes << 4) & 0x0F0F0F0F0F0F0F0FU;
    codes = (codes | codes << 2) & 0x3333333333333333U;
    codes += 0x6666666666666666U;
    return {static_cast<std::uint32_t>(codes), static_cast<std::uint32_t>(codes >> 32)};
  }
};

struct ThreeBits {
  static constexpr std::size_t stored = 3;
  static constexpr std::size_t held = 4;
  static std::array<std::uint32_t, held> widen(const std::array<std::uint32_t, stored>& words) {
    const std::uint64_t first = words[0] | std::uint64_t{words[1]} << 32;
    const std::uint64_t second = words[1] >> 16 | std::uint64_t{words[2]} << 16;
    return {eight(first), eight(first >> 24), eight(second), eight(second >> 24)};
  }

 private:
  // Eight codes from the low 24 bits.
  static std::uint32_t eight(std::uint64_t stream) {
    auto codes = static_cast<std::uint32_t>(stream & 0xFFFFFFU);
    codes = (codes & 0x000FFFU) | (codes & 0xFFF000U) << 4;
    codes = (codes & 0x003F003FU) | (codes & 0x0FC00FC0U) << 2;
    codes = (codes & 0x07070707U) | (codes & 0x38383838U) << 1;
    return codes + 0x44444444U;
  }
};

struct FourBits {
  static constexpr std::size_t stored = 1;
  static constexpr std::size_t held = 1;
  static std::array<std::uint32_t, held> widen(const std::array<std::uint32_t, stored>& words) {
    return words;
  }
};

// Two's complement.
struct EightBits {
  static constexpr std::size_t stored = 1;
  static constexpr std::size_t held = 1;
  static std::array<std::uint32_t, held> widen(const std::array<std::uint32_t, stored>& words) {
    return {words[0] ^ 0x80808080U};
  }
};

template <class Width, class Words>
void widen(const Words* from, Words* to) {
  for (std::size_t o = 0; o < Tile::outputs; ++o) {
    std::array<std::uint32_t, Width::stored> stored{};
    for (std::size_t i = 0; i < Width::stored; ++i) stored[i] = from[i][o];
    const auto held = Width::widen(stored);
    for (std::size_t i = 0; i < Width::held; ++i) to[i][o] = held[i];
  }
}

// Words [words, outputs] at `from`, at any byte, into rows.
template <class Width>
void transpose(const std::byte* from, std::int64_t words, std::int64_t outputs,
               std::int64_t row_bytes, std::byte* rows) {
  constexpr std::size_t tile_words = Tile::bytes / 4;
  constexpr std::size_t units = tile_words / Width::held;
  using Words = std::array<std::uint32_t, Tile::outputs>;
  std::array<Words, units * Width::stored> stored{};
  std::array<Words, tile_words> held{};
  write_rows<Tile>(rows, outputs, row_bytes, [&](const TilePlace& place, Tile& tile) {
    const std::int64_t first = place.byte / static_cast<std::int64_t>(Width::held * 4) *
                               static_cast<std::int64_t>(Width::stored);
    const std::int64_t there = std::min(words - first, std::ssize(stored));
    const std::int64_t line_bytes = outputs * 4;
    const std::int64_t next = words - first >= 2 * std::ssize(stored) ? std::ssize(stored) : 0;
    for (std::int64_t word = 0; word < there; ++word) {
      copy_line(stored[static_cast<std::size_t>(word)].data(),
                from + (first + word) * line_bytes + place.output * 4, place.outputs * 4,
                next * line_bytes);
    }
    for (std::size_t unit = 0; unit < units; ++unit)
      widen<Width>(&stored[unit * Width::stored], &held[unit * Width::held]);
    for (std::size_t o = 0; o < Tile::outputs; o += 4) {
      for (std::size_t word = 0; word < tile_words; word += 4)
        transpose_words(&held[word][o], Tile::outputs, tile.rows[o].data() + word * 4, Tile::bytes);
    }
  });
}

Result<void> take_codes(Reader& reader, const Scheme& scheme) {
  const int bits = scheme.stored_bits;
  const std::int64_t words = ceil_div(reader.in() * bits, 32);
  MOTLEY_TRY(const ConstTensor stored, reader.take("qweight", DType::i32, {words, reader.out()}));
  const std::int64_t row_bytes = ceil_div(reader.in() * scheme.format.bits, 8);
  MOTLEY_TRY(std::byte* const rows, reader.own(static_cast<std::size_t>(reader.out() * row_bytes)));
  const auto run = [&](auto width) {
    transpose<decltype(width)>(stored.bytes(), words, reader.out(), row_bytes, rows);
  };
  if (bits == 2) run(TwoBits{});
  if (bits == 3) run(ThreeBits{});
  if (bits == 4) run(FourBits{});
  if (bits == 8) run(EightBits{});
  if (scheme.format.bits == 4) clear_last_halves(rows, reader.out(), reader.in());
  reader.parts().data = rows;
  return {};
}

// Zero points of a group: codes along the outputs. The first format stores them less one. GPTQModel
// subtracts that from whole words, so that a zero borrows from its neighbour, and adds it to whole
// words again; codes of 3 bits, which cross words, it takes one by one. So what it wrote comes back
// exactly. A stored code that is the largest is disputed: other programs add one to each code, and
// let it be one more than codes can say.
class ZeroPoints {
 public:
  ZeroPoints(int bits, bool less_one) : bits_(bits) {
    if (!less_one) return;
    if (bits == 3) {
      add_to_code_ = 1;
    } else {
      for (int at = 0; at < 32; at += bits) add_to_word_ |= 1U << at;
    }
  }

  // Those of `count` outputs, `stride` apart, `add` to each. Returns whether any is disputed.
  bool read(const std::byte* words, std::int64_t count, std::uint8_t add, std::int64_t stride,
            std::uint8_t* to) const {
    const std::uint32_t mask = (1U << bits_) - 1;
    bool disputed = false;
    if (bits_ == 3) {
      for (std::int64_t o = 0; o < count; ++o) {
        const std::uint32_t code = bits_at(words, o, bits_);
        disputed = disputed || code + add_to_code_ > mask;
        to[o * stride] = static_cast<std::uint8_t>(((code + add_to_code_) & mask) + add);
      }
      return disputed;
    }
    const std::int64_t in_a_word = 32 / bits_;
    for (std::int64_t o = 0; o < count; words += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, words, sizeof word);
      disputed = disputed || has_largest(word, std::min(in_a_word, count - o));
      word += add_to_word_;
      for (const std::int64_t end = std::min(o + in_a_word, count); o < end; ++o, word >>= bits_)
        to[o * stride] = static_cast<std::uint8_t>((word & mask) + add);
    }
    return disputed;
  }

 private:
  // Whether one is added to the largest of the word's first `count` codes.
  bool has_largest(std::uint32_t word, std::int64_t count) const {
    const std::uint32_t ones = add_to_word_;
    const std::int64_t end = count * bits_;
    // A code of zeros, among the words' complements.
    const std::uint32_t codes = ~word | (end < 32 ? ~0U << end : 0U);
    return ((codes - ones) & ~codes & (ones << (bits_ - 1))) != 0;
  }

  int bits_;
  std::uint32_t add_to_word_ = 0;
  std::uint32_t add_to_code_ = 0;
};

Result<void> take_zero_points(Reader& reader, const Scheme& scheme, std::int64_t groups) {
  const int bits = scheme.stored_bits;
  const std::int64_t words = ceil_div(reader.out() * bits, 32);
  MOTLEY_TRY(const ConstTensor stored, reader.take("qzeros", DType::i32, {groups, words}));
  std::vector<std::uint8_t> zeros(static_cast<std::size_t>(reader.out() * groups));
  const ZeroPoints codes(bits, scheme.layout == Layout::gptq);
  const auto add = static_cast<std::uint8_t>((1 << (scheme.format.bits - 1)) - (1 << (bits - 1)));
  bool disputed = false;
  for (std::int64_t group = 0; group < groups; ++group)
    disputed |= codes.read(stored.bytes() + group * words * 4, reader.out(), add, groups,
                           zeros.data() + group);
  if (disputed) reader.dispute_zero_points();
  return reader.keep_zero_points(zeros);
}

}  // namespace

Result<void> read_gptq(Reader& reader, const Scheme& scheme) {
  const Format& format = scheme.format;
  MOTLEY_TRY_VOID(reader.refuse_others({"weight_packed", "weight_scale", "weight_zero_point"}));
  const bool grouped = format.scales == Format::Scales::group;
  const std::int64_t groups = grouped ? ceil_div(reader.in(), format.block_columns) : 1;
  MOTLEY_TRY_VOID(take_codes(reader, scheme));
  MOTLEY_TRY_VOID(reader.take_transposed_scales("scales", reader.out(), groups));
  MOTLEY_TRY_VOID(take_zero_points(reader, scheme, groups));
  // Files list the groups of inputs in activation order and without.
  reader.parts().format.input_order = false;
  if (!reader.has("g_idx")) return {};
  return reader.take_groups_of_inputs("g_idx", groups,
                                      grouped ? format.block_columns : reader.in());
}

}  // namespace motley::quant
