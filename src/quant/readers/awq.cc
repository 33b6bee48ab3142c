// AWQ: a word holds eight outputs of an input, in an order of their own.

#include <cstring>

#include "quant/readers/reader.h"
#include "quant/readers/row_tiles.h"

namespace motley::quant {
namespace {

using tensor::ConstTensor;
using Tile = RowTile<256>;

constexpr std::size_t in_a_word = 8;
// Of the four bits at 4 i: the output.
constexpr std::array<std::size_t, in_a_word> order{0, 2, 4, 6, 1, 3, 5, 7};

// Words of eight inputs, many outputs wide.
constexpr std::size_t tile_words = Tile::outputs / in_a_word;
using Words = std::array<std::uint32_t, tile_words>;
using EightInputs = std::array<Words, in_a_word>;
// What fills four words of a row.
using Inputs = std::array<EightInputs, 4>;

template <int shift, std::uint32_t low>
void exchange(FourWords& upper, FourWords& lower) {
  const FourWords a = upper;
  const FourWords b = lower;
  upper = (a & low) | (b & low) << shift;
  lower = (a >> shift & low) | (b & ~low);
}

// Codes (input, place in the word) become (place, input) in every column of words: halves of the
// matrix are exchanged, then halves of those.
void transpose_codes(EightInputs& words) {
  for (std::size_t c = 0; c < tile_words; c += 4) {
    std::array<FourWords, in_a_word> four{};
    for (std::size_t i = 0; i < in_a_word; ++i) std::memcpy(&four[i], &words[i][c], sizeof four[i]);
    for (const std::size_t i : {0, 1, 2, 3}) exchange<16, 0x0000FFFF>(four[i], four[i + 4]);
    for (const std::size_t i : {0, 1, 4, 5}) exchange<8, 0x00FF00FF>(four[i], four[i + 2]);
    for (const std::size_t i : {0, 2, 4, 6}) exchange<4, 0x0F0F0F0F>(four[i], four[i + 1]);
    for (std::size_t i = 0; i < in_a_word; ++i) std::memcpy(&words[i][c], &four[i], sizeof four[i]);
  }
}

// Words [in, words] at `from`, at any byte, into rows.
void write_codes(const std::byte* from, const TrueSize& size, std::int64_t row_bytes,
                 std::byte* rows) {
  const std::int64_t line_bytes = ceil_div(size.out, in_a_word) * 4;
  constexpr std::int64_t inputs_at_once = sizeof(Inputs) / sizeof(Words);
  write_rows<Tile>(rows, size.out, row_bytes, [&](const TilePlace& place, Tile& tile) {
    const std::int64_t width = ceil_div(place.outputs, in_a_word) * 4;
    const std::byte* const column = from + ceil_div(place.output, in_a_word) * 4;
    for (std::int64_t byte = 0; byte < Tile::bytes; byte += inputs_at_once / 2) {
      Inputs inputs{};
      const std::int64_t first = (place.byte + byte) * 2;
      const std::int64_t next = size.in - first >= 2 * inputs_at_once ? inputs_at_once : 0;
      for (std::int64_t i = 0; i < std::min(inputs_at_once, size.in - first); ++i) {
        Words& words = inputs[static_cast<std::size_t>(i) / in_a_word]
                             [static_cast<std::size_t>(i) % in_a_word];
        copy_line(words.data(), column + (first + i) * line_bytes, width, next * line_bytes);
      }
      for (EightInputs& eight : inputs) transpose_codes(eight);
      for (std::size_t i = 0; i < in_a_word; ++i) {
        for (std::size_t c = 0; c < tile_words; c += 4)
          transpose_words(&inputs[0][i][c], sizeof(EightInputs) / 4,
                          tile.rows[c * in_a_word + order[i]].data() + byte,
                          in_a_word * Tile::bytes);
      }
    }
  });
}

Result<void> take_codes(Reader& reader) {
  const std::int64_t words = ceil_div(reader.out(), in_a_word);
  MOTLEY_TRY(const ConstTensor stored, reader.take("qweight", DType::i32, {reader.in(), words}));
  const std::int64_t row_bytes = ceil_div(reader.in(), 2);
  MOTLEY_TRY(std::byte* const rows, reader.own(static_cast<std::size_t>(reader.out() * row_bytes)));
  write_codes(stored.bytes(), {reader.out(), reader.in()}, row_bytes, rows);
  reader.parts().data = rows;
  return {};
}

Result<void> take_zero_points(Reader& reader, std::int64_t groups) {
  const std::int64_t words = ceil_div(reader.out(), in_a_word);
  MOTLEY_TRY(const ConstTensor stored, reader.take("qzeros", DType::i32, {groups, words}));
  std::vector<std::uint8_t> zeros(static_cast<std::size_t>(reader.out() * groups));
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t c = 0; c < words; ++c) {
      std::uint32_t word = 0;
      std::memcpy(&word, stored.bytes() + (group * words + c) * 4, sizeof word);
      for (const std::size_t place : order) {
        const std::int64_t output =
            c * static_cast<std::int64_t>(in_a_word) + static_cast<std::int64_t>(place);
        if (output < reader.out())
          zeros[static_cast<std::size_t>(output * groups + group)] = word & 15U;
        word >>= 4;
      }
    }
  }
  return reader.keep_zero_points(zeros);
}

}  // namespace

Result<void> read_awq(Reader& reader, const Scheme& scheme) {
  const Format& format = scheme.format;
  MOTLEY_TRY_VOID(
      reader.refuse_others({"weight_packed", "weight_scale", "weight_zero_point", "g_idx"}));
  const bool grouped = format.scales == Format::Scales::group;
  const std::int64_t groups = grouped ? ceil_div(reader.in(), format.block_columns) : 1;
  MOTLEY_TRY_VOID(take_codes(reader));
  MOTLEY_TRY_VOID(reader.take_transposed_scales("scales", reader.out(), groups));
  return take_zero_points(reader, groups);
}

}  // namespace motley::quant
