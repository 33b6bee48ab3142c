#include "lora/files/conventions/tensor_names.h"

#include <gtest/gtest.h>

namespace motley::lora {
namespace {

TensorName parse(std::string_view name) {
  auto parsed = parse_tensor_name(name);
  EXPECT_TRUE(parsed.ok()) << name << ": " << parsed.error().message();
  return parsed.ok() ? *parsed : TensorName();
}

TEST(TensorName, KnowsEveryPlainModule) {
  const auto expect = [](std::string_view path, Site site) {
    const TensorName name = parse("base_model.model." + std::string(path) + ".lora_A.weight");
    EXPECT_EQ(name.module.site, site) << path;
    EXPECT_EQ(name.module.form, Form::plain) << path;
    EXPECT_EQ(name.part, Part::a) << path;
    EXPECT_EQ(name.path, path);
  };
  expect("model.layers.0.self_attn.q_proj", {0, Projection::q});
  expect("model.language_model.layers.12.self_attn.k_proj", {12, Projection::k});
  expect("model.layers.3.attn.v_proj", {3, Projection::v});
  expect("model.layers.3.self_attn.kv_a_proj_with_mqa", {3, Projection::kv_a});
  expect("model.layers.3.mlp.gate_proj", {3, Projection::gate});
  expect("model.layers.3.mlp.gate", {3, Projection::router});
  expect("model.layers.3.block_sparse_moe.gate", {3, Projection::router});
  expect("model.layers.3.mlp.router", {3, Projection::router});
  expect("model.layers.3.mlp.shared_experts.up_proj", {3, Projection::shared_up});
  expect("model.layers.3.mlp.shared_expert.down_proj", {3, Projection::shared_down});
  expect("model.layers.3.mlp.shared_expert_gate", {3, Projection::shared_expert_gate});
  expect("model.layers.3.linear_attn.in_proj_qkv", {3, Projection::in_qkv});
  expect("model.language_model.layers.3.linear_attn.in_proj_z", {3, Projection::in_z});
  expect("model.layers.3.linear_attn.in_proj_a", {3, Projection::in_a});
  expect("model.layers.3.linear_attn.in_proj_b", {3, Projection::in_b});
  expect("model.layers.3.linear_attn.in_proj_qkvz", {3, Projection::in_qkvz});
  expect("model.layers.3.linear_attn.in_proj_ba", {3, Projection::in_ba});
  expect("model.layers.3.linear_attn.out_proj", {3, Projection::delta_out});
  expect("lm_head", {-1, Projection::lm_head});
  expect("model.unembed_tokens", {-1, Projection::lm_head});
}

TEST(TensorName, KnowsEverySpellingOfExperts) {
  const auto expect = [](std::string_view path, Module module) {
    EXPECT_EQ(parse(std::string(path) + ".lora_B.weight").module, module) << path;
  };
  const std::string experts = "base_model.model.model.layers.2.mlp.experts";
  const Site gate{2, Projection::expert_gate};
  const Site down{2, Projection::expert_down};
  expect(experts + ".7.gate_proj", {gate, Form::expert, 7});
  expect("base_model.model.model.layers.2.block_sparse_moe.experts.7.w2", {down, Form::expert, 7});
  expect(experts + ".down_projs.7", {down, Form::expert, 7});
  expect(experts + ".gate_up_projs.7", {gate, Form::linear, 7});
  expect(experts + ".w1", {gate, Form::outer, 0});
  expect(experts + ".gate_up_proj", {gate, Form::outer_gate_up, 0});
  expect(experts, {gate, Form::packed, 0});
  expect(experts + ".base_layer", {gate, Form::packed_inner, 0});
}

TEST(TensorName, KnowsPartsOfAMapsRows) {
  const Site qkv{2, Projection::in_qkv};
  for (const auto& [part, leaf] : {std::pair(0, "in_proj_q"), {1, "in_proj_k"}, {2, "in_proj_v"}}) {
    const std::string name =
        std::string("base_model.model.model.layers.2.linear_attn.") + leaf + ".lora_A.weight";
    EXPECT_EQ(parse(name).module, (Module{qkv, Form::some_rows, part}));
  }
}

TEST(TensorName, RefusesConvolutionsByName) {
  const auto parsed =
      parse_tensor_name("base_model.model.model.layers.0.linear_attn.conv1d.lora_A.weight");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message().find("conv1d out of target_modules"), std::string::npos);
}

TEST(TensorName, IgnoresWhatNoTextDependsOn) {
  EXPECT_EQ(ignored_kind("base_model.model.model.visual.blocks.0.attn.qkv.lora_A.weight"),
            "a vision tower's factors");
  EXPECT_EQ(ignored_kind("base_model.model.mtp.layers.0.mlp.gate.lora_B.weight"),
            "factors of multi-token prediction");
  EXPECT_EQ(ignored_kind("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"), "");
}

TEST(TensorName, StripsWrappers) {
  const TensorName name =
      parse("base_model.model._orig_mod.model.layers.1.self_attn.o_proj.lora_A.default.weight");
  EXPECT_EQ(name.module.site, (Site{1, Projection::o}));
  const TensorName replaced = parse("base_model.model.lm_head.base_layer.weight");
  EXPECT_EQ(replaced.part, Part::weight);
  EXPECT_TRUE(replaced.in_base_layer);
  EXPECT_EQ(parse("base_model.model.lm_head.modules_to_save.weight").part, Part::weight);
}

TEST(TensorName, RefusesTheRest) {
  for (const char* name :
       {"", ".", "default", "base_layer.weight", "lora_A.weight",
        "model.layers.1.self_attn.qq_proj.lora_A.weight",
        "model.layers.01.self_attn.q_proj.lora_A.weight", "model.layers.x.mlp.gate.lora_A.weight",
        "model.layers.99999999999.mlp.gate.lora_A.weight", "model.layers.1.self_attn.q_proj.lora_A",
        "model.layers.1.mlp.experts.-1.w1.lora_A.weight",
        "model.layers.1.mlp.experts.1.w4.lora_A.weight", "model.norm.lora_A.weight"}) {
    const auto parsed = parse_tensor_name(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.error().code(), ErrorCode::bad_file) << name;
  }
  for (const char* name : {"model.layers.1.mlp.experts.gate_up_proj_bias",
                           "model.layers.1.mlp.experts.1.gate_proj.bias",
                           "model.layers.1.mlp.gate.e_score_correction_bias",
                           "model.layers.1.mlp.experts.base_layer.base_layer.lora_A.weight"}) {
    const auto parsed = parse_tensor_name(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.error().code(), ErrorCode::unsupported) << name;
  }
}

}  // namespace
}  // namespace motley::lora
