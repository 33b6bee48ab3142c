#include <array>

#include <gtest/gtest.h>

#include "quant/test_files.h"

namespace motley::quant {
namespace {

// By AWQ's definition: the code of output 8 c + order[i] lies at bits 4 i of word c.
constexpr std::array order{0, 2, 4, 6, 1, 3, 5, 7};

std::int32_t word_of(const std::vector<int>& row, std::int64_t c) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto output = static_cast<std::size_t>(8 * c + order[i]);
    if (output < row.size()) word |= static_cast<std::uint32_t>(row[output]) << (4 * i);
  }
  return static_cast<std::int32_t>(word);
}

struct Case {
  std::int64_t out = 16;
  std::int64_t in = 64;
  std::int64_t group = 32;
  bool symmetric = false;

  std::int64_t groups() const { return group < 0 ? 1 : (in + group - 1) / group; }
  std::int64_t group_of(std::int64_t k) const { return group < 0 ? 0 : k / group; }
  int code(std::int64_t o, std::int64_t k) const {
    return static_cast<int>((o * 7 + k * 5 + k / 3) % 16);
  }
  int zero(std::int64_t o, std::int64_t g) const {
    return symmetric ? 8 : static_cast<int>((o * 3 + g) % 16);
  }
  f16 scale(std::int64_t o, std::int64_t g) const {
    return f16::from(0.01F * static_cast<float>(o * groups() + g + 1));
  }
  Config config() const {
    return read_config(cat(R"({"quant_method": "awq", "bits": 4, "version": "gemm",
        "zero_point": true, "group_size": )",
                           group, "}"))
        .value();
  }
};

class AwqReader : public LoadTest {
 protected:
  void add(const Case& of) {
    const std::int64_t words = (of.out + 7) / 8;
    std::vector<std::int32_t> codes;
    for (std::int64_t k = 0; k < of.in; ++k) {
      std::vector<int> row;
      for (std::int64_t o = 0; o < of.out; ++o) row.push_back(of.code(o, k));
      for (std::int64_t c = 0; c < words; ++c) codes.push_back(word_of(row, c));
    }
    files_.add("m.qweight", DType::i32, {of.in, words}, codes);
    std::vector<std::int32_t> zeros;
    std::vector<f16> scales;
    for (std::int64_t g = 0; g < of.groups(); ++g) {
      std::vector<int> row;
      for (std::int64_t o = 0; o < of.out; ++o) {
        row.push_back(of.zero(o, g));
        scales.push_back(of.scale(o, g));
      }
      for (std::int64_t c = 0; c < words; ++c) zeros.push_back(word_of(row, c));
    }
    files_.add("m.qzeros", DType::i32, {of.groups(), words}, zeros);
    files_.add("m.scales", DType::f16, {of.groups(), of.out}, scales);
  }

  void expect_exact(const Case& of) {
    files_ = Files();
    add(of);
    const Result<LoadedWeight> result = load(of.config(), {of.out, of.in});
    ASSERT_TRUE(result.ok()) << result.error().message();
    EXPECT_EQ(result->used, (std::vector<std::string>{"m.qweight", "m.scales", "m.qzeros"}));
    EXPECT_EQ(result->weight.format().zero_points, !of.symmetric);
    EXPECT_EQ(result->weight.format().scale_type, DType::f16);
    const std::vector<float> all = numbers(of.config(), {of.out, of.in});
    for (std::int64_t o = 0; o < of.out; ++o) {
      for (std::int64_t k = 0; k < of.in; ++k) {
        const std::int64_t g = of.group_of(k);
        const auto difference = static_cast<float>(of.code(o, k) - of.zero(o, g));
        ASSERT_EQ(all[static_cast<std::size_t>(o * of.in + k)],
                  difference * of.scale(o, g).to_float())
            << o << ", " << k << " of " << of.out << ", " << of.in;
      }
    }
  }
};

TEST_F(AwqReader, DecodesExactly) {
  for (const std::int64_t out : {8, 16, 128, 136, 264}) {
    for (const std::int64_t in : {8, 64, 128, 288}) expect_exact({.out = out, .in = in});
  }
}

TEST_F(AwqReader, DecodesSizesThatWordsDoNotDivide) {
  for (const std::int64_t out : {1, 13, 133}) {
    for (const std::int64_t in : {1, 5, 31, 133, 257}) expect_exact({.out = out, .in = in});
  }
}

TEST_F(AwqReader, DecodesOneGroupAndSymmetricWeights) {
  expect_exact({.group = -1});
  expect_exact({.symmetric = true});
}

TEST_F(AwqReader, KeepsScalesOfBf16) {
  const Case of{.out = 8};
  add(of);
  files_.add("m.scales", DType::bf16, {2, 8}, std::vector<bf16>(16, bf16::from(0.5F)));
  const LoadedWeight loaded = load(of.config(), {8, 64}).value();
  EXPECT_EQ(loaded.weight.format().scale_type, DType::bf16);
  EXPECT_EQ(numbers(of.config(), {8, 64})[1],
            static_cast<float>(of.code(0, 1) - of.zero(0, 0)) * 0.5F);
}

TEST_F(AwqReader, RefusesDamagedFilesByName) {
  const Case of{};
  const Config config = of.config();
  add(of);
  expect_error(config, {16, 72}, "'m.qweight'", "[72, 2]");
  expect_error(config, {24, 64}, "'m.qweight'", "[64, 3]");
  expect_error(Case{.group = 64}.config(), {16, 64}, "'m.scales'", "[1, 16]");
  files_.add("m.qzeros", DType::i32, {2, 3}, std::vector<std::int32_t>(6));
  expect_error(config, {16, 64}, "'m.qzeros'", "[2, 2]");
  files_.remove("m.qzeros");
  expect_error(config, {16, 64}, "'m.qzeros'", "missing");
  add(of);
  files_.add("m.scales", DType::f16, {1, 16}, std::vector<f16>(16));
  expect_error(config, {16, 64}, "'m.scales'", "[2, 16]");
  add(of);
  files_.add("m.qweight", DType::i64, {64, 2}, std::vector<std::int64_t>(128));
  expect_error(config, {16, 64}, "'m.qweight'", "not I32");
  add(of);
  files_.add("m.g_idx", DType::i32, {64}, std::vector<std::int32_t>(64));
  expect_error(config, {16, 64}, "'m.g_idx'", "scheme");
}

}  // namespace
}  // namespace motley::quant
