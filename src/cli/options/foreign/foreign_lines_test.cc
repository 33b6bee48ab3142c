// Whole command lines of vLLM, TRL, axolotl and KServe, with the demo's folders for theirs.

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "cli/command.h"
#include "cli/options/settings/model_settings.h"

namespace motley::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Replacements = std::vector<std::pair<std::string, std::string>>;

// The lines of tests/command_lines/lines.txt by name.
std::map<std::string, std::string> documented_lines() {
  std::ifstream file(MOTLEY_COMMAND_LINES);
  std::map<std::string, std::string> lines;
  std::string name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('['))
      name = line.substr(1, line.size() - 2);
    else if (!line.empty() && !line.starts_with('#'))
      lines[name] += line + "\n";
  }
  return lines;
}

// As a shell splits it: quotes, and backslashes at the ends of lines.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == '\\' && i + 1 < line.size() && line[i + 1] == '\n') {
      ++i;
    } else if (c == ' ' || c == '\n') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  return words;
}

// What follows "serve", or Python's module.
std::vector<std::string> arguments_of(const std::string& name, const Replacements& replacements) {
  std::string line = documented_lines().at(name);
  for (const auto& [from, to] : replacements) {
    const std::size_t at = line.find(from);
    EXPECT_NE(at, std::string::npos) << from << " is not in " << name;
    if (at != std::string::npos) line.replace(at, from.size(), to);
  }
  std::vector<std::string> words = shell_words(line);
  while (!words.empty()) {
    const std::string first = words.front();
    words.erase(words.begin());
    if (first == "serve" || first == "vllm.entrypoints.openai.api_server") break;
  }
  return words;
}

struct Started {
  ModelSettings settings;
  std::vector<std::string> ignored;
  std::string port = {};
};

Result<Started> start(const std::string& name, const Replacements& replacements) {
  MOTLEY_TRY(const Arguments arguments,
             Arguments::parse(serve_command().spec, arguments_of(name, replacements)));
  Started started;
  MOTLEY_TRY(started.settings, read_model_settings(arguments));
  for (const IgnoredOption& each : arguments.ignored()) started.ignored.push_back(each.written);
  if (const std::string* const port = arguments.value("--port")) started.port = *port;
  return started;
}

std::vector<std::string> adapters_of(const Started& started) {
  std::vector<std::string> adapters;
  for (const serving::StartAdapter& each : started.settings.engine.adapters)
    adapters.push_back(cat(each.name, "=", each.path.native()));
  return adapters;
}

const std::string demo = MOTLEY_DEMO_MODEL;
const std::string cynic = demo + "/adapters/cynic";
const std::string jargon = demo + "/adapters/jargon";

TEST(ForeignLines, VllmsPageOfAdapters) {
  const std::string snapshot =
      "$HOME/.cache/huggingface/hub/models--yard1--llama-2-7b-sql-lora-test/snapshots/"
      "0dfa347e8877a4d4ed19ee56c140fa518470028c/";
  const auto plain =
      start("vllm lora", {{"meta-llama/Llama-2-7b-hf", demo}, {snapshot, cynic + "/"}});
  ASSERT_TRUE(plain.ok()) << plain.error().message();
  EXPECT_EQ(plain->settings.model, demo);
  EXPECT_EQ(plain->settings.name, "demo");
  EXPECT_THAT(adapters_of(*plain), ElementsAre(cat("sql-lora=", cynic, "/")));
  EXPECT_THAT(plain->ignored, ElementsAre("--enable-lora"));

  const auto as_json =
      start("vllm lora json", {{"meta-llama/Llama-2-7b-hf", demo}, {"/path/to/lora", cynic}});
  ASSERT_TRUE(as_json.ok()) << as_json.error().message();
  EXPECT_THAT(adapters_of(*as_json), ElementsAre(cat("sql-lora=", cynic)));
}

TEST(ForeignLines, AllKindsOfOptionsAtOnce) {
  const auto started = start(
      "vllm many options",
      {{"meta-llama/Llama-2-7b-hf", demo}, {"/path/to/one", cynic}, {"/path/to/two", jargon}});
  ASSERT_TRUE(started.ok()) << started.error().message();
  const ModelSettings& settings = started->settings;
  EXPECT_EQ(settings.model, demo);
  EXPECT_EQ(settings.name, "llama-2");
  EXPECT_THAT(settings.aliases, ElementsAre("llama-2-7b"));
  EXPECT_THAT(adapters_of(*started), ElementsAre(cat("one=", cynic), cat("two=", jargon)));
  EXPECT_EQ(settings.engine.compute.ranks, 1);
  EXPECT_EQ(settings.engine.compute.exact, false);
  EXPECT_FALSE(settings.engine.compute.kv_codes);
  EXPECT_FALSE(settings.engine.compute.graphs);
  EXPECT_EQ(settings.engine.memory.max_batch_tokens, 256);
  EXPECT_THAT(
      started->ignored,
      ElementsAre("--enable-lora", "--max-loras", "--max-lora-rank", "--max-cpu-loras", "-pp",
                  "--seed", "--gpu-memory-utilization", "--max-num-seqs", "--enable-prefix-caching",
                  "--no-enable-chunked-prefill", "--trust-remote-code", "-O", "-cc.mode",
                  "--compilation-config", "--enable-auto-tool-choice", "--disable-log-requests",
                  "--disable-log-stats", "--uvicorn-log-level"));
}

TEST(ForeignLines, Trl) {
  for (const auto& [name, model] : std::vector<std::pair<std::string, std::string>>{
           {"trl vllm-serve", "Qwen/Qwen2.5-7B"}, {"trl async grpo", "Qwen/Qwen3-4B"}}) {
    const Replacements replacements = {{model, demo}, {"4096", "512"}};
    const auto started = start(name, replacements);
    ASSERT_TRUE(started.ok()) << started.error().message();
    EXPECT_EQ(started->settings.engine.memory.max_model_len, 512) << name;
    EXPECT_EQ(started->settings.engine.compute.ranks, 1) << name;
    EXPECT_EQ(started->settings.engine.compute.replicas, 1) << name;
    EXPECT_FALSE(started->settings.engine.compute.exact) << name;
  }
}

TEST(ForeignLines, Axolotl) {
  const auto started = start("axolotl", {{"Qwen/Qwen2.5-0.5B-Instruct", demo}, {"4096", "512"}});
  ASSERT_TRUE(started.ok()) << started.error().message();
  EXPECT_EQ(started->settings.engine.memory.max_model_len, 512);
  EXPECT_EQ(started->port, "8000");
  EXPECT_THAT(started->ignored,
              ElementsAre("--gpu-memory-utilization", "--enable-prefix-caching", "--enable-lora",
                          "--max-lora-rank", "--api-server-count"));
}

TEST(ForeignLines, KServe) {
  const auto llm = start("kserve llm", {{"/mnt/models", demo},
                                        {"/mnt/lora/sql-adapter", cynic},
                                        {"/mnt/lora/code-adapter", jargon}});
  ASSERT_TRUE(llm.ok()) << llm.error().message();
  EXPECT_EQ(llm->settings.name, "Qwen/Qwen2.5-7B-Instruct");
  EXPECT_THAT(llm->settings.aliases, IsEmpty());
  EXPECT_THAT(adapters_of(*llm),
              ElementsAre(cat("sql-adapter=", cynic), cat("code-adapter=", jargon)));
  EXPECT_THAT(llm->ignored, ElementsAre("--enable-lora", "--max-lora-rank"));

  const auto service =
      start("kserve inference service", {{"/mnt/models", demo}, {"/mnt/lora", cynic}});
  ASSERT_TRUE(service.ok()) << service.error().message();
  EXPECT_EQ(service->settings.name, "llama3");
  EXPECT_EQ(service->port, "8080");
  EXPECT_THAT(adapters_of(*service), ElementsAre(cat("sql-lora=", cynic)));
}

}  // namespace
}  // namespace motley::cli
