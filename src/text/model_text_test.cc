#include "text/model_text.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/system/temporary_folder.h"

namespace motley::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// Tokens for a and b, and two special ones: 3 <turn>, 4 <end>.
std::string tokenizer_json() {
  return R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 3, "content": "<turn>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 4, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": false,
      "ignore_merges": false, "vocab": {"?": 0, "a": 1, "b": 2}, "merges": []}})";
}

class ModelTextTest : public testing::Test {
 protected:
  ModelTextTest() {
    write("tokenizer.json", tokenizer_json());
    write("tokenizer_config.json", R"({"eos_token": "<end>", "bos_token": "<turn>"})");
    write("chat_template.jinja",
          "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}");
  }
  void write(const std::string& name, std::string_view content) {
    std::ofstream(folder_ / name) << content;
  }
  ModelText load() { return ModelText::load(folder_.path()).value(); }
  static ChatInputs says(std::string content) {
    json::Object message{{"role", "user"}, {"content", std::move(content)}};
    ChatInputs inputs;
    inputs.messages = json::Array{json::Value(std::move(message))};
    return inputs;
  }

  TemporaryFolder folder_;
};

TEST_F(ModelTextTest, WritesAConversationWithTheModelsOwnTokens) {
  const auto chat = load().chat(says("ab"), false);
  ASSERT_TRUE(chat.ok()) << chat.error().message();
  EXPECT_EQ(chat->text.text, "<turn>ab<end>");
  EXPECT_THAT(chat->ids, ElementsAre(3, 1, 2, 4));
}

// Templates write the token that texts begin with, and so would the tokenizer.
TEST_F(ModelTextTest, AConversationBeginsOnce) {
  std::string tokenizer = tokenizer_json();
  const std::string_view none = R"("post_processor": null)";
  tokenizer.replace(tokenizer.find(none), none.size(),
                    R"("post_processor": {"type": "TemplateProcessing", "pair": [], "single":
        [{"SpecialToken": {"id": "<turn>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<turn>": {"id": "<turn>", "ids": [3], "tokens": ["<turn>"]}}})");
  write("tokenizer.json", tokenizer);
  const ModelText model = load();
  EXPECT_THAT(model.tokenizer().encode({.text = "ab"}, {}).value(), ElementsAre(3, 1, 2));
  EXPECT_THAT(model.chat(says("ab"), false)->ids, ElementsAre(3, 1, 2, 4));
}

TEST_F(ModelTextTest, WhatMessagesSayIsNoStructureUnlessAskedFor) {
  const ModelText model = load();
  const auto kept = model.chat(says("a<end><turn>b"), false)->ids;
  EXPECT_EQ(std::ranges::count(kept, 4), 1);
  EXPECT_EQ(std::ranges::count(kept, 3), 1);
  EXPECT_THAT(model.chat(says("a<end><turn>b"), true)->ids, ElementsAre(3, 1, 4, 3, 2, 4));
}

TEST_F(ModelTextTest, TheTokenizersEndTokenEndsAnswersToo) {
  write("generation_config.json", R"({"eos_token_id": [2, 9]})");
  EXPECT_THAT(load().generation().end_tokens, ElementsAre(2, 4, 9));
}

TEST_F(ModelTextTest, EndTokensBeyondTheVocabularyAreDroppedWithOneLine) {
  std::vector<std::string> lines;
  log::configure({.sink = [&](std::string_view line) { lines.emplace_back(line); }});
  write("generation_config.json", R"({"eos_token_id": [2, 5, 9]})");
  write("config.json", R"({"vocab_size": 5})");
  EXPECT_THAT(load().generation().end_tokens, ElementsAre(2, 4));
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr("text.unknown_end_tokens ids=\"5, 9\" vocabulary=5"));
  write("config.json", R"({"vocab_size": 5, "text_config": {"vocab_size": 10}})");
  EXPECT_THAT(load().generation().end_tokens, ElementsAre(2, 4, 5, 9));
  EXPECT_THAT(lines, SizeIs(1));
  log::configure({});
}

TEST_F(ModelTextTest, TheConfigDecidesHowAddedTokensAreLookedFor) {
  write("tokenizer_config.json", R"({"eos_token": "<end>", "added_tokens_decoder": {
    "4": {"content": "<end>", "rstrip": true, "special": true},
    "5": {"content": "<think>", "normalized": false, "special": false}}})");
  const ModelText model = load();
  EXPECT_THAT(model.tokenizer().encode("<end>  a<think>").value(), ElementsAre(4, 1, 5));
  EXPECT_TRUE(model.tokenizer().is_special(4));
  EXPECT_FALSE(model.tokenizer().is_special(5));
  EXPECT_EQ(model.tokenizer().size(), 6);
}

TEST_F(ModelTextTest, RefusesFilesThatDisagreeOnAnId) {
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"7": {"content": "<end>", "special": true}}})");
  const auto model = ModelText::load(folder_.path());
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message(), HasSubstr("'<end>' has the id 7, and 4 in tokenizer.json"));
}

TEST_F(ModelTextTest, ToolsTakeTheTemplateForTools) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "b"}]})");
  const ModelText model = load();
  ChatInputs inputs = says("a");
  inputs.tools = json::Array{};
  EXPECT_THAT(model.chat(std::move(inputs), false)->ids, ElementsAre(2));
}

TEST_F(ModelTextTest, ATemplateFromAFileIsUsedInPlaceOfTheModels) {
  write("other.jinja", "other {{ messages[0].content }}{{ eos_token }}");
  ModelText text = load();
  const auto used = text.use_template(folder_ / "other.jinja");
  ASSERT_TRUE(used.ok()) << used.error().message();
  EXPECT_EQ(text.render(says("ab"))->text, "other ab<end>");
  EXPECT_THAT(text.config().templates, SizeIs(1));
  ChatInputs with_tools = says("ab");
  with_tools.tools = json::Value(json::Array());
  EXPECT_EQ(text.render(std::move(with_tools))->text, "other ab<end>");
}

TEST_F(ModelTextTest, AnAdapterMayHaveATemplateOfItsOwn) {
  write("poet.jinja", "poet {{ messages[0].content }}{{ eos_token }}");
  ModelText text = load();
  ASSERT_TRUE(text.use_template_of_adapter("poet", folder_ / "poet.jinja").ok());
  EXPECT_THAT(text.adapters_with_templates(), ElementsAre("poet"));
  const auto written = [&](std::string adapter) {
    ChatInputs inputs = says("ab");
    inputs.adapter = std::move(adapter);
    return text.render(std::move(inputs))->text;
  };
  EXPECT_EQ(written("poet"), "poet ab<end>");
  EXPECT_EQ(written("cynic"), "<turn>ab<end>");
  EXPECT_EQ(written(""), "<turn>ab<end>");
}

// Unlike a broken template of the model's folder, which matters to conversations only.
TEST_F(ModelTextTest, ABrokenTemplateOfAFileIsRefusedAtOnce) {
  write("broken.jinja", "{% if %}");
  ModelText text = load();
  const auto used = text.use_template(folder_ / "broken.jinja");
  ASSERT_FALSE(used.ok());
  EXPECT_THAT(used.error().message(), HasSubstr("broken.jinja"));
  EXPECT_FALSE(text.use_template_of_adapter("poet", folder_ / "broken.jinja").ok());
  EXPECT_FALSE(text.use_template(folder_ / "none.jinja").ok());
  EXPECT_EQ(text.render(says("ab"))->text, "<turn>ab<end>");
}

TEST_F(ModelTextTest, ABrokenTemplateRefusesConversationsOnly) {
  write("chat_template.jinja", "\n{% if %}");
  const ModelText model = load();
  EXPECT_THAT(model.tokenizer().encode("ab").value(), ElementsAre(1, 2));
  const auto chat = model.chat(says("a"), false);
  ASSERT_FALSE(chat.ok());
  EXPECT_THAT(chat.error().message(), HasSubstr("chat_template.jinja"));
  EXPECT_THAT(chat.error().message(), HasSubstr("line 2"));
}

TEST_F(ModelTextTest, RefusesAFolderWithoutTokenizer) {
  std::filesystem::remove(folder_ / "tokenizer.json");
  const auto model = ModelText::load(folder_.path());
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message(), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace motley::text
