#include "engine/sequences/request_counts.h"

#include <gtest/gtest.h>

#include "engine/sequences/test_sequences.h"

namespace motley::engine::test {
namespace {

class RequestCountsTest : public testing::Test {
 protected:
  RequestCountsTest() {
    for (const char* name : {"a", "b"}) {
      sequences.store.put(name, 1, static_cast<std::uint32_t>(name[0]));
      sequences.residency.load({.name = name, .path = name}, false, [](const Result<void>&) {});
    }
    sequences.residency.collect();
  }
  AdapterEntry& entry(const char* name) { return *sequences.residency.find(name); }
  const AdapterTraffic& traffic_of(const char* name) {
    return sequences.residency.traffic_of(entry(name));
  }
  std::shared_ptr<Job> job(std::vector<lora::ScaledAdapter> adapters, bool internal = false) {
    auto made =
        sequences.job({.tokens = prompt(4), .adapters = std::move(adapters), .internal = internal});
    for (AdapterEntry* const each : made->adapters.entries())
      sequences.residency.count_apart(*each);
    return made;
  }

  Sequences sequences;
  RequestCounts counts{&sequences.residency, 1};
};

TEST_F(RequestCountsTest, ARequestCountsForEachOfItsAdapters) {
  counts.count_choice(*job({{"a", 1}, {"b", 2}}), FinishReason::stop);
  counts.count_choice(*job({{"a", 1}}), FinishReason::length);
  counts.count_failed(*job({}));
  EXPECT_EQ(counts.all().finished_stop, 1U);
  EXPECT_EQ(counts.all().finished_length, 1U);
  EXPECT_EQ(counts.all().failed, 1U);
  EXPECT_EQ(traffic_of("a").finished_stop, 1U);
  EXPECT_EQ(traffic_of("a").finished_length, 1U);
  EXPECT_EQ(traffic_of("b").finished_stop, 1U);
  EXPECT_EQ(traffic_of("b").finished_length, 0U);
  EXPECT_EQ(counts.all().base_traffic.failed, 1U);
}

TEST_F(RequestCountsTest, InternalRequestsAppearNowhere) {
  const auto internal = job({{"a", 1}}, true);
  counts.count_choice(*internal, FinishReason::stop);
  counts.count_failed(*internal);
  counts.count_begun(*internal);
  counts.count_token(*internal, {}, TimePoint{});
  counts.count_overflow(*internal, TimePoint{});
  EXPECT_EQ(counts.all().finished_stop + counts.all().failed, 0U);
  EXPECT_EQ(counts.all().begun_tokens + counts.all().generated_tokens, 0U);
  EXPECT_EQ(entry("a").non_finite_logits, 0U);
}

TEST_F(RequestCountsTest, TheTimeBetweenTokensBeginsWithTheSecond) {
  const auto asked = job({});
  const TimePoint start = TimePoint{} + std::chrono::seconds(10);
  asked->accepted = start;
  Sequence sequence{.job = asked};
  counts.count_token(*asked, sequence, start + std::chrono::seconds(2));
  asked->completion_tokens = sequence.generated = 1;
  sequence.last_token = start + std::chrono::seconds(2);
  counts.count_token(*asked, sequence, start + std::chrono::seconds(5));
  EXPECT_EQ(counts.all().generated_tokens, 2U);
  EXPECT_EQ(counts.all().time_to_first_token.sum, 2);
  EXPECT_EQ(counts.all().time_per_token.sum, 3);
  EXPECT_EQ(counts.all().time_per_token.count, 1U);
}

TEST_F(RequestCountsTest, AnOverflowIsReportedOnceAMinuteForEachAdapter) {
  const TimePoint start = TimePoint{} + std::chrono::hours(1);
  const auto with_a = job({{"a", 1}});
  const auto with_both = job({{"a", 1}, {"b", 1}});
  const auto of_base = job({});
  struct Row {
    const Job& job;
    std::chrono::seconds after;
    bool reported = false;
  };
  const std::vector<Row> rows = {
      {*with_a, std::chrono::seconds(0), true},     {*with_a, std::chrono::seconds(59), false},
      {*with_both, std::chrono::seconds(59), true},  // b's first
      {*of_base, std::chrono::seconds(59), true},   {*with_a, std::chrono::seconds(60), true},
  };
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(counts.count_overflow(rows[i].job, start + rows[i].after), rows[i].reported) << i;
  EXPECT_EQ(entry("a").non_finite_logits, 4U);
  EXPECT_EQ(entry("b").non_finite_logits, 1U);
  EXPECT_EQ(counts.all().non_finite_logits, 1U);
}

}  // namespace
}  // namespace motley::engine::test
