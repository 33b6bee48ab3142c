// compressed-tensors' pack-quantized: integers of 1 to 8 bits, offset-binary, in words of 32 bits.

#include <cstring>

#include "base/cat.h"
#include "quant/readers/reader.h"

namespace motley::quant {
namespace {

using tensor::ConstTensor;

// The packed sizes can't tell how much of the last word is real: the file says it apart.
Result<void> check_true_size(Reader& reader) {
  constexpr std::string_view part = "weight_shape";
  MOTLEY_TRY(const ConstTensor shape, reader.take(part));
  if (shape.elements() != 2 || (shape.dtype() != DType::i64 && shape.dtype() != DType::i32))
    return reader.bad("not two integers", part);
  std::int64_t sizes[2] = {};
  for (int i = 0; i < 2; ++i) {
    if (shape.dtype() == DType::i64) {
      std::memcpy(&sizes[i], shape.bytes() + std::ptrdiff_t{8} * i, 8);
    } else {
      std::int32_t narrow = 0;
      std::memcpy(&narrow, shape.bytes() + std::ptrdiff_t{4} * i, 4);
      sizes[i] = narrow;
    }
  }
  if (sizes[0] != reader.out() || sizes[1] != reader.in())
    return reader.bad(cat("it says [", sizes[0], ", ", sizes[1], "], but the model needs [",
                          reader.out(), ", ", reader.in(), "]"),
                      part);
  return {};
}

// Codes of `bits` in rows of words: a stream without gaps, or as older files have them, whole codes
// in every word.
class PackedCodes {
 public:
  PackedCodes(const std::byte* words, std::int64_t words_a_row, int bits, bool whole_codes)
      : words_(words), words_a_row_(words_a_row), bits_(bits), whole_codes_(whole_codes) {}

  static std::int64_t words(std::int64_t count, int bits) { return ceil_div(count * bits, 32); }
  static std::int64_t words_of_whole_codes(std::int64_t count, int bits) {
    return ceil_div(count, 32 / bits);
  }

  std::uint32_t at(std::int64_t row, std::int64_t index) const {
    const std::byte* const first = words_ + row * words_a_row_ * 4;
    if (!whole_codes_) return bits_at(first, index, bits_);
    const std::int64_t in_a_word = 32 / bits_;
    std::uint32_t word = 0;
    std::memcpy(&word, first + index / in_a_word * 4, sizeof word);
    return word >> (index % in_a_word * bits_) & ((1U << bits_) - 1);
  }

 private:
  const std::byte* words_;
  std::int64_t words_a_row_;
  int bits_;
  bool whole_codes_;
};

// Rows of 4 and 8 bits are bytes already; those of 8 bits only lack their sign.
Result<void> copy_rows(Reader& reader, const std::byte* words, std::int64_t words_a_row, int bits) {
  const std::int64_t row_bytes = ceil_div(reader.in() * bits, 8);
  MOTLEY_TRY(std::byte* const data, reader.own(static_cast<std::size_t>(reader.out() * row_bytes)));
  const std::byte flip = bits == 8 ? std::byte{0x80} : std::byte{0};
  for (std::int64_t o = 0; o < reader.out(); ++o) {
    const std::byte* const from = words + o * words_a_row * 4;
    std::byte* const to = data + o * row_bytes;
    for (std::int64_t i = 0; i < row_bytes; ++i) to[i] = from[i] ^ flip;
  }
  reader.parts().data = data;
  return {};
}

// Codes of the held width, their middle where the held one has it.
Result<void> repack(Reader& reader, const PackedCodes& codes, const Scheme& scheme) {
  const int held = scheme.format.bits;
  const std::int64_t row_bytes = ceil_div(reader.in() * held, 8);
  MOTLEY_TRY(std::byte* const data, reader.own(static_cast<std::size_t>(reader.out() * row_bytes)));
  std::memset(data, 0, static_cast<std::size_t>(reader.out() * row_bytes));
  const int stored_middle = 1 << (scheme.stored_bits - 1);
  for (std::int64_t o = 0; o < reader.out(); ++o) {
    std::byte* const row = data + o * row_bytes;
    for (std::int64_t k = 0; k < reader.in(); ++k) {
      const int value = static_cast<int>(codes.at(o, k)) - stored_middle;
      if (held == 4) {
        row[k / 2] |= static_cast<std::byte>((value + 8) << (k % 2 * 4));
      } else {
        row[k] = static_cast<std::byte>(value);
      }
    }
  }
  reader.parts().data = data;
  return {};
}

Result<void> take_codes(Reader& reader, const Scheme& scheme) {
  constexpr std::string_view part = "weight_packed";
  MOTLEY_TRY(const ConstTensor packed, reader.take(part));
  if (packed.dtype() != DType::i32)
    return reader.bad(cat("its type is ", motley::name(packed.dtype()), ", not I32"), part);
  const int bits = scheme.stored_bits;
  std::int64_t words = PackedCodes::words(reader.in(), bits);
  const std::int64_t whole = PackedCodes::words_of_whole_codes(reader.in(), bits);
  const bool whole_codes = whole != words && packed.shape() == tensor::Shape{reader.out(), whole};
  if (whole_codes) words = whole;
  MOTLEY_TRY_VOID(reader.check_shape(packed, part, {reader.out(), words}));
  // Four bits are the kernels' bytes already, unless a row ends inside a word.
  if (bits == 4 && reader.in() % 8 == 0) {
    reader.parts().data = packed.bytes();
    return {};
  }
  if (bits == 4 || bits == 8) return copy_rows(reader, packed.bytes(), words, bits);
  return repack(reader, PackedCodes(packed.bytes(), words, bits, whole_codes), scheme);
}

// Packed along the outputs, [words, groups]: a stream for each group.
Result<void> take_zero_points(Reader& reader, const Scheme& scheme, std::int64_t groups) {
  constexpr std::string_view part = "weight_zero_point";
  const int bits = scheme.stored_bits;
  MOTLEY_TRY(const ConstTensor stored, reader.take(part));
  if (stored.dtype() != DType::i32)
    return reader.bad(cat("its type is ", motley::name(stored.dtype()), ", not I32"), part);
  std::int64_t words = PackedCodes::words(reader.out(), bits);
  const std::int64_t whole = PackedCodes::words_of_whole_codes(reader.out(), bits);
  const bool whole_codes = whole != words && stored.shape() == tensor::Shape{whole, groups};
  if (whole_codes) words = whole;
  MOTLEY_TRY_VOID(reader.check_shape(stored, part, {words, groups}));
  std::vector<std::byte> turned(static_cast<std::size_t>(groups * words * 4));
  for (std::int64_t word = 0; word < words; ++word) {
    for (std::int64_t group = 0; group < groups; ++group)
      std::memcpy(turned.data() + (group * words + word) * 4,
                  stored.bytes() + (word * groups + group) * 4, 4);
  }
  const PackedCodes codes(turned.data(), words, bits, whole_codes);
  const int held_middle = scheme.format.bits == 4 ? 8 : 128;
  const int stored_middle = 1 << (bits - 1);
  std::vector<std::uint8_t> zeros;
  for (std::int64_t o = 0; o < reader.out(); ++o) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const int zero = static_cast<int>(codes.at(group, o)) - stored_middle + held_middle;
      zeros.push_back(static_cast<std::uint8_t>(zero));
    }
  }
  return reader.keep_zero_points(zeros);
}

}  // namespace

Result<void> read_packed(Reader& reader, const Scheme& scheme) {
  const Format& format = scheme.format;
  MOTLEY_TRY_VOID(reader.refuse_others({"weight_global_scale", "weight_scale_inv", "qweight"}));
  MOTLEY_TRY_VOID(check_true_size(reader));
  MOTLEY_TRY_VOID(take_codes(reader, scheme));
  std::int64_t rows = reader.out();
  std::int64_t groups = 1;
  if (format.scales == Format::Scales::tensor) rows = 1;
  if (format.scales == Format::Scales::group) groups = ceil_div(reader.in(), format.block_columns);
  MOTLEY_TRY_VOID(reader.take_scales("weight_scale", rows, groups));
  if (format.zero_points) {
    MOTLEY_TRY_VOID(take_zero_points(reader, scheme, groups));
  } else {
    MOTLEY_TRY_VOID(reader.refuse_others({"weight_zero_point"}));
  }
  if (!format.input_order) return reader.refuse_others({"weight_g_idx"});
  return reader.take_groups_of_inputs("weight_g_idx", groups, format.block_columns);
}

}  // namespace motley::quant
