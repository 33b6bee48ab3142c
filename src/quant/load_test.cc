#include "quant/load.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "quant/test_files.h"

namespace motley::quant {
namespace {

Config packed_config(std::int64_t group) {
  return config(cat(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
    "ignore": ["plain"], "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4,
    "type": "int", "symmetric": true, "strategy": "group", "group_size": )",
                    group, "}}}}"));
}

Config fp8_config() { return config(R"({"quant_method": "fp8", "weight_block_size": [4, 8]})"); }

int code_at(std::int64_t o, std::int64_t k) {
  return static_cast<int>((o * 7 + k * 5 + k / 3) % 16);
}

// The scheme's own words: element k of a row at bits 4 (k % 8) of word k / 8, code + 8 stored.
void add_packed(Files& files, std::int64_t out, std::int64_t in, std::int64_t group) {
  const std::int64_t words = (in + 7) / 8;
  std::vector<std::int32_t> packed(static_cast<std::size_t>(out * words), 0);
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t k = 0; k < in; ++k) {
      auto& word = packed[static_cast<std::size_t>(o * words + k / 8)];
      word =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(word) |
                                    (static_cast<std::uint32_t>(code_at(o, k)) << (4 * (k % 8))));
    }
  }
  files.add("m.weight_packed", DType::i32, {out, words}, packed);
  const std::int64_t groups = (in + group - 1) / group;
  std::vector<bf16> scales;
  for (std::int64_t i = 0; i < out * groups; ++i)
    scales.push_back(bf16::from(0.01F * static_cast<float>(i + 1)));
  files.add("m.weight_scale", DType::bf16, {out, groups}, scales);
  files.add("m.weight_shape", DType::i64, {2}, std::vector<std::int64_t>{out, in});
}

using Load = LoadTest;

TEST_F(Load, PackedWeightsDecodeExactly) {
  for (const std::int64_t group : {32, 64, 128}) {
    for (const std::int64_t in : {256, 128, 133, 8, 5, 129}) {
      constexpr std::int64_t out = 3;
      add_packed(files_, out, in, group);
      const LoadedWeight loaded = load(packed_config(group), {out, in}).value();
      EXPECT_THAT(loaded.used, testing::UnorderedElementsAre("m.weight_packed", "m.weight_scale",
                                                             "m.weight_shape"));
      EXPECT_EQ(loaded.weight.out(), out);
      EXPECT_EQ(loaded.weight.in(), in);
      std::vector<float> numbers(static_cast<std::size_t>(out * in));
      loaded.weight.decode(0, out, numbers.data());
      const std::int64_t groups = (in + group - 1) / group;
      for (std::int64_t o = 0; o < out; ++o) {
        for (std::int64_t k = 0; k < in; ++k) {
          const std::int64_t place = o * groups + k / group;
          const float scale = bf16::from(0.01F * static_cast<float>(place + 1)).to_float();
          ASSERT_EQ(numbers[static_cast<std::size_t>(o * in + k)],
                    static_cast<float>(code_at(o, k) - 8) * scale);
        }
      }
    }
  }
}

TEST_F(Load, Fp8BlocksDecodeExactlyAlsoAtTheEdges) {
  constexpr std::int64_t out = 10;
  constexpr std::int64_t in = 19;  // edge blocks of 2 rows and 3 columns
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < out * in; ++i)
    codes.push_back(static_cast<std::uint8_t>(i % 127 + (i % 2) * 128));
  files_.add("m.weight", DType::f8_e4m3, {out, in}, codes);
  std::vector<float> scales;
  for (int i = 0; i < 9; ++i) scales.push_back(0.3F + static_cast<float>(i));
  files_.add("m.weight_scale_inv", DType::f32, {3, 3}, scales);
  const LoadedWeight loaded = load(fp8_config(), {out, in}).value();
  EXPECT_EQ(loaded.used, (std::vector<std::string>{"m.weight", "m.weight_scale_inv"}));
  std::vector<float> numbers(static_cast<std::size_t>(4 * in));
  loaded.weight.decode(3, 7, numbers.data());
  for (std::int64_t o = 3; o < 7; ++o) {
    for (std::int64_t k = 0; k < in; ++k) {
      const f8_e4m3 code{codes[static_cast<std::size_t>(o * in + k)]};
      const float scale = scales[static_cast<std::size_t>(o / 4 * 3 + k / 8)];
      ASSERT_EQ(numbers[static_cast<std::size_t>((o - 3) * in + k)], code.to_float() * scale);
    }
  }
}

TEST_F(Load, PlainWeightsAreBorrowedWhateverTheConfiguration) {
  files_.add("m.weight", DType::bf16, {2, 3},
             std::vector<bf16>{bf16::from(1), bf16::from(2), bf16::from(3), bf16::from(4),
                               bf16::from(5), bf16::from(6)});
  for (const Config& each : {Config(), packed_config(32), fp8_config()}) {
    const LoadedWeight loaded = load(each, {2, 3}).value();
    EXPECT_EQ(loaded.used, std::vector<std::string>{"m.weight"});
    EXPECT_EQ(loaded.weight.view().data, files_("m.weight")->bytes());
    std::vector<float> numbers(3);
    loaded.weight.decode(1, 2, numbers.data());
    EXPECT_EQ(numbers, (std::vector<float>{4, 5, 6}));
  }
}

// Lists of modules are a help; what is stored decides.
TEST_F(Load, ARouterStaysPlainUnderEveryMethodAndList) {
  const std::string router = "model.layers.0.mlp.gate";
  files_.add(router + ".weight", DType::bf16, {2, 2}, std::vector<bf16>(4, bf16::from(0.5F)));
  for (
      const std::string_view quantization :
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 32})",
       R"({"quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["lm_head"]})",
       R"({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["gate"]})",
       R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
       R"({"quant_method": "mxfp4"})", R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
       R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
            {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32}}}})",
       R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups":
            {"g": {"targets": ["re:.*gate.*"], "weights": {"num_bits": 8, "type": "float"}}}})"}) {
    const LoadedWeight loaded = load(config(quantization), {2, 2}, router).value();
    EXPECT_EQ(to_string(loaded.weight.format()), "bf16") << quantization;
    EXPECT_EQ(loaded.weight.view().inputs.scales, kernels::InputRounding::Scales::none);
  }
}

// AWQ's "gate" is a part of "gate_proj" too.
TEST_F(Load, AListThatSaysTooMuchLeavesNothingPlainThatIsPacked) {
  const Config of = config(R"({"quant_method": "awq", "bits": 4, "group_size": 32,
      "modules_to_not_convert": ["gate", "mlp.gate"]})");
  const std::string module = "model.layers.0.mlp.gate_proj";
  files_.add(module + ".qweight", DType::i32, {32, 1}, std::vector<std::int32_t>(32));
  files_.add(module + ".qzeros", DType::i32, {1, 1}, std::vector<std::int32_t>(1));
  files_.add(module + ".scales", DType::f16, {1, 8}, std::vector<f16>(8, f16::from(1)));
  EXPECT_EQ(load(of, {8, 32}, module).value().weight.format().bits, 4);
}

TEST_F(Load, RefusesAMissingWeight) { expect_error(Config(), {2, 3}, "m.weight", "missing"); }

TEST_F(Load, RefusesSizesThatDisagreeByName) {
  add_packed(files_, 4, 64, 32);
  expect_error(packed_config(32), {4, 72}, "'m.weight_shape'", "[4, 64]");
  files_.add("m.weight_shape", DType::i32, {2}, std::vector<std::int32_t>{4, 72});
  expect_error(packed_config(32), {4, 72}, "'m.weight_packed'", "[4, 9]");
  files_.add("m.weight_shape", DType::i32, {2}, std::vector<std::int32_t>{4, 64});
  expect_error(packed_config(64), {4, 64}, "'m.weight_scale'", "[4, 1]");

  files_ = Files();
  files_.add("m.weight", DType::f32, {2, 3}, std::vector<float>(6));
  expect_error(Config(), {3, 2}, "'m.weight'", "[2, 3]");

  files_ = Files();
  files_.add("m.weight", DType::f8_e4m3, {8, 8}, std::vector<std::uint8_t>(64));
  files_.add("m.weight_scale_inv", DType::f32, {1, 1}, std::vector<float>{1});
  expect_error(fp8_config(), {8, 8}, "'m.weight_scale_inv'", "[2, 1]");
}

TEST_F(Load, RefusesPartsThatAreMissingOrTooMany) {
  add_packed(files_, 4, 64, 32);
  files_.add("m.weight", DType::f32, {4, 64}, std::vector<float>(256));
  expect_error(packed_config(32), {4, 64}, "'m.weight_packed'", "both");
  files_.remove("m.weight");
  files_.add("m.weight_g_idx", DType::i32, {64}, std::vector<std::int32_t>(64));
  expect_error(packed_config(32), {4, 64}, "'m.weight_g_idx'", "scheme");
  files_.remove("m.weight_g_idx");
  files_.remove("m.weight_scale");
  expect_error(packed_config(32), {4, 64}, "'m.weight_scale'", "missing");
  files_.remove("m.weight_shape");
  expect_error(packed_config(32), {4, 64}, "'m.weight_shape'", "missing");
}

TEST_F(Load, RefusesTensorsThatTheConfigurationDoesNotExpect) {
  add_packed(files_, 4, 64, 32);
  expect_error(Config(), {4, 64}, "'m.weight_packed'", "plain");
  expect_error(fp8_config(), {4, 64}, "'m.weight_packed'", "fp8");
  files_ = Files();
  files_.add("m.weight", DType::f8_e4m3, {4, 8}, std::vector<std::uint8_t>(32));
  expect_error(Config(), {4, 8}, "'m.weight'", "F8_E4M3");
  expect_error(fp8_config(), {4, 8}, "'m.weight_scale_inv'", "missing");
  files_ = Files();
  files_.add("m.weight", DType::i8, {4, 8}, std::vector<std::uint8_t>(32));
  expect_error(Config(), {4, 8}, "'m.weight'", "I8");
  files_.add("m.weight", DType::f32, {4, 8}, std::vector<float>(32));
  files_.add("m.weight_scale", DType::f32, {4, 1}, std::vector<float>(4));
  expect_error(Config(), {4, 8}, "'m.weight_scale'", "scheme");
}

TEST_F(Load, RefusesScalesThatAreNotFinite) {
  add_packed(files_, 4, 64, 32);
  std::vector<float> scales(8, 1.0F);
  scales[5] = INFINITY;
  files_.add("m.weight_scale", DType::f32, {4, 2}, scales);
  expect_error(packed_config(32), {4, 64}, "'m.weight_scale'", "finite");
}

}  // namespace
}  // namespace motley::quant
