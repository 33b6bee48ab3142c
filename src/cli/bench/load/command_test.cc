#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(error({"--url", "ftp://a"}), HasSubstr("write http://HOST:PORT"));
  EXPECT_THAT(
      error({"--shape", "tiny", "--rate", "1", "--adapters", "2", "--adapters-in-memory", "3"}),
      HasSubstr("--adapters-in-memory"));
}

}  // namespace
}  // namespace motley::cli
