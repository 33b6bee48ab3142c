#include <array>

#include <gtest/gtest.h>

#include "quant/formats.h"
#include "quant/test_files.h"

namespace motley::quant {
namespace {

using Inputs = kernels::InputRounding::Scales;
using Scales = Format::Scales;

Config config_of(std::string_view algorithm, std::string_view more = "") {
  return config(cat(R"({"quant_method": "modelopt", "quant_algo": ")", algorithm, "\"", more, "}"));
}

Scheme scheme_of(std::string_view algorithm) {
  const Scheme scheme = config_of(algorithm).scheme_of("m").value();
  EXPECT_TRUE(is_known(scheme.format)) << algorithm;
  return scheme;
}

TEST(ModelOpt, ReadsTheAlgorithmsOfEightBits) {
  const Scheme tensor = scheme_of("FP8");
  EXPECT_EQ(tensor.layout, Layout::scaled);
  EXPECT_EQ(tensor.format.scales, Scales::tensor);
  EXPECT_EQ(tensor.format.inputs, Inputs::fixed);
  EXPECT_EQ(tensor.format.input_type, DType::f8_e4m3);

  const Scheme channel = scheme_of("FP8_PER_CHANNEL_PER_TOKEN");
  EXPECT_EQ(channel.format.scales, Scales::channel);
  EXPECT_EQ(channel.format.inputs, Inputs::row);

  for (const std::string_view name : {"FP8_PB_WO", "fp8_pb_wo"}) {
    const Scheme block = scheme_of(name);
    EXPECT_EQ(block.format.scales, Scales::block);
    EXPECT_EQ(block.format.block_rows, 128);
    EXPECT_EQ(block.format.block_columns, 128);
    EXPECT_EQ(block.format.inputs, Inputs::none);
  }

  const Scheme mx = scheme_of("MXFP8");
  EXPECT_EQ(mx.format.scales, Scales::group);
  EXPECT_EQ(mx.format.block_columns, 32);
  EXPECT_EQ(mx.format.scale_type, DType::f8_e8m0);
}

TEST(ModelOpt, ReadsNvfp4AndSaysWhenActivationsStayAsTheyAre) {
  for (const std::string_view name : {"NVFP4", "W4A16_NVFP4"}) {
    const Scheme scheme = scheme_of(name);
    EXPECT_EQ(scheme.layout, Layout::fp4);
    EXPECT_EQ(to_string(scheme.format), "nvfp4");
    EXPECT_EQ(scheme.format.inputs, Inputs::none);
  }
  EXPECT_EQ(config_of("NVFP4").remarks(),
            std::vector<std::string>{"activations of 4 bits are asked for; they stay unquantised"});
  EXPECT_EQ(config_of("MXFP8").remarks(),
            std::vector<std::string>{
                "activations of 8 bits in groups of 32 are asked for; they stay unquantised"});
  for (const std::string_view name : {"FP8", "FP8_PB_WO", "W4A16_NVFP4"})
    EXPECT_TRUE(config_of(name).remarks().empty());
}

TEST(ModelOpt, IgnoredModulesAreWildcardsOrNames) {
  const Config of = config_of("FP8", R"(, "ignore": ["lm_head", "model.layers.0.self_attn*",
      "*.mlp.gate", "model.layers.1", "model.layers.?.extra"], "kv_cache_scheme":
      {"dynamic": false, "num_bits": 8, "type": "float"})");
  for (const std::string_view plain :
       {"lm_head", "model.layers.0.self_attn", "model.layers.0.self_attn.q_proj",
        "model.layers.7.mlp.gate", "model.layers.1", "model.layers.1.mlp.up_proj",
        "model.layers.5.extra"})
    EXPECT_FALSE(of.scheme_of(plain).has_value()) << plain;
  for (const std::string_view quantised :
       {"model.layers.7.mlp.gate_proj", "model.layers.10.mlp.up_proj", "model.lm_head",
        "model.layers.2.self_attn.q_proj", "model.layers.55.extra"})
    EXPECT_TRUE(of.scheme_of(quantised).has_value()) << quantised;
}

TEST(ModelOpt, ReadsTheSettingsOfHfQuantConfig) {
  const Config of = config(R"({"quant_method": "modelopt", "producer":
      {"name": "modelopt", "version": "0.29.0"}, "quantization": {"quant_algo": "NVFP4",
      "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(of.scheme_of("m").value().layout, Layout::fp4);
  EXPECT_FALSE(of.scheme_of("lm_head").has_value());
}

TEST(ModelOpt, WithoutAnAlgorithmOnlyTheCacheIsQuantised) {
  const Config of = config(R"({"quant_method": "modelopt", "quant_algo": null,
      "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"}})");
  EXPECT_FALSE(of.scheme_of("m").has_value());
  expect_refused(R"({"quant_method": "modelopt"})", "quant_algo", "no quant_algo");
}

TEST(ModelOpt, LayersOfMixedPrecisionHaveAlgorithmsOfTheirOwn) {
  const Config of = config_of("MIXED_PRECISION", R"(, "ignore": ["*.router"],
      "quantized_layers": {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.up_proj": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
        "model.layers.0.mlp.down_proj": {"quant_algo": "FP8"},
        "model.layers.1.mlp.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.1.mlp.experts.1.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.2.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16}})");
  const auto scales_of = [&](std::string_view module) {
    return of.scheme_of(module).value().format.scales;
  };
  EXPECT_EQ(scales_of("model.layers.0.self_attn.q_proj"), Scales::tensor);
  EXPECT_EQ(scales_of("model.layers.0.mlp.up_proj"), Scales::channel);
  EXPECT_EQ(scales_of("model.layers.0.mlp.down_proj"), Scales::tensor);
  EXPECT_EQ(scales_of("model.layers.1.mlp.experts.1.up_proj"), Scales::group);
  EXPECT_EQ(scales_of("model.layers.2.mlp.experts.7.down_proj"), Scales::group);
  EXPECT_FALSE(of.scheme_of("lm_head").has_value());
  EXPECT_FALSE(of.scheme_of("model.layers.0.mlp.gate_proj").has_value());
  EXPECT_FALSE(of.scheme_of("model.layers.2.mlp.experts.router").has_value());
  EXPECT_EQ(of.remarks().size(), 1U);
}

TEST(ModelOpt, RefusesAlgorithmsAndSettingsThatNoReaderKnows) {
  for (const std::string_view name : {"W4A16_AWQ", "NVFP4_AWQ", "W8A8_SQ_PER_CHANNEL", "INT3"})
    expect_refused(cat(R"({"quant_method": "modelopt", "quant_algo": ")", name, R"("})"),
                   "quant_algo", name);
  expect_refused(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32})",
                 "group_size", "groups of 32");
  expect_refused(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "pre_quant_scale": true})",
                 "pre_quant_scale", "scaled before");
  expect_refused(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})",
                 "quantized_layers", "no quantized_layers");
  expect_refused(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
                     "quantized_layers": {"a.b": {"quant_algo": "W4A8_AWQ"}}})",
                 "quantized_layers.a.b.quant_algo", "W4A8_AWQ");
  expect_refused(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
                     "quantized_layers": {"a": {"quant_algo": "FP8"},
                                          "a.b": {"quant_algo": "NVFP4"}}})",
                 "quantized_layers", "'a' and a part of it");
}

using ModelOptLoad = LoadTest;

TEST_F(ModelOptLoad, Fp8DecodesExactlyAndKeepsItsInputScale) {
  constexpr TrueSize size{3, 5};
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < size.out * size.in; ++i)
    codes.push_back(static_cast<std::uint8_t>(i * 17 % 127 + i % 2 * 128));
  files_.add("m.weight", DType::f8_e4m3, {size.out, size.in}, codes);
  files_.add("m.weight_scale", DType::f32, {}, std::vector<float>{0.37F});
  files_.add("m.input_scale", DType::f32, {}, std::vector<float>{0.25F});
  const Config of = config_of("FP8");
  EXPECT_EQ(load(of, size).value().weight.view().inputs.scale, 0.25F);
  const std::vector<float> all = numbers(of, size);
  for (std::size_t i = 0; i < codes.size(); ++i)
    ASSERT_EQ(all[i], f8_e4m3{codes[i]}.to_float() * 0.37F) << i;
  files_.remove("m.input_scale");
  expect_error(of, size, "'m.input_scale'", "missing");
}

TEST_F(ModelOptLoad, Nvfp4MultipliesItsTwoScales) {
  constexpr TrueSize size{2, 32};
  constexpr std::array values{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < size.out * size.in / 2; ++i)
    bytes.push_back(static_cast<std::uint8_t>(i * 37 + 5));
  files_.add("m.weight", DType::u8, {size.out, size.in / 2}, bytes);
  const std::vector<std::uint8_t> scales{0x38, 0x41, 0x07, 0x70};
  files_.add("m.weight_scale", DType::f8_e4m3, {size.out, size.in / 16}, scales);
  files_.add("m.weight_scale_2", DType::f32, {}, std::vector<float>{0.125F});
  files_.add("m.input_scale", DType::f32, {}, std::vector<float>{0.01F});
  const Config of = config_of("NVFP4");
  const std::vector<float> all = numbers(of, size);
  for (std::int64_t o = 0; o < size.out; ++o) {
    for (std::int64_t k = 0; k < size.in; ++k) {
      const int byte = bytes[static_cast<std::size_t>(o * size.in / 2 + k / 2)];
      const int code = k % 2 == 0 ? byte & 15 : byte >> 4;
      const float value = values[static_cast<std::size_t>(code & 7)] * (code < 8 ? 1.0F : -1.0F);
      const float scale = f8_e4m3{scales[static_cast<std::size_t>(o * 2 + k / 16)]}.to_float();
      ASSERT_EQ(all[static_cast<std::size_t>(o * size.in + k)], value * scale * 0.125F);
    }
  }
  files_.remove("m.weight_scale_2");
  expect_error(of, size, "'m.weight_scale_2'", "missing");
}

TEST_F(ModelOptLoad, MxFp8TakesPowersOfTwoFromBytes) {
  constexpr TrueSize size{2, 64};
  const std::vector<std::uint8_t> codes(128, 0x3C);  // 1.5
  files_.add("m.weight", DType::f8_e4m3, {size.out, size.in}, codes);
  files_.add("m.weight_scale", DType::u8, {2, 2}, std::vector<std::uint8_t>{127, 128, 120, 130});
  const std::vector<float> all = numbers(config_of("MXFP8"), size);
  EXPECT_EQ(all[0], 1.5F);
  EXPECT_EQ(all[63], 3.0F);
  EXPECT_EQ(all[64], 1.5F / 128);
  EXPECT_EQ(all[127], 12.0F);
}

TEST_F(ModelOptLoad, BlocksOfWeightsHaveTheirOwnScale) {
  constexpr TrueSize size{130, 128};
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(size.out * size.in), 0x38);  // 1
  files_.add("m.weight", DType::f8_e4m3, {size.out, size.in}, codes);
  files_.add("m.weight_scale", DType::f32, {2, 1}, std::vector<float>{0.5F, 0.75F});
  const std::vector<float> all = numbers(config_of("FP8_PB_WO"), size);
  EXPECT_EQ(all.front(), 0.5F);
  EXPECT_EQ(all[128 * 128 - 1], 0.5F);
  EXPECT_EQ(all[128 * 128], 0.75F);
  EXPECT_EQ(all.back(), 0.75F);
}

}  // namespace
}  // namespace motley::quant
