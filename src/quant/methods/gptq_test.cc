#include <gtest/gtest.h>

#include "quant/test_files.h"

namespace motley::quant {
namespace {

using Scales = Format::Scales;

Scheme scheme_of(std::string_view quantization, std::string_view module = "model.layers.0.mlp") {
  return config(quantization).scheme_of(module).value();
}

TEST(Gptq, ReadsBitsAndGroups) {
  const Scheme scheme = scheme_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 64,
      "desc_act": true, "sym": false, "lm_head": false, "pack_dtype": "int32",
      "modules_in_block_to_quantize": [["self_attn.q_proj"]]})");
  EXPECT_EQ(scheme.layout, Layout::gptq);
  EXPECT_EQ(scheme.stored_bits, 4);
  EXPECT_EQ(scheme.format.element, DType::i8);
  EXPECT_EQ(scheme.format.bits, 4);
  EXPECT_EQ(scheme.format.scales, Scales::group);
  EXPECT_EQ(scheme.format.block_columns, 64);
  EXPECT_TRUE(scheme.format.zero_points);
  EXPECT_TRUE(scheme.format.input_order);
  EXPECT_EQ(scheme.format.inputs, kernels::InputRounding::Scales::none);
}

TEST(Gptq, HoldsFewBitsInFour) {
  for (const int bits : {2, 3, 4, 8}) {
    const Scheme scheme =
        scheme_of(cat(R"({"quant_method": "gptq", "bits": )", bits, R"(, "group_size": 32})"));
    EXPECT_EQ(scheme.stored_bits, bits);
    EXPECT_EQ(scheme.format.bits, bits == 8 ? 8 : 4);
    EXPECT_FALSE(scheme.format.zero_points);
    EXPECT_FALSE(scheme.format.input_order);
  }
}

TEST(Gptq, OneGroupIsAScaleForARow) {
  const Scheme scheme =
      scheme_of(R"({"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": true})");
  EXPECT_EQ(scheme.format.scales, Scales::channel);
  EXPECT_EQ(scheme.format.block_columns, 0);
  EXPECT_FALSE(scheme.format.input_order);
}

TEST(Gptq, TheFirstOfTwoNamesOfTheFormatCounts) {
  EXPECT_EQ(scheme_of(R"({"quant_method": "gptq", "bits": 4, "format": "gptq_v2"})").layout,
            Layout::gptq_v2);
  EXPECT_EQ(scheme_of(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2",
                          "format": "gptq"})")
                .layout,
            Layout::gptq_v2);
}

TEST(Gptq, RefusesOtherFormatsByName) {
  for (const std::string_view format : {"marlin", "bitblas", "gptq_p"}) {
    for (const std::string_view key : {"format", "checkpoint_format"})
      expect_refused(
          cat(R"({"quant_method": "gptq", "bits": 4, ")", key, R"(": ")", format, R"("})"), key,
          format);
  }
  expect_refused(R"({"quant_method": "gptq", "bits": 4, "is_marlin_format": true})",
                 "is_marlin_format", "Marlin");
}

TEST(Gptq, RefusesSettingsThatNoReaderKnows) {
  expect_refused(R"({"quant_method": "gptq"})", "bits", "no bits");
  expect_refused(R"({"quant_method": "gptq", "bits": 5})", "bits", "5 bits");
  expect_refused(R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", "group_size",
                 "groups of 0");
  expect_refused(R"({"quant_method": "gptq", "bits": 4, "pack_dtype": "int64"})", "pack_dtype",
                 "int64");
  expect_refused(R"({"quant_method": "gptq", "bits": 4, "rotation": "hadamard"})", "rotation",
                 "rotation");
  expect_refused(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"a": {"bits": 6}}})",
                 "dynamic.a.bits", "6 bits");
  expect_refused(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"(": {}}})", "dynamic.(",
                 "regular expression");
}

TEST(Gptq, PatternsOverrideWhatTheySay) {
  const Config of = config(R"({"quant_method": "gptq", "bits": 4, "group_size": 128,
      "sym": false, "dynamic": {
        "+:.*\\.18\\..*gate.*": {"bits": 8, "group_size": 64},
        ".*\\.19\\..*": {"desc_act": true, "sym": true},
        "-:.*\\.20\\..*": {}}})");
  const Scheme eight = of.scheme_of("model.layers.18.mlp.gate_proj").value();
  EXPECT_EQ(eight.stored_bits, 8);
  EXPECT_EQ(eight.format.bits, 8);
  EXPECT_EQ(eight.format.block_columns, 64);
  EXPECT_TRUE(eight.format.zero_points);
  const Scheme sorted = of.scheme_of("model.layers.19.mlp.gate_proj").value();
  EXPECT_EQ(sorted.stored_bits, 4);
  EXPECT_EQ(sorted.format.block_columns, 128);
  EXPECT_FALSE(sorted.format.zero_points);
  EXPECT_TRUE(sorted.format.input_order);
  EXPECT_FALSE(of.scheme_of("model.layers.20.mlp.gate_proj").has_value());
  EXPECT_EQ(of.scheme_of("lm_head").value().stored_bits, 4);
}

TEST(Gptq, TheFirstPatternCountsAndThoseOfPlainModulesComeFirst) {
  const Config of = config(R"({"quant_method": "gptq", "bits": 4, "dynamic": {
        "model\\.layers\\.1": {"bits": 8}, "model": {"bits": 2}, "-:model.layers.1.mlp": {}}})");
  EXPECT_EQ(of.scheme_of("model.layers.1.self_attn").value().stored_bits, 8);
  EXPECT_FALSE(of.scheme_of("model.layers.1.mlp.up_proj").has_value());
  EXPECT_EQ(of.scheme_of("model.layers.2").value().stored_bits, 2);
  // From the start of a name only.
  EXPECT_EQ(of.scheme_of("the.model.layers.1").value().stored_bits, 4);
}

}  // namespace
}  // namespace motley::quant
