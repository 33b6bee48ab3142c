#include "cli/cli.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json.h"
#include "base/temporary_folder.h"
#include "tensor/checkpoint.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int status = 0;
  std::string output;
  std::string errors;
};

Outcome motley(const std::vector<std::string>& words) {
  Outcome outcome;
  auto output = [&](std::string_view text) { outcome.output += text; };
  auto errors = [&](std::string_view text) { outcome.errors += text; };
  outcome.status = run(words, output, errors);
  return outcome;
}

TEST(Cli, HelpNamesEveryCommand) {
  const Outcome outcome = motley({"--help"});
  EXPECT_EQ(outcome.status, 0);
  for (const char* command : {"inspect", "serve", "chat", "score", "bench", "tokenize", "quantize"})
    EXPECT_THAT(outcome.output, HasSubstr(command));
  EXPECT_EQ(outcome.errors, "");
}

TEST(Cli, PrintsItsVersion) {
  EXPECT_THAT(motley({"--version"}).output, testing::MatchesRegex("motley [0-9.]+\n"));
}

TEST(Cli, HelpAndVersionTakeNothingElse) {
  for (const char* word : {"--version", "--help", "-h", "help"}) {
    const Outcome outcome = motley({word, "extra"});
    EXPECT_EQ(outcome.status, 2) << word;
    EXPECT_EQ(outcome.output, "") << word;
    EXPECT_EQ(outcome.errors, cat("motley: one argument too many, 'extra' (motley ", word,
                                  "): write ", word, " alone\n"));
  }
}

TEST(Cli, CommandsTellTheirUsage) {
  for (const char* word : {"--help", "-h"}) {
    const Outcome outcome = motley({"inspect", word});
    EXPECT_EQ(outcome.status, 0) << word;
    EXPECT_THAT(outcome.output, StartsWith("usage: motley inspect PATH")) << word;
  }
}

TEST(Cli, TheEndOfMemoryIsAnErrorLikeAnyOther) {
  std::string line;
  auto output = [](std::string_view) { throw std::bad_alloc(); };
  auto errors = [&](std::string_view text) { line += text; };
  const std::vector<std::string> words = {"--version"};
  EXPECT_EQ(run(words, output, errors), 1);
  EXPECT_EQ(line, "motley: not enough memory: free some, or use a machine with more\n");
}

TEST(Cli, ErrorsAreOneLineThatSaysWhatToDo) {
  const Outcome outcome = motley({});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.errors, "motley: no command: see motley --help\n");
}

TEST(Cli, SuggestsWhatWasMeant) {
  EXPECT_EQ(motley({"inspcet", "x"}).errors,
            "motley: unknown command 'inspcet': did you mean inspect?\n");
  EXPECT_EQ(motley({"inspect", "--jsno", "x"}).errors,
            "motley: unknown option '--jsno' (motley inspect): did you mean --json?\n");
}

TEST(Cli, PromisedCommandsSayThatTheyAreNotThereYet) {
  for (const char* command : {"serve", "chat", "bench", "tokenize", "quantize"}) {
    const Outcome outcome = motley({command, "model"});
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_THAT(outcome.errors,
                AllOf(StartsWith("motley: "), HasSubstr("not there yet"), EndsWith("\n")));
  }
}

TEST(Cli, RefusesWrongCalls) {
  EXPECT_THAT(motley({"inspect"}).errors, HasSubstr("no PATH (motley inspect)"));
  EXPECT_THAT(motley({"inspect", "a", "b"}).errors, HasSubstr("one argument too many, 'b'"));
  EXPECT_THAT(motley({"inspect", "--json", "--json", "a"}).errors, HasSubstr("given twice"));
  EXPECT_THAT(motley({"inspect", "--json=1", "a"}).errors, HasSubstr("takes no value"));
  EXPECT_EQ(motley({"inspect"}).status, 2);
}

TEST(Cli, ANewlineInAnArgumentStaysOnTheLine) {
  const Outcome outcome = motley({"inspect", "no\nsuch"});
  EXPECT_EQ(outcome.errors, "motley: no such file or folder (no\\nsuch): check the path\n");
  EXPECT_EQ(outcome.status, 1);
}

const CommandSpec example{.name = "example", .summary = "", .positionals = {}, .options = {}};

TEST(Arguments, ReadsBothSpellingsAndRepeats) {
  CommandSpec spec = example;
  spec.positionals = {"MODEL"};
  spec.options = {{"--port", "N", "", false}, {"--adapter", "NAME=PATH", "", true}};
  const std::vector<std::string> words = {"--adapter", "a=1", "model", "--adapter=b=2",
                                          "--port=80"};
  const auto arguments = Arguments::parse(spec, words);
  ASSERT_TRUE(arguments.ok()) << arguments.error().message();
  EXPECT_EQ(arguments->positional(0), "model");
  EXPECT_EQ(*arguments->value("--port"), "80");
  EXPECT_THAT(arguments->values("--adapter"), testing::ElementsAre("a=1", "b=2"));
  EXPECT_FALSE(arguments->has("--host"));
  EXPECT_TRUE(arguments->values("--host").empty());
}

TEST(Arguments, NothingIsAnOptionBehindTwoDashes) {
  CommandSpec spec = example;
  spec.positionals = {"PATH"};
  const std::vector<std::string> words = {"--", "--odd-name"};
  const auto arguments = Arguments::parse(spec, words);
  ASSERT_TRUE(arguments.ok());
  EXPECT_EQ(arguments->positional(0), "--odd-name");
}

TEST(Arguments, RefusesAMissingValue) {
  CommandSpec spec = example;
  spec.options = {{"--port", "N", ""}};
  const std::vector<std::string> words = {"--port"};
  EXPECT_THAT(Arguments::parse(spec, words).error().message(),
              HasSubstr("--port needs a value (motley example): write --port N"));
}

TEST(Closest, FindsSlipsAndNothingElse) {
  const std::array<std::string_view, 3> words = {"inspect", "serve", "score"};
  EXPECT_EQ(closest("inspct", words), "inspect");
  EXPECT_EQ(closest("sevre", words), "serve");
  EXPECT_EQ(closest("quantum", words), std::nullopt);
}

class Inspect : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  // Two layers with one matrix each and a norm.
  void put_weights(std::string_view stem) const {
    const std::array<float, 6> numbers = {1, 2, 3, 4, 5, 6};
    const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
    const std::vector<tensor::NamedTensor> tensors = {{"layers.0.w", {bytes, DType::f32, {2, 3}}},
                                                      {"layers.1.w", {bytes, DType::f32, {2, 3}}},
                                                      {"norm", {bytes, DType::f32, {6}}}};
    ASSERT_TRUE(tensor::write_checkpoint(folder_, stem, tensors, 1000).ok());
  }

  TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

TEST_F(Inspect, GathersTensorsThatDifferInLayerOnly) {
  put("config.json", R"({"model_type":"qwen3_moe"})");
  put_weights("model");
  const Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("model_type: qwen3_moe"), HasSubstr("3 tensors, 72 B"),
                    HasSubstr("layers.*.w F32 [2, 3] x 2\n"), HasSubstr("norm F32 [6]\n")));
}

TEST_F(Inspect, KnowsAnAdapter) {
  put("adapter_config.json", R"({"peft_type":"LORA","r":8,"lora_alpha":16.5})");
  put_weights("adapter_model");
  const Outcome outcome = motley({"inspect", folder_.string(), "--tensors"});
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(StartsWith("adapter "), HasSubstr("r: 8\n"),
                                    HasSubstr("lora_alpha: 16.5\n"), HasSubstr("layers.1.w F32")));
}

TEST_F(Inspect, PrintsJson) {
  put_weights("model");
  const Outcome outcome = motley({"inspect", "--json", (folder_ / "model.safetensors").string()});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const auto report = json::parse(outcome.output, "report");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(*report->if_object()->find("kind")->if_string(), "file");
  EXPECT_EQ(report->if_object()->find("tensors")->if_array()->size(), 3U);
}

TEST_F(Inspect, PatternsKeepEmptyParts) {
  put("config.json", "{}");
  const float number = 1;
  const tensor::ConstTensor tensor(reinterpret_cast<const std::byte*>(&number), DType::f32, {1});
  const std::vector<tensor::NamedTensor> tensors = {
      {"a..b", tensor}, {"a.b", tensor}, {".7", tensor}, {"c.", tensor}};
  ASSERT_TRUE(tensor::write_checkpoint(folder_, "model", tensors, 1000).ok());
  const Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("  a..b F32 [1]\n"), HasSubstr("  a.b F32 [1]\n"),
                                    HasSubstr("  .* F32 [1]\n"), HasSubstr("  c. F32 [1]\n")));
}

TEST_F(Inspect, RefusesWhatIsNeitherFileNorFolder) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {folder_ / "pipe", fs::path("/dev/null")}) {
    const Outcome outcome = motley({"inspect", path.string()});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.errors, cat("motley: neither a file nor a folder (", path.string(),
                                  "): name a model, an adapter or a safetensors file\n"));
  }
}

TEST_F(Inspect, RefusesAFolderWithoutItsConfig) {
  put_weights("model");
  Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("no config.json"));
  put_weights("adapter_model");
  put("config.json", "{}");
  outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("no adapter_config.json"));
}

TEST_F(Inspect, RefusesAConfigThatIsNoObject) {
  put_weights("model");
  for (const char* text : {"[]", "null", "\"text\"", "5"}) {
    put("config.json", text);
    const Outcome outcome = motley({"inspect", folder_.string()});
    EXPECT_EQ(outcome.status, 1) << text;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("expected an object"), HasSubstr("config.json")));
  }
}

// The call is right: it is the folder that is not.
TEST_F(Inspect, ADamagedFolderIsNoWrongCall) {
  put_weights("model");
  ASSERT_EQ(::mkfifo((folder_ / "config.json").c_str(), 0600), 0);
  Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("this is not a regular file"),
                                    HasSubstr("config.json"), HasSubstr("the folder is damaged")));
  fs::remove(folder_ / "config.json");
  fs::create_directory(folder_ / "config.json");
  outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("this is a folder"));
}

TEST_F(Inspect, NamesWhatIsWrong) {
  put("config.json", "{");
  put_weights("model");
  EXPECT_THAT(motley({"inspect", folder_.string()}).errors, HasSubstr("config.json"));
  fs::remove(folder_ / "config.json");
  put("model.safetensors", "not a tensor file");
  EXPECT_THAT(motley({"inspect", folder_.string()}).errors, HasSubstr("model.safetensors"));
}

TEST_F(Inspect, RefusesAPickledAdapter) {
  put("adapter_config.json", "{}");
  put("adapter_model.bin", "PK");
  const Outcome outcome = motley({"inspect", folder_.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("pickle, 'adapter_model.bin'"));
}

}  // namespace
}  // namespace motley::cli
