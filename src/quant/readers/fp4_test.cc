#include <cmath>

#include "quant/test_files.h"

// NVFP4 as compressed-tensors and ModelOpt write it, and MXFP4.
namespace motley::quant {
namespace {

using Fp4 = LoadTest;

constexpr std::int64_t out = 3;
constexpr std::int64_t in = 64;

std::string group_config(std::string_view format, int group) {
  return cat(R"({"quant_method": "compressed-tensors", "format": ")", format,
             R"(", "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4,)",
             R"("type": "float", "group_size": )", group, "}}}}");
}

// Byte j holds elements 2 j, in its low half, and 2 j + 1.
std::vector<std::uint8_t> some_bytes() {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < out * in / 2; ++i)
    bytes.push_back(static_cast<std::uint8_t>(i * 29 + 3));
  return bytes;
}
float code_at(const std::vector<std::uint8_t>& bytes, std::int64_t i) {
  constexpr float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const unsigned code = bytes[static_cast<std::size_t>(i / 2)] >> (i % 2 * 4) & 15U;
  return code < 8 ? values[code] : -values[code - 8];
}

TEST_F(Fp4, NvFp4DividesByCompressedTensorsGlobalScaleAndMultipliesWithModelOpts) {
  const std::vector<std::uint8_t> bytes = some_bytes();
  std::vector<f8_e4m3> scales;
  for (int i = 0; i < out * in / 16; ++i)
    scales.push_back(f8_e4m3::from(0.5F + static_cast<float>(i)));
  files_.add("m.weight_packed", DType::u8, {out, in / 2}, bytes);
  files_.add("m.weight_scale", DType::f8_e4m3, {out, in / 16}, scales);
  files_.add("m.weight_global_scale", DType::f32, {1}, std::vector<float>{64.0F});
  files_.add("m.input_global_scale", DType::f32, {1}, std::vector<float>{3.0F});
  const Config of = config(group_config("nvfp4-pack-quantized", 16));
  const auto meaning = [&](float factor) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < out * in; ++i)
      all.push_back(code_at(bytes, i) *
                    (scales[static_cast<std::size_t>(i / 16)].to_float() * factor));
    return all;
  };
  EXPECT_EQ(numbers(of, {out, in}), meaning(1.0F / 64));
  EXPECT_EQ(load(of, {out, in}).value().used.size(), 4U);
  files_.add("m.weight_global_scale", DType::f32, {1}, std::vector<float>{0.0F});
  expect_error(of, {out, in}, "'m.weight_global_scale'", "scale of 0");

  files_ = Files();
  files_.add("m.weight", DType::u8, {out, in / 2}, bytes);
  files_.add("m.weight_scale", DType::f8_e4m3, {out, in / 16}, scales);
  files_.add("m.weight_scale_2", DType::f32, {}, std::vector<float>{0.25F});
  EXPECT_EQ(numbers(of, {out, in}), meaning(0.25F));
}

TEST_F(Fp4, MxFp4ScalesArePowersOfTwo) {
  const std::vector<std::uint8_t> bytes = some_bytes();
  std::vector<std::uint8_t> exponents;
  for (int i = 0; i < out * in / 32; ++i) exponents.push_back(static_cast<std::uint8_t>(122 + i));
  files_.add("m.weight_packed", DType::u8, {out, in / 2}, bytes);
  files_.add("m.weight_scale", DType::u8, {out, in / 32}, exponents);
  const Config of = config(group_config("mxfp4-pack-quantized", 32));
  std::vector<float> meaning;
  for (std::int64_t i = 0; i < out * in; ++i)
    meaning.push_back(code_at(bytes, i) *
                      std::ldexp(1.0F, exponents[static_cast<std::size_t>(i / 32)] - 127));
  EXPECT_EQ(numbers(of, {out, in}), meaning);

  expect_error(of, {out, in + 8}, "'m.weight_scale'", "whole groups");
  files_.add("m.weight_scale", DType::u8, {out, in / 16},
             std::vector<std::uint8_t>(static_cast<std::size_t>(out * in / 16)));
  expect_error(of, {out, in}, "'m.weight_scale'", "[3, 2]");
  exponents[4] = 0xFF;
  files_.add("m.weight_scale", DType::u8, {out, in / 32}, exponents);
  expect_error(of, {out, in}, "'m.weight_scale'", "finite");
}

TEST_F(Fp4, RefusesDamagedFilesByName) {
  const Config of = config(group_config("nvfp4-pack-quantized", 16));
  const auto add = [&] {
    files_ = Files();
    files_.add("m.weight_packed", DType::u8, {out, in / 2}, some_bytes());
    files_.add("m.weight_scale", DType::f8_e4m3, {out, in / 16},
               std::vector<std::uint8_t>(static_cast<std::size_t>(out * in / 16), 0x38));
    files_.add("m.weight_global_scale", DType::f32, {1}, std::vector<float>{64.0F});
  };
  add();
  ASSERT_TRUE(load(of, {out, in}).ok());
  expect_error(of, {out, in + 8}, "'m.weight_scale'", "whole groups");
  expect_error(of, {out, in + 16}, "'m.weight_packed'", "[3, 40] is needed");
  // Groups of 32, as MXFP4 has them.
  files_.add("m.weight_scale", DType::f8_e4m3, {out, in / 32},
             std::vector<std::uint8_t>(static_cast<std::size_t>(out * in / 32)));
  expect_error(of, {out, in}, "'m.weight_scale'", "[3, 4] is needed");
  files_.add("m.weight_scale", DType::u8, {out, in / 16},
             std::vector<std::uint8_t>(static_cast<std::size_t>(out * in / 16)));
  expect_error(of, {out, in}, "'m.weight_scale'", "type U8");
  add();
  files_.add("m.weight_packed", DType::i32, {out, in / 8}, std::vector<std::int32_t>(out * in / 8));
  expect_error(of, {out, in}, "'m.weight_packed'", "not U8");
  add();
  files_.add("m.weight_global_scale", DType::f32, {3}, std::vector<float>(3, 64.0F));
  expect_error(of, {out, in}, "'m.weight_global_scale'", "one number");
  files_.remove("m.weight_global_scale");
  expect_error(of, {out, in}, "'m.weight_scale_2'", "missing");
  add();
  for (const char* const other : {"weight_zero_point", "weight_g_idx", "weight_scale_2"}) {
    add();
    files_.add(cat("m.", other), DType::f32, {1}, std::vector<float>{1});
    expect_error(of, {out, in}, cat("'m.", other, "'"), "scheme");
  }
  const Config mxfp4 = config(group_config("mxfp4-pack-quantized", 32));
  add();
  files_.remove("m.weight_global_scale");
  expect_error(mxfp4, {out, in}, "'m.weight_scale'", "[3, 2] is needed");
  add();
  files_.add("m.weight_scale", DType::u8, {out, in / 32},
             std::vector<std::uint8_t>(static_cast<std::size_t>(out * in / 32), 127));
  expect_error(mxfp4, {out, in}, "'m.weight_global_scale'", "scheme");
}

}  // namespace
}  // namespace motley::quant
