#include <algorithm>
#include <random>

#include "quant/test_files.h"

// compressed-tensors' packed integers, written here by the format's own words: element k of a row
// at bits [k b, k b + b) of the row's stream, zero points the same way along the outputs, both
// offset by half of their range.
namespace motley::quant {
namespace {

struct Packed {
  int bits = 4;
  std::int64_t out = 5;
  std::int64_t in = 64;
  std::int64_t group = 32;  // 0: a scale a row
  bool symmetric = true;
  bool in_activation_order = false;
  bool whole_codes = false;  // no code in two words, as older files have it
};

void PrintTo(const Packed& p, std::ostream* out) {
  *out << p.bits << " bits, [" << p.out << ", " << p.in << "], group " << p.group
       << (p.symmetric ? "" : ", zero points")
       << (p.in_activation_order ? ", in activation order" : "")
       << (p.whole_codes ? ", whole codes" : "");
}

// Codes of a stream in words of 32 bits.
std::vector<std::uint32_t> pack(const std::vector<unsigned>& codes, int bits, bool whole_codes) {
  const int in_a_word = 32 / bits;
  const std::size_t count = codes.size();
  const std::size_t words = whole_codes ? (count + static_cast<std::size_t>(in_a_word) - 1) /
                                              static_cast<std::size_t>(in_a_word)
                                        : (count * static_cast<std::size_t>(bits) + 31) / 32;
  std::vector<std::uint32_t> packed(words, 0);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t b = 0; b < static_cast<std::size_t>(bits); ++b) {
      const auto each = static_cast<std::size_t>(in_a_word);
      const std::size_t at = whole_codes
                                 ? i / each * 32 + i % each * static_cast<std::size_t>(bits) + b
                                 : i * static_cast<std::size_t>(bits) + b;
      packed[at / 32] |= (codes[i] >> b & 1U) << (at % 32);
    }
  }
  return packed;
}

class PackedReader : public LoadTest, public testing::WithParamInterface<Packed> {
 protected:
  std::int64_t groups() const {
    const Packed& p = GetParam();
    return p.group == 0 ? 1 : (p.in + p.group - 1) / p.group;
  }

  // Writes the tensors; returns what they mean.
  std::vector<float> write() {
    const Packed& p = GetParam();
    std::mt19937 random(7);
    const unsigned codes = 1U << p.bits;
    std::vector<std::uint32_t> words;
    std::vector<unsigned> stored;
    for (std::int64_t o = 0; o < p.out; ++o) {
      std::vector<unsigned> row;
      for (std::int64_t k = 0; k < p.in; ++k)
        row.push_back(static_cast<unsigned>(random()) % codes);
      for (const std::uint32_t word : pack(row, p.bits, p.whole_codes)) words.push_back(word);
      stored.insert(stored.end(), row.begin(), row.end());
    }
    files_.add("m.weight_packed", DType::i32, {p.out, std::ssize(words) / p.out}, words);
    files_.add("m.weight_shape", DType::i64, {2}, std::vector<std::int64_t>{p.out, p.in});
    std::vector<bf16> scales;
    for (std::int64_t i = 0; i < p.out * groups(); ++i)
      scales.push_back(bf16::from(0.01F + static_cast<float>(random() % 64) / 512));
    files_.add("m.weight_scale", DType::bf16, {p.out, groups()}, scales);
    const std::vector<unsigned> zeros = write_zeros(random);
    const std::vector<std::int32_t> index = write_index(random);

    std::vector<float> meaning;
    for (std::int64_t o = 0; o < p.out; ++o) {
      for (std::int64_t k = 0; k < p.in; ++k) {
        const std::int64_t g = p.in_activation_order ? index[static_cast<std::size_t>(k)]
                               : p.group == 0        ? 0
                                                     : k / p.group;
        const auto place = static_cast<std::size_t>(o * groups() + g);
        const unsigned zero = p.symmetric ? codes / 2 : zeros[place];
        const auto code = stored[static_cast<std::size_t>(o * p.in + k)];
        meaning.push_back((static_cast<float>(code) - static_cast<float>(zero)) *
                          scales[place].to_float());
      }
    }
    return meaning;
  }

  // [out, groups], packed along the outputs of each group: [words, groups].
  std::vector<unsigned> write_zeros(std::mt19937& random) {
    const Packed& p = GetParam();
    if (p.symmetric) return {};
    std::vector<unsigned> zeros;
    for (std::int64_t i = 0; i < p.out * groups(); ++i)
      zeros.push_back(static_cast<unsigned>(random()) % (1U << p.bits));
    std::vector<std::uint32_t> packed;
    std::int64_t words = 0;
    for (std::int64_t g = 0; g < groups(); ++g) {
      std::vector<unsigned> column;
      for (std::int64_t o = 0; o < p.out; ++o)
        column.push_back(zeros[static_cast<std::size_t>(o * groups() + g)]);
      const std::vector<std::uint32_t> one = pack(column, p.bits, p.whole_codes);
      words = std::ssize(one);
      packed.resize(static_cast<std::size_t>(words * groups()));
      for (std::int64_t w = 0; w < words; ++w)
        packed[static_cast<std::size_t>(w * groups() + g)] = one[static_cast<std::size_t>(w)];
    }
    files_.add("m.weight_zero_point", DType::i32, {words, groups()}, packed);
    return zeros;
  }

  std::vector<std::int32_t> write_index(std::mt19937& random) {
    const Packed& p = GetParam();
    std::vector<std::int32_t> index;
    if (!p.in_activation_order) return index;
    for (std::int64_t k = 0; k < p.in; ++k) index.push_back(static_cast<std::int32_t>(k / p.group));
    std::ranges::shuffle(index, random);
    files_.add("m.weight_g_idx", DType::i32, {p.in}, index);
    return index;
  }

  Config configuration() const {
    const Packed& p = GetParam();
    const std::string scales =
        p.group == 0 ? R"("strategy": "channel")" : cat(R"("group_size": )", p.group);
    return config(cat(
        R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":)",
        R"({"g": {"targets": ["Linear"], "weights": {"type": "int", "num_bits": )", p.bits, ", ",
        scales, R"(, "symmetric": )", p.symmetric ? "true" : "false", R"(, "actorder": )",
        p.in_activation_order ? R"("group")" : "null", "}}}}"));
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, PackedReader,
    testing::Values(Packed{}, Packed{.symmetric = false}, Packed{.in_activation_order = true},
                    Packed{.symmetric = false, .in_activation_order = true}, Packed{.group = 0},
                    Packed{.group = 0, .symmetric = false}, Packed{.in = 60, .group = 32},
                    Packed{.bits = 8}, Packed{.bits = 8, .symmetric = false},
                    Packed{.bits = 8, .in = 65, .group = 128, .symmetric = false},
                    Packed{.bits = 2, .symmetric = false}, Packed{.bits = 3},
                    Packed{.bits = 3, .symmetric = false},
                    Packed{.bits = 3, .symmetric = false, .whole_codes = true},
                    Packed{.bits = 5, .out = 7, .symmetric = false},
                    Packed{.bits = 6, .whole_codes = true},
                    Packed{.bits = 7, .in = 33, .group = 32},
                    Packed{.bits = 1, .symmetric = false}));

TEST_P(PackedReader, DecodesExactly) {
  const Packed& p = GetParam();
  const std::vector<float> meaning = write();
  EXPECT_EQ(numbers(configuration(), {p.out, p.in}), meaning);
}

TEST_P(PackedReader, RefusesWhatIsDamagedByName) {
  const Packed& p = GetParam();
  const TrueSize size{p.out, p.in};
  write();
  files_.add("m.weight_scale", DType::bf16, {p.out, groups() + 1},
             std::vector<bf16>(static_cast<std::size_t>(p.out * (groups() + 1))));
  expect_error(configuration(), size, "'m.weight_scale'", "is needed");
  write();
  if (!p.symmetric) {
    files_.add("m.weight_zero_point", DType::i32, {40, groups()},
               std::vector<std::int32_t>(static_cast<std::size_t>(40 * groups())));
    expect_error(configuration(), size, "'m.weight_zero_point'", "is needed");
    files_.remove("m.weight_zero_point");
    expect_error(configuration(), size, "'m.weight_zero_point'", "missing");
  } else {
    files_.add("m.weight_zero_point", DType::i32, {1, 1}, std::vector<std::int32_t>(1));
    expect_error(configuration(), size, "'m.weight_zero_point'", "scheme");
    files_.remove("m.weight_zero_point");
  }
  write();
  if (!p.in_activation_order) return;
  std::vector<std::int32_t> index(static_cast<std::size_t>(p.in), 0);
  index[3] = static_cast<std::int32_t>(groups());
  files_.add("m.weight_g_idx", DType::i32, {p.in}, index);
  expect_error(configuration(), size, "'m.weight_g_idx'", "input 3");
  index[3] = -1;
  files_.add("m.weight_g_idx", DType::i32, {p.in}, index);
  expect_error(configuration(), size, "'m.weight_g_idx'", "-1");
  index[3] = 0;  // all in one group
  files_.add("m.weight_g_idx", DType::i32, {p.in}, index);
  expect_error(configuration(), size, "'m.weight_g_idx'", cat("group 0 has ", p.in, " inputs"));
  files_.remove("m.weight_g_idx");
  expect_error(configuration(), size, "'m.weight_g_idx'", "missing");
}

using PackedTraps = LoadTest;

Config packed_config(std::string_view more) {
  return config(cat(
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":)",
      R"({"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 8)", more, "}}}}"));
}

// As two's complement a nibble of 0 would be 0, and one of 8 would be -8.
TEST_F(PackedTraps, CodesAreOffsetBinary) {
  files_.add("m.weight_packed", DType::i32, {1, 2},
             std::vector<std::uint32_t>{0x76543210, 0xFEDCBA98});
  files_.add("m.weight_scale", DType::f32, {1, 2}, std::vector<float>{1, 1});
  files_.add("m.weight_shape", DType::i64, {2}, std::vector<std::int64_t>{1, 16});
  EXPECT_EQ(numbers(packed_config(""), {1, 16}),
            (std::vector<float>{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}));
}

// [words along the outputs, groups]; the other way round 8 outputs of 2 groups would be [8, 1].
TEST_F(PackedTraps, ZeroPointsArePackedAlongTheOutputs) {
  files_.add("m.weight_packed", DType::i32, {8, 2}, std::vector<std::uint32_t>(16, 0x88888888));
  files_.add("m.weight_scale", DType::f32, {8, 2}, std::vector<float>(16, 1.0F));
  files_.add("m.weight_shape", DType::i64, {2}, std::vector<std::int64_t>{8, 16});
  files_.add("m.weight_zero_point", DType::i32, {1, 2},
             std::vector<std::uint32_t>{0x76543210, 0xFEDCBA98});
  const Config of = packed_config(R"(, "symmetric": false)");
  const std::vector<float> all = numbers(of, {8, 16});
  for (std::size_t o = 0; o < 8; ++o) {
    EXPECT_EQ(all[16 * o], 8 - static_cast<float>(o));
    EXPECT_EQ(all[16 * o + 15], -static_cast<float>(o));
  }
  files_.add("m.weight_zero_point", DType::i32, {8, 1}, std::vector<std::uint32_t>(8));
  expect_error(of, {8, 16}, "'m.weight_zero_point'", "[1, 2] is needed");
  files_.add("m.weight_zero_point", DType::i8, {8, 2}, std::vector<std::int8_t>(16));
  expect_error(of, {8, 16}, "'m.weight_zero_point'", "not I32");
}

TEST_F(PackedTraps, OnlyTheOrderByGroupHasAnIndex) {
  files_.add("m.weight_packed", DType::i32, {1, 2}, std::vector<std::uint32_t>(2, 0x99999999));
  files_.add("m.weight_scale", DType::f32, {1, 2}, std::vector<float>{1, 2});
  files_.add("m.weight_shape", DType::i64, {2}, std::vector<std::int64_t>{1, 16});
  for (const std::string_view order : {"null", R"("weight")", R"("static")", "false"}) {
    const Config of = packed_config(cat(R"(, "actorder": )", order));
    const std::vector<float> all = numbers(of, {1, 16});
    EXPECT_EQ(all[7], 1.0F) << order;
    EXPECT_EQ(all[8], 2.0F) << order;
  }
  for (const std::string_view order : {R"("group")", R"("dynamic")", "true"})
    expect_error(packed_config(cat(R"(, "actorder": )", order)), {1, 16}, "'m.weight_g_idx'",
                 "missing");
  std::vector<std::int32_t> index(16, 0);
  for (std::size_t k = 0; k < 8; ++k) index[k] = 1;
  files_.add("m.weight_g_idx", DType::i32, {16}, index);
  for (const std::string_view order : {R"("group")", R"("dynamic")", "true"}) {
    const std::vector<float> all = numbers(packed_config(cat(R"(, "actorder": )", order)), {1, 16});
    EXPECT_EQ(all[0], 2.0F) << order;
    EXPECT_EQ(all[8], 1.0F) << order;
  }
  expect_error(packed_config(R"(, "actorder": "static")"), {1, 16}, "'m.weight_g_idx'", "scheme");
}

}  // namespace
}  // namespace motley::quant
