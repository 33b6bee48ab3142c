#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json/json.h"
#include "cli/bench/load/plan.h"
#include "cli/bench/load/report.h"
#include "cli/bench/load/run.h"

namespace motley::cli {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(LoadPlan, RequestsDependOnTheirNumberOnly) {
  const LoadShape shape{.prompt = {.least = 3, .most = 9}, .output = {.least = 2, .most = 4}};
  LoadPlan first(shape, 5, 100);
  LoadPlan second(shape, 5, 100);
  for (int i = 0; i < 200; ++i) {
    const PlannedRequest a = first.next();
    // Arrivals come from a separate random sequence.
    second.gap(10);
    const PlannedRequest b = second.next();
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.adapter, b.adapter);
    EXPECT_TRUE(a.tokens.size() >= 3 && a.tokens.size() <= 9);
    EXPECT_TRUE(a.max_tokens >= 2 && a.max_tokens <= 4);
    for (const std::int32_t token : a.tokens) EXPECT_TRUE(token >= 0 && token < 100);
  }
  LoadPlan base({}, 0, 100);
  EXPECT_FALSE(base.next().adapter);
}

TEST(LoadPlan, AdaptersAreDrawnByZipfsLaw) {
  LoadPlan plan({.prompt = {}, .zipf = 1}, 4, 10);
  constexpr int draws = 20000;
  std::map<std::size_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[*plan.next().adapter];
  // 1, 1/2, 1/3, 1/4 over their sum of 25/12; a share's deviation is at most 0.0036.
  for (std::size_t i = 0; i < 4; ++i) {
    const double share = 12.0 / 25 / static_cast<double>(i + 1);
    EXPECT_NEAR(counts[i] / static_cast<double>(draws), share, 0.015) << i;
  }
}

TEST(LoadPlan, ArrivalsComeAtTheirRate) {
  LoadPlan plan({}, 0, 10);
  double sum = 0;
  constexpr int gaps = 20000;
  for (int i = 0; i < gaps; ++i) sum += seconds(plan.gap(50));
  // The mean's deviation is 0.02 / sqrt(20000).
  EXPECT_NEAR(sum / gaps, 0.02, 0.0006);
}

// Answers at once with the requested number of tokens, or with an error.
class Instant final : public LoadTarget {
 public:
  std::size_t adapters() const override { return 2; }
  std::int64_t vocabulary() const override { return 10; }
  void send(PlannedRequest request, FlightObserver& observer) override {
    if (++sent_ == 3) return observer.ended(Error(ErrorCode::busy, "the queue is full"));
    for (std::int64_t i = 0; i < request.max_tokens; ++i) observer.token();
    observer.ended({});
  }

 private:
  int sent_ = 0;
};

TEST(RunLoad, SendsSoManyRequests) {
  for (const auto arrivals : {LoadSize::Arrivals::closed, LoadSize::Arrivals::poisson}) {
    Instant target;
    const SteadyClock clock;
    const LoadResult result = run_load(target, {.output = {.least = 2, .most = 2}},
                                       {.arrivals = arrivals, .level = 1e5, .requests = 10}, clock);
    ASSERT_EQ(result.flights.size(), 10U);
    const LoadSummary summary = summarize(result);
    EXPECT_EQ(summary.failed, 1);
    EXPECT_THAT(summary.first_error, HasSubstr("the queue is full"));
    EXPECT_NEAR(summary.tokens_a_second * result.seconds, 18, 1e-6);
  }
}

// Advances by a millisecond with each call.
class Ticking final : public Clock {
 public:
  TimePoint now() const override { return now_ += milliseconds(1); }

 private:
  mutable TimePoint now_;
};

TEST(RunLoad, EndsWithTheDuration) {
  Instant target;
  const Ticking clock;
  const LoadResult result = run_load(
      target, {.output = {}}, {.level = 4, .requests = 0, .duration = milliseconds(20)}, clock);
  // A request reads the clock when it begins and when its token arrives; every third one only at
  // its begin.
  EXPECT_EQ(result.flights.size(), 10U);
  EXPECT_LT(result.flights.back().due - result.flights.front().due, milliseconds(20));
}

TEST(LoadReport, PercentilesAreNumbersThatOccurred) {
  std::vector<double> numbers;
  for (int i = 100; i >= 1; --i) numbers.push_back(i);
  const Percentiles of = percentiles(numbers);
  EXPECT_EQ(of.p50, 50);
  EXPECT_EQ(of.p90, 90);
  EXPECT_EQ(of.p99, 99);
  EXPECT_EQ(of.most, 100);
  EXPECT_EQ(of.mean, 50.5);
  EXPECT_EQ(percentiles({7}).p50, 7);
  EXPECT_EQ(percentiles({}).p99, 0);
}

TEST(LoadReport, ShowsWhichAdapterStarves) {
  LoadResult result{.flights = {}, .seconds = 2};
  const auto add = [&](std::size_t adapter, int wait) {
    Flight& flight = result.flights.emplace_back();
    flight.first = flight.due + milliseconds(wait);
    flight.last = flight.first + milliseconds(30);
    flight.tokens = 4;
    flight.gaps = {0.01F, 0.01F, 0.01F};
    flight.adapter = adapter;
  };
  for (int i = 0; i < 9; ++i) add(0, 10);
  add(1, 500);
  const LoadSummary summary = summarize(result);
  EXPECT_EQ(summary.first_token.p50, 0.01);
  EXPECT_EQ(summary.first_token.most, 0.5);
  EXPECT_EQ(summary.slowest_adapter_first_token, 0.5);
  EXPECT_EQ(summary.tokens_a_second, 20);
  EXPECT_EQ(summary.requests_a_second, 5);

  const LoadCase about{.shape = {}, .size = {.level = 8}, .adapters = 2, .in_memory = 1};
  EXPECT_THAT(load_table_row(about, summary), HasSubstr("8 at once         2 in 1"));
  const auto line = json::parse(load_json(about, summary), "a case");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->if_object()->find("adapters_in_memory")->as_integer("").value(), 1);
}

TEST(LoadReport, CountsWhatCameWhileRequestsStillBegan) {
  LoadResult result{.flights = {}, .seconds = 1.2};
  for (const int begin : {0, 0, 1000}) {
    Flight& flight = result.flights.emplace_back();
    flight.due = TimePoint() + milliseconds(begin);
    flight.first = flight.due + milliseconds(100);
    flight.gaps = {0.5F, 0.5F};
    flight.tokens = 3;
  }
  EXPECT_EQ(summarize(result).full_tokens_a_second, 4);
}

}  // namespace
}  // namespace motley::cli
