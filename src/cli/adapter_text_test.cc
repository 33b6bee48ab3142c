#include "cli/adapter_text.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/system/temporary_folder.h"

namespace motley::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view tokenizer =
    R"({"version": "1.0", "padding": null, "model": {"vocab": {"a": 0, "b": 1}}})";

class AdapterTextTest : public testing::Test {
 protected:
  AdapterTextTest() {
    std::filesystem::create_directory(folder_ / "base");
    std::filesystem::create_directory(folder_ / "adapter");
    put("base/tokenizer.json", tokenizer);
    put("base/tokenizer_config.json", R"({"eos_token": "<end>", "chat_template": "{{ 1 }}"})");
  }

  void put(std::string_view name, std::string_view content) const { folder_.file(name, content); }

  AdapterText text(std::set<std::string> with_templates = {}) const {
    return AdapterText(folder_ / "base", text::load_tokenizer_config(folder_ / "base").value(),
                       std::move(with_templates));
  }
  std::vector<std::string> differences() const {
    return text().differences("a", folder_ / "adapter");
  }

  TemporaryFolder folder_;
};

TEST_F(AdapterTextTest, AFolderWithoutTextHasNoDifferences) {
  EXPECT_THAT(differences(), IsEmpty());
}

TEST_F(AdapterTextTest, CopiesThatMeanTheSameAreNoDifference) {
  put("adapter/tokenizer.json", tokenizer);
  put("adapter/tokenizer_config.json",
      R"({"pad_token": "<pad>", "eos_token": {"content": "<end>"}, "chat_template": "{{ 1 }}"})");
  EXPECT_THAT(differences(), IsEmpty());
  put("adapter/tokenizer.json",
      R"({"model":{"vocab":{"b":1,"a":0}},"version":"1.0","padding":{"length":512}})");
  EXPECT_THAT(differences(), IsEmpty());
  // The newer place of the same template.
  put("adapter/tokenizer_config.json", "{}");
  put("adapter/chat_template.jinja", "{{ 1 }}");
  EXPECT_THAT(differences(), IsEmpty());
}

TEST_F(AdapterTextTest, WhatDiffersIsNamed) {
  put("adapter/tokenizer.json", R"({"version": "1.0", "model": {"vocab": {"a": 0, "c": 1}}})");
  EXPECT_THAT(differences(), ElementsAre("tokenizer.json"));
  put("adapter/chat_template.jinja", "{{ 2 }}");
  put("adapter/tokenizer_config.json", R"({"eos_token": "<other>"})");
  EXPECT_THAT(differences(),
              ElementsAre("tokenizer.json", "bos_token or eos_token", "the chat template"));
  put("adapter/tokenizer.json", "damaged");
  EXPECT_THAT(text({"a"}).differences("a", folder_ / "adapter"),
              ElementsAre("tokenizer.json", "bos_token or eos_token"));
}

TEST_F(AdapterTextTest, WarnsOnlyOfADifference) {
  std::string lines;
  log::configure({.sink = [&](std::string_view line) { lines += line; }});
  AdapterText compared = text();
  put("adapter/chat_template.jinja", "{{ 1 }}");
  compared.warn("a", folder_ / "adapter");
  EXPECT_EQ(lines, "");
  put("adapter/chat_template.jinja", "{{ 2 }}");
  compared.warn("a", folder_ / "adapter");
  log::configure({});
  EXPECT_THAT(lines, HasSubstr("adapter.files_ignored"));
  EXPECT_THAT(lines, HasSubstr("differs=\"the chat template\""));
}

}  // namespace
}  // namespace motley::cli
