#include "text/generation_config.h"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"

namespace motley::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<GenerationConfig> load(std::string_view generation, std::string_view model) {
  const TemporaryFolder folder;
  if (!generation.empty()) std::ofstream(folder / "generation_config.json") << generation;
  if (!model.empty()) std::ofstream(folder / "config.json") << model;
  return load_generation_config(folder.path());
}

TEST(GenerationConfig, AbsentFilesSayNothing) {
  const auto config = load("", "");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_THAT(config->end_tokens, IsEmpty());
  EXPECT_FALSE(config->temperature);
}

TEST(GenerationConfig, ReadsTheDefaultsThatFilesHold) {
  const auto config = load(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20,
    "min_p": 0, "repetition_penalty": 1.05, "max_length": 7, "pad_token_id": null,
    "eos_token_id": [151645, 151643], "transformers_version": "4.51.0"})",
                           R"({"eos_token_id": 151645})");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->min_p, 0.0);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_THAT(config->end_tokens, ElementsAre(151643, 151645));
}

TEST(GenerationConfig, EndTokensAreTheUnionOfAllFiles) {
  EXPECT_THAT(load(R"({"eos_token_id": 9})", R"({"eos_token_id": [3, 1, 3]})")->end_tokens,
              ElementsAre(1, 3, 9));
  EXPECT_THAT(
      load("{}", R"({"eos_token_id": null, "text_config": {"eos_token_id": 5}})")->end_tokens,
      ElementsAre(5));
}

TEST(GenerationConfig, SamplingSwitchedOffIsGreedy) {
  EXPECT_EQ(load(R"({"do_sample": false, "temperature": 0.7})", "")->temperature, 0.0);
}

TEST(GenerationConfig, NoTopKIsWrittenInTwoWays) {
  EXPECT_EQ(load(R"({"top_k": -1})", "")->top_k, 0);
  EXPECT_EQ(load(R"({"top_k": 0})", "")->top_k, 0);
}

TEST(GenerationConfig, RefusesByName) {
  for (const auto& [text, named] : {std::pair{R"({"temperature": -1})", "temperature is -1"},
                                    {R"({"top_p": 1.5})", "top_p"},
                                    {R"({"min_p": "a"})", "min_p"},
                                    {R"({"repetition_penalty": 0})", "repetition_penalty is 0"},
                                    {R"({"top_k": -2})", "top_k is -2"},
                                    {R"({"eos_token_id": [-4]})", "-4 is no token id"},
                                    {R"({"eos_token_id": 4294967296})", "no token id"},
                                    {R"({"do_sample": 1})", "do_sample"},
                                    {R"([])", "generation_config.json"},
                                    {"{", "generation_config.json"}}) {
    const auto config = load(text, "");
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.error().message(), HasSubstr(named));
  }
}

}  // namespace
}  // namespace motley::text
