#include <array>

#include <gtest/gtest.h>

#include "quant/test_files.h"

namespace motley::quant {
namespace {

// A weight by GPTQ's definition: code (o, k) of b bits lies at bits [b k, b k + b) of column o's
// words, the lowest bits of a word first; zero points likewise along the outputs.
struct Fields {
  std::vector<std::int32_t> words;
  std::int64_t columns = 1;  // [words, columns]

  static Fields make(std::int64_t rows, std::int64_t columns, int bits) {
    const std::int64_t words = (rows * bits + 31) / 32;
    return {std::vector<std::int32_t>(static_cast<std::size_t>(words * columns)), columns};
  }
  void put(std::int64_t row, std::int64_t column, std::uint32_t code, int bits) {
    for (int b = 0; b < bits; ++b) {
      const std::int64_t bit = row * bits + b;
      auto& word = words[static_cast<std::size_t>(bit / 32 * columns + column)];
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | (code >> b & 1U)
                                                                              << (bit % 32));
    }
  }
};

struct Case {
  int bits = 4;
  std::int64_t out = 3;
  std::int64_t in = 64;
  std::int64_t group = 32;
  bool symmetric = true;
  bool second = false;  // gptq_v2
  bool sorted = false;  // in activation order

  std::int64_t groups() const { return group < 0 ? 1 : (in + group - 1) / group; }
  std::int64_t group_of(std::int64_t k) const {
    if (group < 0) return 0;
    return sorted ? (k * 7 + 3) % groups() : k / group;
  }
  int code(std::int64_t o, std::int64_t k) const {
    return static_cast<int>((o * 7 + k * 5 + k / 3) % (1 << bits));
  }
  // 1 to the largest code, which both formats can tell.
  int zero(std::int64_t o, std::int64_t g) const {
    if (symmetric) return 1 << (bits - 1);
    return static_cast<int>(1 + (o * 3 + g) % ((1 << bits) - 1));
  }
  f16 scale(std::int64_t o, std::int64_t g) const {
    return f16::from(0.01F * static_cast<float>(o * groups() + g + 1));
  }
  Config config() const {
    return read_config(cat(R"({"quant_method": "gptq", "bits": )", bits, R"(, "group_size": )",
                           group, R"(, "sym": )", symmetric ? "true" : "false", R"(, "desc_act": )",
                           sorted ? "true" : "false", R"(, "checkpoint_format": ")",
                           second ? "gptq_v2" : "gptq", R"("})"))
        .value();
  }
};

class GptqReader : public LoadTest {
 protected:
  void add(const Case& of) {
    Fields codes = Fields::make(of.in, of.out, of.bits);
    for (std::int64_t o = 0; o < of.out; ++o) {
      for (std::int64_t k = 0; k < of.in; ++k)
        codes.put(k, o, static_cast<std::uint32_t>(of.code(o, k)), of.bits);
    }
    files_.add("m.qweight", DType::i32, {std::ssize(codes.words) / of.out, of.out}, codes.words);
    std::vector<std::int32_t> zeros;
    std::vector<f16> scales;
    for (std::int64_t g = 0; g < of.groups(); ++g) {
      Fields row = Fields::make(of.out, 1, of.bits);
      for (std::int64_t o = 0; o < of.out; ++o) {
        row.put(o, 0, static_cast<std::uint32_t>(of.zero(o, g) - (of.second ? 0 : 1)), of.bits);
        scales.push_back(of.scale(o, g));
      }
      zeros.insert(zeros.end(), row.words.begin(), row.words.end());
    }
    files_.add("m.qzeros", DType::i32, {of.groups(), std::ssize(zeros) / of.groups()}, zeros);
    files_.add("m.scales", DType::f16, {of.groups(), of.out}, scales);
    std::vector<std::int32_t> index;
    for (std::int64_t k = 0; k < of.in; ++k)
      index.push_back(static_cast<std::int32_t>(of.group_of(k)));
    files_.add("m.g_idx", DType::i32, {of.in}, index);
  }

  void expect_exact(const Case& of) {
    files_ = Files();
    add(of);
    const Result<LoadedWeight> result = load(of.config(), {of.out, of.in});
    ASSERT_TRUE(result.ok()) << result.error().message();
    const LoadedWeight& loaded = *result;
    EXPECT_EQ(loaded.used,
              (std::vector<std::string>{"m.qweight", "m.scales", "m.qzeros", "m.g_idx"}));
    EXPECT_EQ(loaded.weight.format().bits, of.bits == 8 ? 8 : 4);
    EXPECT_EQ(loaded.weight.format().scale_type, DType::f16);
    EXPECT_EQ(loaded.weight.format().zero_points, !of.symmetric);
    const std::vector<float> all = numbers(of.config(), {of.out, of.in});
    for (std::int64_t o = 0; o < of.out; ++o) {
      for (std::int64_t k = 0; k < of.in; ++k) {
        const std::int64_t g = of.group_of(k);
        const auto difference = static_cast<float>(of.code(o, k) - of.zero(o, g));
        ASSERT_EQ(all[static_cast<std::size_t>(o * of.in + k)],
                  difference * of.scale(o, g).to_float())
            << "bits " << of.bits << " at " << o << ", " << k << " of " << of.out << ", " << of.in;
      }
    }
  }
};

TEST_F(GptqReader, DecodesExactlyAtEveryWidth) {
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool symmetric : {true, false}) {
      for (const bool second : {true, false}) {
        for (const std::int64_t out : {1, 32, 131}) {
          expect_exact(
              {.bits = bits, .out = out, .in = 288, .symmetric = symmetric, .second = second});
        }
      }
    }
  }
}

TEST_F(GptqReader, DecodesRowsThatEndInsideAWordOrAByte) {
  for (const int bits : {2, 3, 4, 8}) {
    for (const std::int64_t in : {1, 5, 8, 31, 96, 133, 260})
      expect_exact({.bits = bits, .out = 9, .in = in, .symmetric = false});
  }
}

TEST_F(GptqReader, DecodesOneGroup) {
  for (const int bits : {3, 4, 8}) {
    expect_exact({.bits = bits, .out = 5, .in = 160, .group = -1});
    expect_exact({.bits = bits, .out = 5, .in = 160, .group = -1, .symmetric = false});
  }
}

TEST_F(GptqReader, DecodesSortedColumnsByTheirGroups) {
  for (const int bits : {2, 4, 8}) {
    const Case of{.bits = bits, .out = 7, .in = 128, .symmetric = false, .sorted = true};
    expect_exact(of);
    EXPECT_TRUE(load(of.config(), {of.out, of.in}).value().weight.format().input_order);
  }
}

TEST_F(GptqReader, GroupsInOrderOrUnlistedLeaveInputsInOrder) {
  const Case of{.out = 4};
  add(of);
  EXPECT_FALSE(load(of.config(), {of.out, of.in}).value().weight.format().input_order);
  files_.remove("m.g_idx");
  EXPECT_FALSE(load(of.config(), {of.out, of.in}).value().weight.format().input_order);
}

TEST_F(GptqReader, ThreeBitsCrossWordsAfterTheTenthCode) {
  // Ten codes, two bits of the next; its third, ten codes, one bit; two bits, ten codes.
  const std::array<std::uint32_t, 3> words{3U << 30, 1U | 5U << 1 | 1U << 31, 3U | 6U << 29};
  std::vector<std::int32_t> stored;
  for (const std::uint32_t word : words) stored.push_back(static_cast<std::int32_t>(word));
  files_.add("m.qweight", DType::i32, {3, 1}, stored);
  files_.add("m.qzeros", DType::i32, {1, 1}, std::vector<std::int32_t>{0});
  files_.add("m.scales", DType::f16, {1, 1}, std::vector<f16>{f16::from(1)});
  const Case of{.bits = 3, .second = true};
  std::vector<float> expected(32, 0.0F);
  expected[10] = 7;
  expected[11] = 5;
  expected[21] = 7;
  expected[31] = 6;
  EXPECT_EQ(numbers(of.config(), {1, 32}), expected);
}

TEST_F(GptqReader, OneIsAddedToWholeWordsOfZeroPoints) {
  // A stored 15 becomes 0 and carries into its neighbour, as GPTQModel has it; one of 3 bits does
  // not.
  constexpr TrueSize size{2, 32};
  files_.add("m.qweight", DType::i32, {4, 2}, std::vector<std::int32_t>(8));
  files_.add("m.qzeros", DType::i32, {1, 1}, std::vector<std::int32_t>{0x2F});
  files_.add("m.scales", DType::f16, {1, 2}, std::vector<f16>(2, f16::from(1)));
  const Case four{.symmetric = false};
  std::vector<float> all = numbers(four.config(), size);
  EXPECT_EQ(all[0], 0.0F);
  EXPECT_EQ(all[32], -4.0F);
  files_.add("m.qweight", DType::i32, {3, 2}, std::vector<std::int32_t>(6));
  files_.add("m.qzeros", DType::i32, {1, 1}, std::vector<std::int32_t>{2 << 3 | 7});
  const Case three{.bits = 3, .symmetric = false};
  all = numbers(three.config(), size);
  EXPECT_EQ(all[0], 0.0F);
  EXPECT_EQ(all[32], -3.0F);
}

// GPTQModel writes asymmetric files by taking one from whole words, whatever the zero points.
TEST_F(GptqReader, ZeroPointsOfAnySizeComeBackAsGptqModelWroteThem) {
  for (const int bits : {2, 4, 8}) {
    const std::int64_t out = 64 / bits;
    const auto zero = [&](std::int64_t o) {
      return static_cast<std::uint32_t>(o * 3) % (1U << bits);
    };
    Fields fields = Fields::make(out, 1, bits);
    std::uint32_t ones = 0;
    for (std::int64_t o = 0; o < out; ++o) fields.put(o, 0, zero(o), bits);
    for (int at = 0; at < 32; at += bits) ones |= 1U << at;
    for (std::int32_t& word : fields.words)
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) - ones);
    files_.add("m.qzeros", DType::i32, {1, 2}, fields.words);
    files_.add("m.qweight", DType::i32, {bits, out},
               std::vector<std::int32_t>(static_cast<std::size_t>(bits * out)));
    files_.add("m.scales", DType::f16, {1, out},
               std::vector<f16>(static_cast<std::size_t>(out), f16::from(1)));
    const Case of{.bits = bits, .symmetric = false};
    const std::vector<float> all = numbers(of.config(), {out, 32});
    for (std::int64_t o = 0; o < out; ++o)
      EXPECT_EQ(all[static_cast<std::size_t>(o * 32)], -static_cast<float>(zero(o))) << bits;
    EXPECT_TRUE(load(of.config(), {out, 32}).value().disputed_zero_points) << bits;
  }
}

TEST_F(GptqReader, TellsWhereProgramsDifferOnZeroPoints) {
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool second : {false, true}) {
      for (const bool symmetric : {false, true}) {
        // 1 to the largest code: one less is stored, which all programs read alike.
        const Case of{.bits = bits, .out = 5, .symmetric = symmetric, .second = second};
        add(of);
        EXPECT_FALSE(load(of.config(), {5, 64}).value().disputed_zero_points) << bits;
        const std::int64_t words = (5 * bits + 31) / 32;
        Fields fields = Fields::make(5, 1, bits);
        fields.put(4, 0, (1U << bits) - 1, bits);
        std::vector<std::int32_t> stored = fields.words;
        stored.insert(stored.end(), fields.words.begin(), fields.words.end());
        files_.add("m.qzeros", DType::i32, {2, words}, stored);
        EXPECT_EQ(load(of.config(), {5, 64}).value().disputed_zero_points, !second) << bits;
      }
    }
  }
  // What lies behind the last output does not count.
  const Case of{.out = 5, .symmetric = false};
  add(of);
  files_.add("m.qzeros", DType::i32, {2, 1}, std::vector<std::int32_t>(2, -0x100000 | 0x77777));
  EXPECT_FALSE(load(of.config(), {5, 64}).value().disputed_zero_points);
}

TEST_F(GptqReader, ZeroPointsThatFilesCallSymmetricCount) {
  const Case asymmetric{.out = 4, .symmetric = false};
  add(asymmetric);
  Case says = asymmetric;
  says.symmetric = true;
  EXPECT_TRUE(load(says.config(), {4, 64}).value().weight.format().zero_points);
}

TEST_F(GptqReader, KeepsScalesOfBf16) {
  const Case of{.out = 2};
  add(of);
  files_.add("m.scales", DType::bf16, {2, 2}, std::vector<bf16>(4, bf16::from(0.5F)));
  const LoadedWeight loaded = load(of.config(), {2, 64}).value();
  EXPECT_EQ(loaded.weight.format().scale_type, DType::bf16);
  EXPECT_EQ(numbers(of.config(), {2, 64})[1], static_cast<float>(of.code(0, 1) - 8) * 0.5F);
}

TEST_F(GptqReader, RefusesDamagedFilesByName) {
  const Case of{.out = 8, .symmetric = false};
  const Config config = of.config();
  add(of);
  expect_error(config, {8, 72}, "'m.qweight'", "[9, 8]");
  expect_error(config, {16, 64}, "'m.qweight'", "[8, 16]");
  expect_error(Case{.group = 64}.config(), {8, 64}, "'m.scales'", "[1, 8]");
  files_.add("m.qzeros", DType::i32, {2, 2}, std::vector<std::int32_t>(4));
  expect_error(config, {8, 64}, "'m.qzeros'", "[2, 1]");
  files_.remove("m.qzeros");
  expect_error(config, {8, 64}, "'m.qzeros'", "missing");
  add(of);
  files_.add("m.scales", DType::f16, {1, 8}, std::vector<f16>(8));
  expect_error(config, {8, 64}, "'m.scales'", "[2, 8]");
  add(of);
  files_.add("m.qweight", DType::f32, {8, 8}, std::vector<float>(64));
  expect_error(config, {8, 64}, "'m.qweight'", "not I32");
}

TEST_F(GptqReader, RefusesGroupsOfColumnsThatDoNotExist) {
  const Case of{.out = 8};
  add(of);
  std::vector<std::int32_t> index(64);
  for (const std::int32_t wrong : {2, -1}) {
    index[7] = wrong;
    files_.add("m.g_idx", DType::i32, {64}, index);
    expect_error(of.config(), {8, 64}, "'m.g_idx'", cat("input 7 is in group ", wrong, " of 2"));
  }
  files_.add("m.g_idx", DType::i32, {63}, std::vector<std::int32_t>(63));
  expect_error(of.config(), {8, 64}, "'m.g_idx'", "[64]");
}

TEST_F(GptqReader, RefusesGroupsThatKernelsDoNotHave) {
  const Case of{.in = 48, .group = 24};
  add(of);
  expect_error(of.config(), {of.out, of.in}, "'m.qweight'", "int4 group 24");
}

TEST_F(GptqReader, APlainWeightIsTakenAsItIs) {
  files_.add("m.weight", DType::f32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(numbers(Case{}.config(), {2, 3}), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace motley::quant
