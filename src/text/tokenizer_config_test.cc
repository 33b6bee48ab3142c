#include "text/tokenizer_config.h"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/temporary_folder.h"

namespace motley::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class TokenizerConfigTest : public testing::Test {
 protected:
  void write(const std::string& name, std::string_view content) {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  Result<TokenizerConfig> load() { return load_tokenizer_config(folder_.path()); }
  std::string chosen(bool has_tools) {
    const auto config = load();
    if (!config.ok()) return config.error().message();
    const auto source = config->template_for(has_tools);
    return source.ok() ? (*source)->source : source.error().message();
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizerConfigTest, EverythingMayBeAbsent) {
  EXPECT_TRUE(load()->special_tokens.empty());
  EXPECT_THAT(chosen(false), HasSubstr("no chat template"));
}

TEST_F(TokenizerConfigTest, SpecialTokensAreStringsOrObjects) {
  write("tokenizer_config.json", R"({"eos_token": {"content": "</s>", "lstrip": false},
    "bos_token": "<s>", "pad_token": null, "add_bos_token": true, "model_max_length": 1e30})");
  EXPECT_THAT(load()->special_tokens,
              ElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "</s>")));
}

TEST_F(TokenizerConfigTest, TheOlderMapFillsGaps) {
  write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  write("special_tokens_map.json",
        R"({"eos_token": "other", "unk_token": {"content": "<unk>"},
            "additional_special_tokens": ["<a>"]})");
  EXPECT_THAT(load()->special_tokens,
              ElementsAre(Pair("eos_token", "</s>"), Pair("unk_token", "<unk>")));
}

TEST_F(TokenizerConfigTest, TheTemplateFileWins) {
  write("chat_template.json", R"({"chat_template": "old"})");
  EXPECT_EQ(chosen(false), "old");
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(chosen(false), "config");
  write("chat_template.jinja", "file\n");
  EXPECT_EQ(chosen(false), "file\n");
}

TEST_F(TokenizerConfigTest, ToolsChooseTheirTemplateWhereThereIsOne) {
  write("tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(chosen(false), "plain");
  EXPECT_EQ(chosen(true), "tools");
}

TEST_F(TokenizerConfigTest, AFolderHoldsMoreTemplates) {
  write("chat_template.jinja", "plain");
  EXPECT_EQ(chosen(true), "plain");
  write("additional_chat_templates/tool_use.jinja", "tools");
  write("additional_chat_templates/notes.txt", "no template");
  EXPECT_EQ(chosen(true), "tools");
  EXPECT_EQ(chosen(false), "plain");
  EXPECT_EQ(load()->templates.size(), 2U);
}

TEST_F(TokenizerConfigTest, TemplatesWithoutADefaultAreNamed) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(chosen(false), HasSubstr("they are rag"));
}

TEST_F(TokenizerConfigTest, RefusesByName) {
  for (const auto& [text, named] :
       {std::pair{R"({"bos_token": 7})", "bos_token"},
        {R"({"bos_token": {"lstrip": true}})", "a token without content"},
        {R"({"chat_template": 7})", "chat_template"},
        {R"({"chat_template": [{"name": "x"}]})", "without name or template"},
        {R"({"chat_template": [{"name": "x", "template": 1}]})", "'x'"},
        {"[]", "tokenizer_config.json"}}) {
    write("tokenizer_config.json", text);
    const auto config = load();
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.error().message(), HasSubstr(named));
  }
}

}  // namespace
}  // namespace motley::text
