#include <cmath>

#include "quant/test_files.h"

// FP8 and INT8 with scales beside them.
namespace motley::quant {
namespace {

using Scaled = LoadTest;

constexpr std::int64_t out = 6;
constexpr std::int64_t in = 64;

std::string group_config(std::string_view format, std::string_view weights,
                         std::string_view inputs = "null") {
  return cat(R"({"quant_method": "compressed-tensors", "format": ")", format,
             R"(", "config_groups": {"g": {"targets": ["Linear"], "weights": )", weights,
             R"(, "input_activations": )", inputs, "}}}");
}

std::vector<std::uint8_t> some_codes() {
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < out * in; ++i) {
    const auto code = static_cast<std::uint8_t>(i * 37 + i / 9);
    codes.push_back((code & 0x7FU) == 0x7FU ? std::uint8_t{1} : code);  // no NaN
  }
  return codes;
}

float f8_at(const std::vector<std::uint8_t>& codes, std::int64_t i) {
  return f8_e4m3{codes[static_cast<std::size_t>(i)]}.to_float();
}

TEST_F(Scaled, Fp8WithAScaleForATensorAChannelOrAGroup) {
  const std::vector<std::uint8_t> codes = some_codes();
  files_.add("m.weight", DType::f8_e4m3, {out, in}, codes);

  for (const tensor::Shape& shape : {tensor::Shape{}, tensor::Shape{1}, tensor::Shape{1, 1}}) {
    files_.add("m.weight_scale", DType::f32, shape, std::vector<float>{0.375F});
    const std::vector<float> read =
        numbers(config(group_config("float-quantized", R"({"type": "float"})")), {out, in});
    for (std::int64_t i = 0; i < out * in; ++i)
      ASSERT_EQ(read[static_cast<std::size_t>(i)], f8_at(codes, i) * 0.375F);
  }

  std::vector<bf16> scales;
  for (int o = 0; o < out; ++o) scales.push_back(bf16::from(0.1F * static_cast<float>(o + 1)));
  for (const tensor::Shape& shape : {tensor::Shape{out, 1}, tensor::Shape{out}}) {
    files_.add("m.weight_scale", DType::bf16, shape, scales);
    const std::vector<float> read = numbers(
        config(group_config("float-quantized", R"({"type": "float", "strategy": "channel"})")),
        {out, in});
    for (std::int64_t i = 0; i < out * in; ++i)
      ASSERT_EQ(read[static_cast<std::size_t>(i)],
                f8_at(codes, i) * scales[static_cast<std::size_t>(i / in)].to_float());
  }

  std::vector<std::uint8_t> exponents;
  for (int i = 0; i < 2 * out; ++i) exponents.push_back(static_cast<std::uint8_t>(120 + i));
  for (const DType type : {DType::u8, DType::f8_e8m0}) {
    files_.add("m.weight_scale", type, {out, 2}, exponents);
    const std::vector<float> read =
        numbers(config(group_config("mxfp8-quantized", R"({"type": "float", "group_size": 32})")),
                {out, in});
    if (type == DType::u8) {
      ASSERT_EQ(read.size(), static_cast<std::size_t>(out * in));
    }
    for (std::int64_t i = 0; i < out * in; ++i)
      ASSERT_EQ(
          read[static_cast<std::size_t>(i)],
          f8_at(codes, i) * std::ldexp(1.0F, exponents[static_cast<std::size_t>(i / 32)] - 127));
  }
}

TEST_F(Scaled, BlocksOfModelOptHaveDimensionsOfOne) {
  const std::vector<std::uint8_t> codes = some_codes();
  files_.add("m.weight", DType::f8_e4m3, {out, in}, codes);
  files_.add("m.weight_scale", DType::f32, {1, 1, 1, 1}, std::vector<float>{0.5F});
  const Config of = config(R"({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"})");
  const std::vector<float> read = numbers(of, {out, in});
  for (std::int64_t i = 0; i < out * in; ++i)
    ASSERT_EQ(read[static_cast<std::size_t>(i)], f8_at(codes, i) * 0.5F);
  files_.add("m.weight", DType::f8_e4m3, {200, 300}, std::vector<std::uint8_t>(60000, 0x38));
  files_.add("m.weight_scale", DType::f32, {2, 1, 3, 1}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(numbers(of, {200, 300})[199 * 300 + 299], 6.0F);
}

TEST_F(Scaled, Int8WithZeroPoints) {
  const std::vector<std::uint8_t> codes = some_codes();
  files_.add("m.weight", DType::i8, {out, in}, codes);
  std::vector<float> scales;
  std::vector<std::int8_t> zeros;
  for (int o = 0; o < out; ++o) {
    scales.push_back(0.01F * static_cast<float>(o + 1));
    zeros.push_back(static_cast<std::int8_t>(20 * o - 60));
  }
  files_.add("m.weight_scale", DType::f32, {out, 1}, scales);
  const auto meaning = [&](bool with_zeros) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < out * in; ++i) {
      const auto o = static_cast<std::size_t>(i / in);
      const auto code = static_cast<std::int8_t>(codes[static_cast<std::size_t>(i)]);
      all.push_back(static_cast<float>(code - (with_zeros ? zeros[o] : 0)) * scales[o]);
    }
    return all;
  };
  constexpr std::string_view symmetric = R"({"strategy": "channel"})";
  constexpr std::string_view asymmetric = R"({"strategy": "channel", "symmetric": false})";
  EXPECT_EQ(numbers(config(group_config("int-quantized", symmetric)), {out, in}), meaning(false));
  files_.add("m.weight_zero_point", DType::i8, {out, 1}, zeros);
  EXPECT_EQ(numbers(config(group_config("int-quantized", asymmetric)), {out, in}), meaning(true));
  files_.add("m.weight_zero_point", DType::i8, {2, 1}, std::vector<std::int8_t>(2));
  expect_error(config(group_config("int-quantized", asymmetric)), {out, in},
               "'m.weight_zero_point'", "[2, 1]");
}

TEST_F(Scaled, StaticActivationsHaveTheFilesScale) {
  files_.add("m.weight", DType::i8, {out, in}, some_codes());
  files_.add("m.weight_scale", DType::f32, {1}, std::vector<float>{0.5F});
  const Config of = config(group_config("int-quantized", R"({"strategy": "tensor"})",
                                        R"({"strategy": "tensor", "symmetric": false})"));
  expect_error(of, {out, in}, "'m.input_scale'", "missing");
  files_.add("m.input_scale", DType::f32, {1}, std::vector<float>{0.0F});
  expect_error(of, {out, in}, "'m.input_scale'", "scale of 0");
  files_.add("m.input_scale", DType::f32, {1}, std::vector<float>{0.25F});
  files_.add("m.input_zero_point", DType::i8, {1}, std::vector<std::int8_t>{-5});
  const LoadedWeight loaded = load(of, {out, in}).value();
  EXPECT_EQ(loaded.weight.view().inputs.scale, 0.25F);
  EXPECT_EQ(loaded.weight.view().inputs.zero, -5.0F);

  Config exact = of;
  exact.keep_inputs_exact();
  const LoadedWeight without = load(exact, {out, in}).value();
  EXPECT_EQ(without.weight.view().inputs.scales, kernels::InputRounding::Scales::none);
  EXPECT_EQ(without.used.size(), 4U) << "what is not needed is there on purpose";
}

// A short list of scales, groups of another size, parts of other schemes.
TEST_F(Scaled, RefusesDamagedFilesByName) {
  files_.add("m.weight", DType::f8_e4m3, {out, in}, some_codes());
  const auto fp8 = [](std::string_view weights) {
    return config(group_config("float-quantized", weights));
  };
  const auto scales = [&](const tensor::Shape& shape) {
    files_.add("m.weight_scale", DType::f32, shape,
               std::vector<float>(static_cast<std::size_t>(shape.elements()), 1.0F));
  };
  const Config channel = fp8(R"({"type": "float", "strategy": "channel"})");
  scales({out - 1, 1});
  expect_error(channel, {out, in}, "'m.weight_scale'", "[6, 1] is needed");
  scales({out, 2});
  expect_error(channel, {out, in}, "'m.weight_scale'", "[6, 1] is needed");
  scales({2});
  expect_error(fp8(R"({"type": "float", "strategy": "tensor"})"), {out, in}, "'m.weight_scale'",
               "[1, 1] is needed");
  const Config mxfp8 =
      config(group_config("mxfp8-quantized", R"({"type": "float", "group_size": 32})"));
  files_.add("m.weight_scale", DType::u8, {out, 4}, std::vector<std::uint8_t>(4 * out, 127));
  expect_error(mxfp8, {out, in}, "'m.weight_scale'", "[6, 2] is needed");
  files_.add("m.weight_scale", DType::u8, {out, 2}, std::vector<std::uint8_t>(2 * out, 255));
  expect_error(mxfp8, {out, in}, "'m.weight_scale'", "not finite");
  scales({out, 1});
  files_.add("m.weight_zero_point", DType::i8, {out, 1}, std::vector<std::int8_t>(out));
  expect_error(channel, {out, in}, "'m.weight_zero_point'", "scheme");
  files_.remove("m.weight_zero_point");
  files_.add("m.weight_g_idx", DType::i32, {in}, std::vector<std::int32_t>(in));
  expect_error(channel, {out, in}, "'m.weight_g_idx'", "scheme");
  files_.remove("m.weight_g_idx");
  files_.add("m.weight", DType::f8_e4m3, {out, in - 1},
             std::vector<std::uint8_t>(static_cast<std::size_t>(out * (in - 1))));
  expect_error(channel, {out, in}, "'m.weight'", "[6, 64] is needed");
  files_.add("m.weight", DType::i8, {out, in}, some_codes());
  expect_error(channel, {out, in}, "'m.weight'", "not F8_E4M3");

  const Config int8 =
      config(group_config("int-quantized", R"({"strategy": "channel", "symmetric": false})"));
  files_.add("m.weight_zero_point", DType::i32, {out, 1}, std::vector<std::int32_t>(out));
  expect_error(int8, {out, in}, "'m.weight_zero_point'", "not I8");
}

}  // namespace
}  // namespace motley::quant
