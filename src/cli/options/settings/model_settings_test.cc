#include "cli/options/settings/model_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace motley::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<ModelSettings> read(std::vector<std::string> words) {
  words.insert(words.begin(), MOTLEY_DEMO_MODEL);
  MOTLEY_TRY(const Arguments arguments, Arguments::parse(serve_command().spec, words));
  return read_model_settings(arguments);
}

TEST(MaxModelLen, IsReadAsVllmReadsIt) {
  EXPECT_EQ(parse_max_model_len("32768").value(), 32768);
  EXPECT_EQ(parse_max_model_len("32K").value(), 32768);
  EXPECT_EQ(parse_max_model_len("32k").value(), 32000);
  EXPECT_EQ(parse_max_model_len("25.6k").value(), 25600);
  EXPECT_EQ(parse_max_model_len("1M").value(), 1 << 20);
  EXPECT_EQ(parse_max_model_len("-1").value(), std::nullopt);
  EXPECT_EQ(parse_max_model_len("Auto").value(), std::nullopt);
  for (const char* wrong : {"", "K", "0", "15", "-2", "1.5K", "1e3", "32KB", "9999999999T", "x"})
    EXPECT_EQ(parse_max_model_len(wrong).error().where(), "--max-model-len") << wrong;
}

TEST(MaxModelLen, IsAtMostWhatTheModelCanDo) {
  EXPECT_EQ(read({"--max-model-len", "1K"})->engine.memory.max_model_len, 1024);
  EXPECT_EQ(read({"--max-model-len", "auto"})->engine.memory.max_model_len, std::nullopt);
  EXPECT_EQ(read({"--max-model-len", "1025"}).error().message(),
            "1025 tokens are more than the 1024 that the model's config.json allows "
            "(--max-model-len): use 1024 or less, or auto");
}

TEST(StateSnapshots, AreEverySoManyTokensOrOff) {
  EXPECT_EQ(read({})->engine.memory.state_snapshots, std::nullopt);
  EXPECT_EQ(read({"--state-snapshots", "1024"})->engine.memory.state_snapshots, 1024);
  EXPECT_EQ(read({"--state-snapshots", "off"})->engine.memory.state_snapshots, 0);
  EXPECT_EQ(read({"--state-snapshots", "0"}).error().where(), "--state-snapshots");
  EXPECT_EQ(read({"--state-memory", "3M"})->engine.memory.state_memory, 3 << 20);
  EXPECT_EQ(read({})->engine.memory.state_host_memory, std::nullopt);
  EXPECT_EQ(read({"--state-host-memory", "3M"})->engine.memory.state_host_memory, 3 << 20);
  EXPECT_EQ(read({"--state-host-memory", "0"})->engine.memory.state_host_memory, 0U);
}

TEST(ModelNames, TheFirstIsTheBasesAndTheOthersAreAliases) {
  const ModelSettings settings =
      read({"--served-model-name", "one", "two", "one", "three"}).value();
  EXPECT_EQ(settings.name, "one");
  EXPECT_THAT(settings.aliases, ElementsAre("two", "three"));
  const std::string adapter = "two=" MOTLEY_DEMO_MODEL "/adapters/cynic";
  EXPECT_THAT(read({"--served-model-name", "one", "two", "--adapter", adapter}).error().message(),
              HasSubstr("adapter 'two' has the base's name"));
  EXPECT_EQ(read({"--served-model-name="}).error().where(), "--name");
  EXPECT_EQ(read({"--name", "one", "--served-model-name", "two"}).error().where(), "motley serve");
}

TEST(LoraModules, AreAdaptersInVllmsForms) {
  const std::string cynic = MOTLEY_DEMO_MODEL "/adapters/cynic";
  const std::string jargon = MOTLEY_DEMO_MODEL "/adapters/jargon";
  const ModelSettings settings =
      read({"--lora-modules", "a=" + cynic,
            R"([{"name": "b", "path": ")" + jargon + R"(", "is_3d_lora_weight": true}])",
            "--adapter", "c=" + cynic})
          .value();
  ASSERT_EQ(settings.engine.adapters.size(), 3U);
  EXPECT_EQ(settings.engine.adapters[0].name, "c");
  EXPECT_EQ(settings.engine.adapters[1].name, "a");
  EXPECT_EQ(settings.engine.adapters[2].name, "b");
  EXPECT_EQ(settings.engine.adapters[2].path, jargon);
  for (const std::string& wrong :
       {std::string("a="), std::string("="), std::string("{"), std::string("[1]"),
        std::string(R"({"name": "a"})"), std::string(R"({"name": 1, "path": "p"})"),
        std::string(R"({"name": "a", "path": "p", "rank": 8})"), "a b=" + cynic})
    EXPECT_THAT(read({"--lora-modules", wrong}).error().where(), HasSubstr("--lora-modules"))
        << wrong;
  EXPECT_THAT(read({"--lora-modules", "a=" + cynic, "a=" + jargon}).error().message(),
              HasSubstr("adapter 'a' twice (--lora-modules)"));
}

}  // namespace
}  // namespace motley::cli
