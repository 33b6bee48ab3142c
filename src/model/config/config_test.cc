#include "model/config/config.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<Config> parse(const std::string& text) {
  return parse_config(json::parse(text, "config.json").value(), "config.json");
}

// A complete qwen3_moe config, with one setting added or replaced.
std::string qwen3_moe(std::string_view setting = "") {
  return cat(
      R"({"model_type":"qwen3_moe","hidden_size":64,"num_hidden_layers":4,"vocab_size":100,)",
      R"("intermediate_size":96,"rms_norm_eps":1e-6,"num_attention_heads":4,)",
      R"("num_key_value_heads":2,"head_dim":32,"num_experts_per_tok":2,)",
      R"("moe_intermediate_size":48,"norm_topk_prob":true)", setting, "}");
}

std::string refusal(const Result<Config>& config, ErrorCode code = ErrorCode::bad_file) {
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.error().code(), code) << config.error().message();
  return config.error().message();
}
std::string refusal(const std::string& text, ErrorCode code = ErrorCode::bad_file) {
  return refusal(parse(text), code);
}

TEST(Config, ReadsTheExpertCountUnderBothNames) {
  EXPECT_EQ(parse(qwen3_moe(R"(,"num_experts":8)"))->moe.router.experts, 8);
  EXPECT_EQ(parse(qwen3_moe(R"(,"num_local_experts":8)"))->moe.router.experts, 8);
}

TEST(Config, ReadsRopeOfBothGenerations) {
  const auto v4 = parse(
      qwen3_moe(R"(,"num_experts":8,"rope_theta":1e6,"rope_scaling":{"type":"yarn","factor":4.0,)"
                R"("original_max_position_embeddings":2048})"));
  const auto v5 = parse(qwen3_moe(
      R"(,"num_experts":8,"rope_parameters":{"rope_type":"yarn","rope_theta":1e6,"factor":4.0,)"
      R"("original_max_position_embeddings":2048})"));
  ASSERT_TRUE(v4.ok()) << v4.error().message();
  ASSERT_TRUE(v5.ok()) << v5.error().message();
  for (const Config& config : {*v4, *v5}) {
    const ops::RopeSpec& rope = std::get<GroupedConfig>(config.mixers.front()).rope;
    EXPECT_EQ(rope.scaling, ops::RopeSpec::Scaling::yarn);
    EXPECT_EQ(rope.base, 1e6);
    EXPECT_EQ(rope.factor, 4.0);
    EXPECT_EQ(rope.original_max_positions, 2048.0);
    EXPECT_EQ(rope.dims, 32);
  }
}

TEST(Config, KnowsWhichLayersHaveExperts) {
  const auto config =
      parse(qwen3_moe(R"(,"num_experts":8,"mlp_only_layers":[2],"decoder_sparse_step":1)"));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->moe_layers, (std::vector<bool>{true, true, false, true}));
  const auto every_other = parse(qwen3_moe(R"(,"num_experts":8,"decoder_sparse_step":2)"));
  EXPECT_EQ(every_other->moe_layers, (std::vector<bool>{false, true, false, true}));
}

std::string qwen3_5(std::string_view more) {
  return cat(R"("hidden_size":64,"num_hidden_layers":5,"vocab_size":99,"rms_norm_eps":1e-6,)"
             R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,)"
             R"("linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":16,)"
             R"("linear_value_head_dim":24,"num_experts":8,"num_experts_per_tok":2,)"
             R"("moe_intermediate_size":16,"shared_expert_intermediate_size":16)",
             more);
}

// Which layers have attention; the others have delta nets.
std::vector<int> full_layers(const Config& config) {
  std::vector<int> layers;
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    if (std::holds_alternative<GroupedConfig>(config.mixer(layer))) layers.push_back(layer);
  return layers;
}

TEST(Config, ReadsTheTextModelOfAWrapper) {
  const auto wrapped = [](std::string_view top, std::string_view more) {
    return parse(
        cat(R"({"model_type":"qwen3_5_moe",)", top, R"("text_config":{)", qwen3_5(more), "}}"));
  };
  const auto config = wrapped(R"("tie_word_embeddings":true,)",
                              R"(,"model_type":"qwen3_5_moe_text","tie_word_embeddings":false)");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->model_type, "qwen3_5_moe");
  EXPECT_EQ(config->hidden, 64);
  EXPECT_TRUE(config->tied_embeddings) << "the wrapper's own word counts";
  EXPECT_EQ(full_layers(*config), std::vector{3});
  EXPECT_EQ(std::get<GroupedConfig>(config->mixers.front()).rope.dims, 8) << "a quarter";
  const auto listed = wrapped("", R"(,"partial_rotary_factor":0.5,"layer_types":[)"
                                  R"("full_attention","linear_attention","linear_attention",)"
                                  R"("linear_attention","full_attention"])");
  ASSERT_TRUE(listed.ok()) << listed.error().message();
  EXPECT_EQ(full_layers(*listed), (std::vector{0, 4}));
  EXPECT_EQ(std::get<GroupedConfig>(listed->mixers.front()).rope.dims, 16);
}

TEST(Config, QwensVisionModelsAlwaysRenormalise) {
  const auto read = [](std::string_view more) {
    std::string text = qwen3_moe(cat(R"(,"num_experts":8)", more));
    const auto replace = [&](std::string_view one, std::string_view other) {
      text.replace(text.find(one), one.size(), other);
    };
    replace("qwen3_moe", "qwen3_vl_moe_text");
    replace(R"("norm_topk_prob":true)", R"("norm_topk_prob":false)");
    return parse(cat(R"({"model_type":"qwen3_vl_moe","text_config":)", text, "}"));
  };
  const auto config = read("");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_TRUE(config->moe.router.renormalise);
  EXPECT_TRUE(config->naming.released_transposed);
  EXPECT_FALSE(config->naming.experts_transposed) << "adapters are as in other families";
  const auto base = [](const Config& of) {
    return std::get<GroupedConfig>(of.mixers.front()).rope.base;
  };
  EXPECT_EQ(base(*config), 500000.0) << "where neither setting says it";
  EXPECT_EQ(base(*read(R"(,"rope_theta":5e6,"rope_scaling":{"rope_type":"default",)"
                       R"("mrope_interleaved":true,"mrope_section":[8,4,4]})")),
            5e6);
}

// A complete config of latent attention with DeepSeek-V3's router, but for its model_type.
std::string latent(std::string_view more) {
  return cat(R"("hidden_size":64,"num_hidden_layers":3,"vocab_size":99,"rms_norm_eps":1e-5,)"
             R"("intermediate_size":96,"num_attention_heads":4,"q_lora_rank":24,"kv_lora_rank":16,)"
             R"("qk_nope_head_dim":12,"qk_rope_head_dim":8,"v_head_dim":20,"n_routed_experts":8,)"
             R"("num_experts_per_tok":2,"n_shared_experts":1,"moe_intermediate_size":16)",
             more);
}

TEST(Config, ListsWhichLayersOfGlmAreDense) {
  const auto glm = [](std::string_view more) {
    return cat(R"({"model_type":"glm4_moe_lite",)", latent(more), "}");
  };
  const auto moe_layers = [&](std::string_view more) { return parse(glm(more))->moe_layers; };
  EXPECT_EQ(moe_layers(""), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(moe_layers(R"(,"first_k_dense_replace":2)"), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(moe_layers(R"(,"first_k_dense_replace":1,"mlp_layer_types":["sparse","sparse",)"
                       R"("dense"])"),
            (std::vector<bool>{true, true, false}));
  EXPECT_THAT(refusal(glm(R"(,"mlp_layer_types":["dense"])")),
              HasSubstr("mlp_layer_types has 1 entries for 3 layers"));
  EXPECT_THAT(
      refusal(glm(R"(,"mlp_layer_types":["dense","moe","sparse"])"), ErrorCode::unsupported),
      HasSubstr("mlp_layer_types has 'moe'"));
  const auto config = parse(glm(""));
  EXPECT_EQ(std::get<LatentConfig>(config->mixers.front()).inner_norm_eps, 1e-6)
      << "whatever rms_norm_eps says";
}

TEST(Config, ReadsTheTextModelOfKimi) {
  for (const std::string_view inner : {"kimi_k2", "deepseek_v3"}) {
    const auto config =
        parse(cat(R"({"model_type":"kimi_k25","tie_word_embeddings":false,"text_config":{)",
                  latent(cat(R"(,"model_type":")", inner,
                             R"(","tie_word_embeddings":true,"routed_scaling_factor":2.827,)"
                             R"("rope_theta":50000.0,"rope_scaling":{"type":"yarn","factor":64.0,)"
                             R"("mscale":1.0,"mscale_all_dim":1.0,)"
                             R"("original_max_position_embeddings":4096})")),
                  "}}"));
    ASSERT_TRUE(config.ok()) << config.error().message();
    EXPECT_EQ(config->model_type, "kimi_k25");
    EXPECT_FALSE(config->tied_embeddings) << "the wrapper's own word counts";
    const auto& attention = std::get<LatentConfig>(config->mixers.front());
    const double magnitude = 0.1 * std::log(64.0) + 1.0;
    EXPECT_DOUBLE_EQ(attention.scale, magnitude * magnitude / std::sqrt(20.0));
    EXPECT_EQ(attention.rope.base, 50000.0);
  }
}

TEST(Config, RefusesDeltaNetsThatCantBe) {
  const auto next = [](std::string_view more) {
    return cat(R"({"model_type":"qwen3_next",)", qwen3_5(more), "}");
  };
  EXPECT_THAT(refusal(next(R"(,"layer_types":["full_attention"])")),
              HasSubstr("layer_types has 1 entries for 5 layers"));
  EXPECT_THAT(refusal(next(R"(,"layer_types":["a","a","a","a","a"])"), ErrorCode::unsupported),
              HasSubstr("layer type 'a'"));
  EXPECT_THAT(refusal(next(R"(,"linear_conv_kernel_dim":9)")),
              HasSubstr("linear_conv_kernel_dim is 9 (config.json): it must be at most 8"));
  EXPECT_THAT(refusal(next(R"(,"decoder_sparse_step":2)")), HasSubstr("no intermediate_size"));
}

// Keys that only families with delta nets have, and values that none of them can have.
struct BadKey {
  std::string_view key;
  std::vector<std::string_view> values;
};

const std::vector<BadKey>& bad_keys() {
  constexpr std::string_view huge = "9223372036854775807";
  static const std::vector<BadKey> keys{
      {"linear_num_key_heads", {"0", "-2", huge, "1e300", "2.5", R"("2")", "[2]", "3", "null"}},
      {"linear_num_value_heads", {"0", "-4", huge, "1e300", "2.5", R"("4")", "{}", "3", "null"}},
      {"linear_key_head_dim", {"0", "-16", huge, "257", "1e300", "16.5", "true", "null"}},
      {"linear_value_head_dim", {"0", "-24", huge, "1000000000", "1e300", R"("24")", "null"}},
      {"linear_conv_kernel_dim", {"0", "1", "-4", huge, "9", "1e300", R"("4")", "[4]"}},
      {"full_attention_interval", {"0", "-4", huge, "1e300", "0.5", R"("4")", "[]"}},
      {"layer_types", {"7", R"("full_attention")", "{}", R"(["full_attention"])", "[1,2,3,4,5]"}},
      {"partial_rotary_factor", {"0", "-0.25", "1.01", "1e300", "0.03", "0.1", R"("0.25")", "[1]"}},
      {"shared_expert_intermediate_size", {"-1", huge, "1e300", "16.5", R"("16")", "[16]"}},
      {"moe_intermediate_size", {"0", "-16", huge, "1e300", R"("16")", "null"}},
      {"num_experts", {"0", "-8", huge, "1e300", "1000000000", R"("8")", "null"}},
      {"num_experts_per_tok", {"0", "-2", huge, "1e300", "9", R"("2")", "null"}},
      {"attention_bias", {"1", R"("true")", "[]"}}};
  return keys;
}

void expect_named(const Result<Config>& config, std::string_view key, std::string_view value) {
  ASSERT_FALSE(config.ok()) << key << ": " << value;
  EXPECT_EQ(config.error().code(), ErrorCode::bad_file) << config.error().message();
  EXPECT_THAT(config.error().message(), AllOf(HasSubstr(key), HasSubstr("config.json")))
      << key << ": " << value;
}

// A complete config of a family with delta nets, one key set by hand.
json::Object delta_net_config(std::string_view key, std::string_view value) {
  const json::Value complete = json::parse(cat("{", qwen3_5(""), "}"), "config.json").value();
  json::Object changed;
  for (const json::Member& member : complete.if_object()->members())
    if (member.key != key) changed.add(member.key, member.value);
  changed.add(std::string(key), json::parse(value, "value").value());
  return changed;
}

TEST(Config, NamesEachKeyOfADeltaNetThatIsWrongAndItsFile) {
  for (const auto& [key, values] : bad_keys()) {
    for (const std::string_view value : values) {
      for (const char* const family : {"qwen3_5_moe_text", "qwen3_next"}) {
        json::Object config = delta_net_config(key, value);
        config.add("model_type", json::Value(family));
        expect_named(parse_config(json::Value(std::move(config)), "config.json"), key, value);
      }
      json::Object wrapper;
      wrapper.add("model_type", json::Value("qwen3_5_moe"));
      wrapper.add("text_config", json::Value(delta_net_config(key, value)));
      const auto wrapped = parse_config(json::Value(std::move(wrapper)), "config.json");
      expect_named(wrapped, key, value);
      EXPECT_THAT(refusal(wrapped), HasSubstr("text_config"));
    }
  }
}

TEST(Config, NamesWhatIsWrongWithAWrapper) {
  const auto wrapper = [](std::string_view text, std::string_view more = "") {
    return parse(cat(R"({"model_type":"qwen3_5_moe","text_config":)", text, more, "}"));
  };
  for (const std::string_view text : {"7", "[]", R"("qwen3_5_moe_text")", "true"})
    expect_named(wrapper(text), "text_config", text);
  expect_named(wrapper("{}"), "hidden_size", "{}");
  expect_named(wrapper("null"), "hidden_size", "null");
  const std::string complete = cat("{", qwen3_5(""), "}");
  expect_named(wrapper(complete, R"(,"tie_word_embeddings":"yes")"), "tie_word_embeddings", "yes");
  EXPECT_TRUE(wrapper(complete).ok());
  EXPECT_THAT(
      refusal(wrapper(cat(R"({"model_type":"qwen4",)", qwen3_5(""), "}")), ErrorCode::unsupported),
      AllOf(HasSubstr("model_type 'qwen4'"), HasSubstr("text_config")));
}

// Of both generations.
TEST(Config, NamesTheRopeSettingThatIsWrong) {
  for (const std::string_view value : {"0", "-1", "1.5", R"("0.25")"}) {
    expect_named(
        parse(cat(R"({"model_type":"qwen3_next",)", qwen3_5(""),
                  R"(,"rope_parameters":{"rope_theta":1e7,"partial_rotary_factor":)", value, "}}")),
        "partial_rotary_factor", value);
  }
  for (const std::string_view value : {"0", "1", "-1e7", R"("1e7")"})
    expect_named(
        parse(cat(R"({"model_type":"qwen3_next",)", qwen3_5(""), R"(,"rope_theta":)", value, "}")),
        "rope_theta", value);
}

TEST(Config, NamesAnUnknownFamilyAndTheKnownOnes) {
  EXPECT_THAT(refusal(R"({"model_type":"mamba"})", ErrorCode::unsupported),
              AllOf(HasSubstr("model_type 'mamba' (config.json)"), HasSubstr("qwen3_moe")));
  EXPECT_THAT(refusal("{}", ErrorCode::unsupported), HasSubstr("model_type ''"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected an object"));
}

TEST(Config, NamesTheSettingThatIsMissingOrWrong) {
  EXPECT_THAT(refusal(qwen3_moe()), HasSubstr("no num_experts (config.json)"));
  EXPECT_THAT(refusal(qwen3_moe(R"(,"num_experts":"8")")), HasSubstr("config.json, num_experts"));
  EXPECT_THAT(refusal(qwen3_moe(R"(,"num_experts":0)")), HasSubstr("num_experts is 0"));
  EXPECT_THAT(refusal(qwen3_moe(R"(,"num_experts":-8)")), HasSubstr("num_experts is -8"));
  EXPECT_THAT(refusal(qwen3_moe(R"(,"num_experts":9223372036854775807)")),
              HasSubstr("num_experts is 9223372036854775807"));
  EXPECT_THAT(refusal(R"({"model_type":"llama","hidden_size":8,"num_hidden_layers":1000000000})"),
              HasSubstr("num_hidden_layers is 1000000000"));
  EXPECT_THAT(refusal(qwen3_moe(R"(,"num_experts":8,"rope_parameters":7)")),
              HasSubstr("rope_parameters"));
}

TEST(Config, RefusesSizesThatContradictEachOther) {
  EXPECT_NE(refusal(qwen3_moe(R"(,"num_experts":1)")), "accepted");  // top 2 of 1
  EXPECT_THAT(refusal(R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":1,)"
                      R"("vocab_size":9,"intermediate_size":8,"rms_norm_eps":1e-6,)"
                      R"("num_attention_heads":3,"num_key_value_heads":2,"head_dim":8})"),
              HasSubstr("no multiple"));
}

// Some families call the experts' width as others call that of dense layers.
TEST(Config, RefusesExpertsWithoutAWidth) {
  EXPECT_THAT(refusal(R"({"model_type":"mixtral","hidden_size":64,"num_hidden_layers":1,)"
                      R"("vocab_size":9,"rms_norm_eps":1e-6,"num_attention_heads":2,)"
                      R"("num_local_experts":4,"num_experts_per_tok":2})"),
              HasSubstr("no intermediate_size for the experts (config.json)"));
}

TEST(Config, RefusesWhatItWouldGetWrong) {
  EXPECT_THAT(refusal(qwen3_moe(R"(,"num_experts":8,"hidden_act":"gelu")"), ErrorCode::unsupported),
              HasSubstr("hidden_act is 'gelu'"));
  EXPECT_THAT(refusal(qwen3_moe(R"(,"num_experts":8,"rope_scaling":{"type":"dynamic","factor":2})"),
                      ErrorCode::unsupported),
              HasSubstr("rope_type 'dynamic'"));
  EXPECT_THAT(
      refusal(qwen3_moe(R"(,"num_experts":8,"use_sliding_window":true)"), ErrorCode::unsupported),
      HasSubstr("use_sliding_window"));
}

}  // namespace
}  // namespace motley::model
