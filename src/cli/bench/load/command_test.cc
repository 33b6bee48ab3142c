#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "cli/run_motley.h"

namespace motley::cli {
namespace {

using testing::HasSubstr;

constexpr const char* model = MOTLEY_GOLDENS "/qwen3_moe";
constexpr const char* adapter = "a=" MOTLEY_GOLDENS "/qwen3_moe/adapters/attention";

Outcome bench(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  for (const char* word :
       {"--device", "cpu", "--compute", "f32", "--kv-memory", "32M", "--prompt-tokens", "4-12",
        "--output-tokens", "3-5", "--requests", "12", "--json"})
    words.emplace_back(word);
  return motley(words);
}

TEST(BenchLoad, AnEngineOfItsOwnServesAModelAndItsAdapters) {
  const Outcome outcome = bench({model, "--adapter", adapter, "--adapter-memory", "16M",
                                 "--concurrency", "1,4", "--rate", "1000"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<json::Value> cases = lines(outcome.output);
  ASSERT_EQ(cases.size(), 3U);
  for (const json::Value& each : cases) {
    EXPECT_EQ(number(each, "requests"), 12);
    EXPECT_EQ(number(each, "failed"), 0);
    EXPECT_EQ(number(each, "adapters"), 1);
    EXPECT_GT(number(each, "tokens_per_second"), 0);
  }
}

TEST(BenchLoad, MoreAdaptersThanThereIsMemoryForAreAllServed) {
  const Outcome outcome = bench({"--shape", "tiny", "--adapters", "5", "--adapters-in-memory",
                                 "5,2", "--ranks", "4,8", "--concurrency", "4"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::vector<json::Value> cases = lines(outcome.output);
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(number(cases[0], "adapters_in_memory"), 5);
  EXPECT_EQ(number(cases[0], "adapter_loads"), 0);
  EXPECT_EQ(number(cases[1], "adapters_in_memory"), 2);
  EXPECT_GT(number(cases[1], "adapter_loads"), 0);
  EXPECT_EQ(number(cases[1], "failed"), 0);
}

// With and without layers that keep states.
TEST(BenchLoad, LaterTurnsOfAConversationFindWhatCameBefore) {
  for (const char* const name : {"/qwen3_moe", "/qwen3_5_moe"}) {
    const Outcome outcome =
        motley({"bench", cat(MOTLEY_GOLDENS, name), "--device", "cpu", "--compute", "f32",
                "--kv-memory", "8M", "--turns", "3", "--prompt-tokens", "20", "--output-tokens",
                "10", "--new-tokens", "5", "--requests", "2", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const std::vector<json::Value> turns = lines(outcome.output);
    ASSERT_EQ(turns.size(), 3U);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(number(turns[i], "turn"), static_cast<double>(i + 1));
      EXPECT_EQ(number(turns[i], "conversations"), 2);
      EXPECT_EQ(number(turns[i], "prompt_tokens"), static_cast<double>(20 + 15 * i));
      // An answer's last token was drawn, and never computed.
      EXPECT_EQ(number(turns[i], "cached_tokens"),
                static_cast<double>(i == 0 ? 0 : (20 + 15 * i - 6) / 16 * 16))
          << name;
      EXPECT_GT(number(turns[i], "of_first_turn"), 0);
    }
  }
}

TEST(BenchLoad, TurnsOfARandomModelAreATable) {
  const Outcome outcome =
      motley({"bench", "--shape", "tiny", "--device", "cpu", "--compute", "f32", "--kv-memory",
              "8M", "--turns", "2", "--prompt-tokens", "64", "--requests", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("prompts of 64 tokens, answers of 32\n"));
  EXPECT_THAT(outcome.output, testing::ContainsRegex("\n   1      64       0 .* 1.000\n"
                                                     "   2     160      80 .*\n$"));
}

TEST(BenchLoad, RefusesByName) {
  const auto error = [](const std::vector<std::string>& words) {
    const Outcome outcome = bench(words);
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    return outcome.errors;
  };
  EXPECT_THAT(error({}), HasSubstr("give MODEL, --url, or --shape with one of qwen3-30b-a3b"));
  EXPECT_THAT(error({model, "--shape", "tiny"}), HasSubstr("more than one thing"));
  EXPECT_THAT(error({model, "--concurrency", "0"}), HasSubstr("--concurrency"));
  EXPECT_THAT(error({model, "--rate", "many"}), HasSubstr("--rate"));
  EXPECT_THAT(error({model, "--duration", "5"}), HasSubstr("--duration"));
  EXPECT_THAT(error({model, "--turns", "1"}), HasSubstr("--turns"));
  EXPECT_THAT(error({model, "--new-tokens", "5"}), HasSubstr("(--new-tokens): add --turns"));
  EXPECT_THAT(error({model, "--turns", "2", "--rate", "5"}),
              HasSubstr("(--turns): leave --rate out"));
  EXPECT_THAT(error({"--url", "ftp://a"}), HasSubstr("write http://HOST:PORT"));
  EXPECT_THAT(
      error({"--shape", "tiny", "--rate", "1", "--adapters", "2", "--adapters-in-memory", "3"}),
      HasSubstr("--adapters-in-memory"));
}

}  // namespace
}  // namespace motley::cli
