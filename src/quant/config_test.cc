#include "quant/config.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::quant {
namespace {

Result<Config> read(std::string_view quantization) {
  const std::string text =
      cat(R"({"model_type": "qwen3_moe", "quantization_config": )", quantization, "}");
  const json::Value value = json::parse(text, "config.json").value();
  return Config::read(*value.if_object());
}

// A whole compressed-tensors configuration around its weights' arguments.
std::string packed(std::string_view weights, std::string_view more = "",
                   std::string_view group_more = "") {
  return cat(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", )", more,
             R"("config_groups": {"group_0": {"targets": ["Linear"], )", group_more,
             R"("weights": )", weights, "}}}");
}

constexpr std::string_view w4 =
    R"({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 64})";

TEST(Config, WithoutQuantizationIsPlain) {
  const json::Value value = json::parse(R"({"quantization_config": null})", "config.json").value();
  const Config config = Config::read(*value.if_object()).value();
  EXPECT_EQ(config.method(), "none");
  EXPECT_FALSE(config.scheme_of("model.layers.0.mlp.up_proj").has_value());
}

TEST(Config, IsFoundUnderItsOlderAndInnerNames) {
  for (const std::string_view text :
       {R"({"compression_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})",
        R"({"text_config": {"quantization_config":
            {"quant_method": "fp8", "weight_block_size": [128, 128]}}})"}) {
    const json::Value value = json::parse(text, "config.json").value();
    EXPECT_EQ(Config::read(*value.if_object()).value().method(), "fp8");
  }
}

TEST(Config, ReadsPackedGroups) {
  const Config config = read(packed(w4)).value();
  EXPECT_EQ(config.method(), "compressed-tensors");
  const Format format = config.scheme_of("model.layers.0.mlp.experts.3.up_proj").value().format;
  EXPECT_EQ(to_string(format), "int4 group 64");
}

TEST(Config, MatchesNamesPatternsAndClasses) {
  const Config config = read(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
    "ignore": ["lm_head", "re:.*mlp.gate$", "re:model.layers.1[.]"],
    "config_groups": {
      "experts": {"targets": ["re:.*experts.*", "model.layers.2.self_attn.q_proj"],
        "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
                    "group_size": 32, "actorder": "static"}},
      "rest": {"targets": ["re:.*o_proj"], "input_activations": null,
        "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
                    "group_size": 128}}}})")
                            .value();
  const auto group = [&](std::string_view module) {
    const auto scheme = config.scheme_of(module);
    return scheme ? scheme->format.block_columns : 0;
  };
  EXPECT_EQ(group("lm_head"), 0);
  EXPECT_EQ(group("lm_head.experts"), 32) << "an exact name is the whole name";
  EXPECT_EQ(group("model.layers.0.mlp.gate"), 0);
  EXPECT_EQ(group("model.layers.0.mlp.experts.0.gate_proj"), 32);
  EXPECT_EQ(group("model.layers.1.mlp.experts.0.gate_proj"), 0)
      << "a pattern matches from the start";
  EXPECT_EQ(group("x.model.layers.1.mlp.experts.0.gate_proj"), 32);
  EXPECT_EQ(group("model.layers.2.self_attn.q_proj"), 32);
  EXPECT_EQ(group("model.layers.2.self_attn.k_proj"), 0) << "no group targets it";
  EXPECT_EQ(group("model.layers.2.self_attn.o_proj"), 128);
}

TEST(Config, TakesANameBeforeAPatternBeforeAClassWhateverTheirOrder) {
  const auto group_of = [](std::string_view targets, int size) {
    return cat(R"({"targets": )", targets, R"(, "weights": {"num_bits": 4, "type": "int", )",
               R"("symmetric": true, "strategy": "group", "group_size": )", size, "}}");
  };
  const Config config =
      read(cat(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",)",
               R"("config_groups": {"a": )", group_of(R"(["Linear"])", 32), R"(, "b": )",
               group_of(R"(["re:.*q_proj", "re:model.*o_proj"])", 64), R"(, "c": )",
               group_of(R"(["model.layers.0.self_attn.q_proj", "re:.*o_proj"])", 128), "}}"))
          .value();
  const auto group = [&](std::string_view module) {
    return config.scheme_of(module).value().format.block_columns;
  };
  EXPECT_EQ(group("model.layers.0.self_attn.k_proj"), 32);
  EXPECT_EQ(group("model.layers.1.self_attn.q_proj"), 64);
  EXPECT_EQ(group("model.layers.0.self_attn.q_proj"), 128);
  EXPECT_EQ(group("model.layers.0.self_attn.o_proj"), 128) << "patterns go by their text";
}

TEST(Config, ReadsFp8Blocks) {
  const Config config =
      read(R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
               "weight_block_size": [128, 64]})")
          .value();
  EXPECT_EQ(to_string(config.scheme_of("a.b").value().format),
            "fp8 block 128x64, fp8 inputs by 64");
}

TEST(Config, ReadsWhatFp8FilesSayOfActivations) {
  const auto format = [](std::string_view more) {
    const Config config = read(cat(R"({"quant_method": "fp8")", more, "}")).value();
    return config.scheme_of("a.b").value().format;
  };
  EXPECT_EQ(to_string(format("")), "fp8 tensor, fp8 inputs by token");
  EXPECT_EQ(to_string(format(R"(, "activation_scheme": "static")")),
            "fp8 tensor, fp8 inputs static");
  EXPECT_TRUE(
      format(R"(, "weight_block_size": [128, 128], "scale_fmt": "ue8m0")").power_of_two_inputs);
}

TEST(Config, ActivationsCanStayExact) {
  Config config = read(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})").value();
  EXPECT_TRUE(config.rounds_inputs());
  config.keep_inputs_exact();
  EXPECT_FALSE(config.rounds_inputs());
  EXPECT_EQ(to_string(config.scheme_of("a.b").value().format), "fp8 block 128x128");
}

// What each kind of file that compressed-tensors writes is read as.
TEST(Config, ReadsEveryFormatOfCompressedTensors) {
  struct Case {
    std::string_view format;
    std::string_view weights;
    std::string_view inputs;
    std::string_view read;
  };
  constexpr std::string_view token8 =
      R"({"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true})";
  constexpr std::string_view token_fp8 =
      R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true})";
  const std::vector<Case> cases = {
      {"pack-quantized", R"({"num_bits": 4, "strategy": "channel"})", "null", "int4 channel"},
      {"pack-quantized", R"({"num_bits": 8, "group_size": 128})", "null", "int8 group 128"},
      {"pack-quantized", R"({"num_bits": 3, "group_size": 32, "symmetric": false})", "null",
       "int4 group 32 with zero points"},
      {"pack-quantized", R"({"num_bits": 4, "group_size": 128, "actorder": "group"})", "null",
       "int4 group 128 in activation order"},
      {"int-quantized", R"({"num_bits": 8, "strategy": "channel"})", token8,
       "int8 channel, int8 inputs by token"},
      {"naive-quantized", R"({"num_bits": 8, "strategy": "tensor"})",
       R"({"num_bits": 8, "strategy": "tensor"})", "int8 tensor, int8 inputs static"},
      {"float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "channel"})", token_fp8,
       "fp8 channel, fp8 inputs by token"},
      {"float-quantized",
       R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]})",
       R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
           "dynamic": true})",
       "fp8 block 128x128, fp8 inputs by 128"},
      {"mxfp8-quantized",
       R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32})", "null",
       "fp8 group 32"},
      {"nvfp4-pack-quantized",
       R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})",
       R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
           "dynamic": "local"})",
       "nvfp4"},
      {"mxfp4-pack-quantized",
       R"({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32})", "null",
       "mxfp4"},
  };
  for (const Case& each : cases) {
    const std::string text = cat(
        R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"],)",
        R"("format": ")", each.format, R"(", "weights": )", each.weights,
        R"(, "input_activations": )", each.inputs, "}}}");
    const auto config = read(text);
    ASSERT_TRUE(config.ok()) << config.error().message();
    EXPECT_EQ(to_string(config->scheme_of("m").value().format), each.read);
    EXPECT_EQ(config->remarks().size(), each.read == "nvfp4" ? 1U : 0U);
  }
}

TEST(Config, RefusesOtherMethodsInOneLineThatSaysWhatToUse) {
  for (const std::string_view method : {"bitsandbytes", "hqq", "aqlm", "torchao", "gguf", "quip",
                                        "eetq", "higgs", "vptq", "spqr", "fbgemm_fp8", "quark"}) {
    const auto result = read(cat(R"({"quant_method": ")", method, R"(", "bits": 4})"));
    ASSERT_FALSE(result.ok()) << method;
    const std::string message = result.error().message();
    EXPECT_NE(message.find(cat("'", method, "'")), std::string::npos) << message;
    EXPECT_NE(message.find("use the model's unquantised checkpoint, or one of"), std::string::npos)
        << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// Settings that would change what weights mean.
TEST(Config, RefusesByNameWithTheReason) {
  struct Refusal {
    std::string quantization;
    std::string names;
    std::string reason;
  };
  const auto weights = [](std::string_view with) {
    return cat(R"({"type": "int", "strategy": "group", "group_size": 128, )", with, "}");
  };
  const std::vector<Refusal> refusals = {
      {R"({"quant_method": "bitsandbytes"})", "quant_method", "'bitsandbytes'"},
      {R"({"bits": 4})", "quantization_config", "no quant_method"},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})", "weight_block_size", "1 numbers"},
      {R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", "weight_block_size",
       "length 0"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e5m2"})", "fmt",
       "'e5m2'"},
      {R"({"quant_method": "fp8", "weight_block_size": [1, 1], "activation_scheme": "static"})",
       "activation_scheme", "static activations"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 96]})", "weight_block_size",
       "blocks of 96"},
      {R"({"quant_method": "fp8", "scale_fmt": "e5m3"})", "scale_fmt", "'e5m3'"},
      {R"({"quant_method": "fp8", "activation_scheme": "by_layer"})", "activation_scheme",
       "'by_layer'"},
      {R"({"quant_method": "mxfp4", "modules_to_not_convert": "lm_head"})",
       "modules_to_not_convert", "found a string"},
      {packed(weights(R"("num_bits": 9)")), "weights", "9 bits"},
      {packed(weights(R"("num_bits": 4, "actorder": "sideways")")), "actorder", "'sideways'"},
      {packed(R"({"num_bits": 4, "strategy": "token"})"), "strategy", "'token'"},
      {packed(R"({"num_bits": 4, "strategy": "group"})"), "group_size", "no group_size"},
      {packed(R"({"num_bits": 4, "type": "float"})"), "weights", "(float)"},
      {packed(w4, R"("sparsity_config": {"format": "sparse-24-bitmask"}, )"), "sparsity_config",
       "sparse"},
      {packed(w4, R"("sparsity_config": {"sparsity_structure": "2:4"}, )"), "sparsity_config",
       "sparse"},
      {packed(w4, R"("transform_config": {"config_groups": {"u": {"type": "hadamard"}}}, )"),
       "transform_config", "behind a transform"},
      {packed(w4, "", R"("output_activations": {"num_bits": 8}, )"), "output_activations",
       "quantised outputs"},
      {packed(R"({"num_bits": 8, "dynamic": "sometimes"})"), "dynamic", "'sometimes'"},
      {packed(R"({"num_bits": 4, "type": "fixed"})"), "type", "'fixed'"},
      {packed(w4, R"("quantization_status": "frozen", )"), "quantization_status", "'frozen'"},
      {packed(w4, "", R"("input_activations": {"num_bits": 4}, )"), "input_activations",
       "activations of 4 bits"},
      {packed(w4, "", R"("format": "marlin-24", )"), "group_0.format", "'marlin-24'"},
      {packed(w4, "", R"("format": "int-quantized", )"), "weights", "'int-quantized'"},
      {packed(w4, R"("ignore": ["re:(("], )"), "ignore", "pattern"},
      {packed(w4, R"("ignore": "lm_head", )"), "ignore", "string"},
      {packed(w4, cat(R"("ignore": ["re:)", std::string(5000, 'a'), R"("], )")), "ignore",
       "too long"},
      {packed(w4, R"("ignore": ["re:(?<=a)b"], )"), "ignore", "look-behind"},
      {R"({"quant_method": "compressed-tensors"})", "quantization_config", "config_groups"},
  };
  for (const Refusal& refusal : refusals) {
    const auto result = read(refusal.quantization);
    ASSERT_FALSE(result.ok()) << refusal.quantization;
    const std::string message = result.error().message();
    EXPECT_NE(message.find(refusal.names), std::string::npos) << message;
    EXPECT_NE(message.find(refusal.reason), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace motley::quant
