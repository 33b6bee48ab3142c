#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/tokens/generate_request.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t ten_tokens = 10;

Result<GenerateRequest> read_generate(std::string_view body, serving::Notices* notices = nullptr) {
  static const text::GenerationConfig defaults{.temperature = 0.25, .top_k = 3};
  const ApiContext context{
      .base = "base", .vocabulary = ten_tokens, .defaults = &defaults, .notices = notices};
  return read_generate_request(json::parse(body, "test").value(), context);
}

TEST(GenerateRequest, LeavesOutWhatTheModelsConfigurationSays) {
  const GenerateRequest request = read_generate(R"({"token_ids": [1, 9]})").value();
  EXPECT_THAT(request.tokens, ElementsAre(1, 9));
  EXPECT_EQ(request.fields.sampling.temperature, 1);
  EXPECT_EQ(request.fields.sampling.top_k, 0);
  EXPECT_EQ(request.fields.max_tokens, std::nullopt) << "up to the context";
  EXPECT_FALSE(request.fields.sampling.logprobs);
  EXPECT_FALSE(request.fields.sampling.ranks);
}

TEST(GenerateRequest, ReadsSamplingFromItsObject) {
  serving::Notices notices;
  const GenerateRequest request =
      read_generate(R"({"model": "base:a", "token_ids": [1], "priority": 3, "cache_salt": "s",
                        "temperature": 2, "return_token_ids": true, "token_offsets": [[0, 1]],
                        "features": {}, "kv_transfer_params": null, "output_mode": "text",
                        "sampling_params": {"temperature": 0.5, "n": 2, "logprobs": 1,
                          "stop_token_ids": [4], "skip_special_tokens": false, "odd": 1,
                          "output_kind": 2, "detokenize": false, "extra_args": {},
                          "routed_experts_prompt_start": 7, "return_token_ids": true}})",
                    &notices)
          .value();
  EXPECT_EQ(request.fields.adapters[0].name, "a");
  EXPECT_EQ(request.fields.sampling.temperature, 0.5F);
  EXPECT_EQ(request.fields.choices, 2);
  EXPECT_EQ(request.fields.priority, -3) << "lower ones are earlier";
  EXPECT_EQ(request.fields.cache_salt, "s");
  EXPECT_TRUE(request.fields.tokens.return_ids);
  EXPECT_TRUE(request.fields.sampling.ranks);
  EXPECT_TRUE(request.with_text);
  EXPECT_THAT(notices.ignored, UnorderedElementsAre("sampling_params.return_token_ids",
                                                    "sampling_params.odd", "temperature"));
}

TEST(GenerateRequest, NamesTheFieldThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> wrong_ones = {
      {"{}", "token_ids"},
      {R"({"token_ids": []})", "token_ids"},
      {R"({"token_ids": [-1]})", "token_ids[0]"},
      {R"({"token_ids": [1, 10]})", "token_ids[1]"},
      {R"({"token_ids": [[1]]})", "token_ids[0]"},
      {R"({"token_ids": "a"})", "token_ids"},
      {R"({"token_ids": [1], "output_mode": "derender"})", "output_mode"},
      {R"({"token_ids": [1], "output_mode": 7})", "output_mode"},
      {R"({"token_ids": [1], "features": {"mm_hashes": {}}})", "features"},
      {R"({"token_ids": [1], "content_parts": [{}]})", "content_parts"},
      {R"({"token_ids": [1], "kv_transfer_params": {"a": 1}})", "kv_transfer_params"},
      {R"({"token_ids": [1], "ec_transfer_params": {"a": 1}})", "ec_transfer_params"},
      {R"({"token_ids": [1], "sampling_params": []})", "sampling_params"},
      {R"({"token_ids": [1], "sampling_params": {"odd": 1}})", "sampling_params.odd"},
      {R"({"token_ids": [1], "sampling_params": {"temperature": -1}})",
       "sampling_params.temperature"},
      {R"({"token_ids": [1], "sampling_params": {"logit_bias": {"10": 1}}})",
       "sampling_params.logit_bias"},
      {R"({"token_ids": [1], "sampling_params": {"use_beam_search": true}})",
       "sampling_params.use_beam_search"},
      {R"({"token_ids": [1], "sampling_params": {"trace_decode_token_ids": [1]}})",
       "sampling_params.trace_decode_token_ids"},
      {R"({"token_ids": [1], "sampling_params": {"logprob_token_ids": [1, 10]}})",
       "sampling_params.logprob_token_ids[1]"},
      {R"({"token_ids": [1], "sampling_params": {"logprob_token_ids": [[1]]}})",
       "sampling_params.logprob_token_ids[0]"},
      {R"({"token_ids": [1], "sampling_params": {"logprobs": -1}})", "sampling_params.logprobs"},
      {R"({"token_ids": [1], "stream": true, "sampling_params": {"prompt_logprobs": 1}})",
       "sampling_params.prompt_logprobs"},
      {R"({"token_ids": [1], "sampling_params": {"prompt_logprob_start": 1}})",
       "sampling_params.prompt_logprob_start"},
      {R"({"token_ids": [1], "sampling_params": {"prompt_logprob_token_ids": []}})",
       "sampling_params.prompt_logprob_token_ids"},
      {R"({"token_ids": [1], "sampling_params": {"prompt_logprob_token_ids": [[]]}})",
       "sampling_params.prompt_logprob_token_ids[0]"},
      {R"({"token_ids": [1], "sampling_params": {"prompt_logprob_token_ids": [[1], [1, 2]]}})",
       "sampling_params.prompt_logprob_token_ids[1]"},
      {R"({"token_ids": [1], "sampling_params": {"prompt_logprob_token_ids": [[-2]]}})",
       "sampling_params.prompt_logprob_token_ids[0][0]"},
  };
  for (const auto& [body, field] : wrong_ones) {
    const auto request = read_generate(body);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(request.error().where(), field) << body;
  }
}

}  // namespace
}  // namespace motley::server
