#include "lora/files/config/config.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::lora {
namespace {

Result<Config> parse(std::string_view text) { return parse_adapter_config(text, "config"); }

TEST(AdapterConfig, NeedsRankAndAlphaAlone) {
  const auto config = parse(R"({"r": 3, "lora_alpha": 0.5})");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->rank, 3);
  EXPECT_FLOAT_EQ(config->scale_of("x"), 0.5F / 3);
  for (const char* text : {R"({"r": 3})", R"({"lora_alpha": 3})", R"({"r": null, "lora_alpha": 1})",
                           R"({"r": 0, "lora_alpha": 1})", R"({"r": -3, "lora_alpha": 1})",
                           R"({"r": 1.5, "lora_alpha": 1})", R"({"r": 1, "lora_alpha": "1"})",
                           R"({"r": 1, "lora_alpha": 1e300})", "[]", "", "{"}) {
    const auto bad = parse(text);
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_EQ(bad.error().code(), ErrorCode::bad_file) << bad.error().message();
  }
}

TEST(AdapterConfig, FirstPatternInTheOrderOfTheFileWins) {
  const auto config = parse(R"({"r": 8, "lora_alpha": 16, "use_rslora": true,
    "rank_pattern": {"layers\\.0\\..*": 3, "q_proj": 5},
    "alpha_pattern": {"q_proj": 6.5, "layers\\.0\\..*": 1}})");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->rank_of("model.layers.0.self_attn.q_proj"), 3);
  EXPECT_EQ(config->rank_of("model.layers.1.self_attn.q_proj"), 5);
  EXPECT_EQ(config->rank_of("model.layers.1.self_attn.k_proj"), 8);
  EXPECT_FLOAT_EQ(config->scale_of("model.layers.0.self_attn.q_proj"), 6.5F / std::sqrt(3.0F));
  EXPECT_FLOAT_EQ(config->scale_of("model.layers.0.self_attn.k_proj"), 1 / std::sqrt(3.0F));
}

TEST(AdapterConfig, IgnoresUnknownKeys) {
  EXPECT_TRUE(parse(R"({"r": 1, "lora_alpha": 1, "from_the_future": [1]})").ok());
}

TEST(AdapterConfig, RefusesOtherKindsByName) {
  const auto expect = [](std::string_view member, std::string_view word) {
    const auto config = parse(cat(R"({"r": 2, "lora_alpha": 2, )", member, "}"));
    ASSERT_FALSE(config.ok()) << member;
    EXPECT_EQ(config.error().code(), ErrorCode::unsupported) << config.error().message();
    EXPECT_NE(config.error().message().find(word), std::string::npos) << config.error().message();
  };
  expect(R"("peft_type": "OFT")", "OFT");
  expect(R"("init_lora_weights": "pissa_niter_16")", "pissa_niter_16");
  expect(R"("init_lora_weights": "novel")", "novel");
  expect(R"("use_qalora": true)", "qalora");
  expect(R"("use_bdlora": {})", "bdlora");
  expect(R"("alora_invocation_tokens": [])", "alora");
  expect(R"("trainable_token_indices": [3])", "trainable_token_indices");
  expect(R"("layer_replication": [[0, 1]])", "layer_replication");
  expect(R"("target_parameters": ["mlp.experts.down_proj_bias"])", "down_proj_bias");
  expect(R"("use_dora": true, "lora_bias": true)", "lora_bias");
  expect(R"x("rank_pattern": {"(?<=x)": 3})x", "look-behind");
}

TEST(AdapterConfig, RefusesWhatIsDamaged) {
  for (const char* member :
       {R"("bias": "some")", R"("bias": 3)", R"("lora_B_layout": "sideways")",
        R"("rank_pattern": [])", R"("rank_pattern": {"a": 0})", R"x("rank_pattern": {"(": 1})x",
        R"("alpha_pattern": {"a": "b"})", R"("use_dora": 1)", R"("target_parameters": [1])",
        R"("modules_to_save": "lm_head")", R"("peft_version": 21)"}) {
    const auto config = parse(cat(R"({"r": 2, "lora_alpha": 2, )", member, "}"));
    ASSERT_FALSE(config.ok()) << member;
    EXPECT_EQ(config.error().code(), ErrorCode::bad_file) << config.error().message();
  }
}

}  // namespace
}  // namespace motley::lora
