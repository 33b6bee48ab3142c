#include <gtest/gtest.h>

#include "quant/test_files.h"

namespace motley::quant {
namespace {

using Scales = Format::Scales;

Scheme scheme_of(std::string_view quantization) {
  return config(quantization).scheme_of("model.layers.0.mlp.gate_proj").value();
}

TEST(Awq, ReadsBothNamesOfItsSettings) {
  for (const std::string_view quantization :
       {R"({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": true,
            "version": "gemm", "modules_to_not_convert": ["gate"]})",
        R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"})",
        R"({"quant_method": "awq", "bits": 4, "group_size": 64, "format": "gemm",
            "checkpoint_format": "gemm", "dynamic": {"-:.*gate$": {}}})"}) {
    const Scheme scheme = scheme_of(quantization);
    EXPECT_EQ(scheme.layout, Layout::awq);
    EXPECT_EQ(scheme.stored_bits, 4);
    EXPECT_EQ(scheme.format.element, DType::i8);
    EXPECT_EQ(scheme.format.bits, 4);
    EXPECT_EQ(scheme.format.scales, Scales::group);
    EXPECT_EQ(scheme.format.block_columns, 64);
    EXPECT_TRUE(scheme.format.zero_points);
    EXPECT_FALSE(scheme.format.input_order);
  }
}

TEST(Awq, OneGroupIsAScaleForARow) {
  const Scheme scheme =
      scheme_of(R"({"quant_method": "awq", "group_size": -1, "zero_point": false})");
  EXPECT_EQ(scheme.format.scales, Scales::channel);
  EXPECT_EQ(scheme.format.block_columns, 0);
  EXPECT_FALSE(scheme.format.zero_points);
}

TEST(Awq, RefusesOtherOrdersByNameAndSaysWhatToDo) {
  for (const std::string_view order : {"gemv", "gemv_fast", "marlin"}) {
    for (const std::string_view key : {"version", "format", "checkpoint_format"}) {
      const std::string quantization =
          cat(R"({"quant_method": "awq", "bits": 4, ")", key, R"(": ")", order, R"("})");
      expect_refused(quantization, key, order);
      expect_refused(quantization, key, "convert the checkpoint to version gemm");
    }
  }
  expect_refused(R"({"quant_method": "awq", "bits": 4, "backend": "llm-awq"})", "backend",
                 "llm-awq");
}

TEST(Awq, RefusesSettingsThatNoReaderKnows) {
  expect_refused(R"({"quant_method": "awq", "bits": 8})", "bits", "8 bits");
  expect_refused(R"({"quant_method": "awq", "w_bit": 3})", "bits", "3 bits");
  expect_refused(R"({"quant_method": "awq", "group_size": 0})", "group_size", "groups of 0");
  expect_refused(R"({"quant_method": "awq", "dynamic": {"a": {"group_size": 32}}})", "dynamic.a",
                 "settings of their own");
}

}  // namespace
}  // namespace motley::quant
