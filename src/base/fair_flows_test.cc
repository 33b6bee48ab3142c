#include "base/fair_flows.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley {
namespace {

struct Waiting {
  int works = 0;
  bool idle() const { return works == 0; }
};
using Flows = FairFlows<Waiting>;

// Begins `count` works of flows that always have more; how many each got.
std::map<std::string, int> begin(Flows& flows, const std::map<std::string, std::uint64_t>& costs,
                                 int count) {
  for (const auto& [name, cost] : costs) flows.of(name).works = count;
  std::map<std::string, int> got;
  for (int i = 0; i < count; ++i) {
    Flows::Flow& flow = *flows.first([](const Flows::Flow& each) { return each.works > 0; });
    for (const auto& [name, cost] : costs) {
      if (&flows.of(name) != &flow) continue;
      flows.begin(flows.charge(flow, cost));
      ++got[name];
    }
  }
  return got;
}

TEST(FairFlows, GetAsMuchAsTheOthers) {
  Flows flows;
  const auto got = begin(flows, {{"large", 300}, {"small", 100}, {"other", 100}}, 70);
  EXPECT_NEAR(got.at("large"), 10, 1);
  EXPECT_NEAR(got.at("small"), 30, 1);
  EXPECT_NEAR(got.at("other"), 30, 1);
}

TEST(FairFlows, GetMoreByTheirWeight) {
  Flows flows;
  flows.of("three").weight = 3;
  const auto got = begin(flows, {{"three", 1}, {"one", 1}}, 40);
  EXPECT_NEAR(got.at("three"), 30, 1);
  EXPECT_NEAR(got.at("one"), 10, 1);
}

TEST(FairFlows, SaveUpNothingWhileTheyHaveNoWork) {
  Flows flows;
  flows.of("idle");
  begin(flows, {{"busy", 10}}, 100);
  const auto got = begin(flows, {{"busy", 10}, {"idle", 10}}, 20);
  EXPECT_NEAR(got.at("busy"), 10, 1);
  EXPECT_NEAR(got.at("idle"), 10, 1);
}

TEST(FairFlows, GetBackWhatTheyDidNotUse) {
  Flows flows;
  Flows::Flow& flow = flows.of("flow");
  flow.weight = 7;
  const std::uint64_t next = flow.next;
  flows.begin(flows.charge(flow, 1000));
  EXPECT_GT(flow.next, next);
  flows.refund(flow, 1000);
  EXPECT_EQ(flow.next, next);
  flows.refund(flow, 1000);
  EXPECT_EQ(flow.next, 0);
}

TEST(FairFlows, AreForgottenOnceTheyAreIdleAndOwnNoTurn) {
  Flows flows;
  Flows::Flow& kept = flows.of("waits");
  kept.works = 1;
  for (int i = 0; i < 5000; ++i) {
    Flows::Flow& flow = flows.of(cat("flow ", i));
    flows.begin(flows.charge(flow, 1));
    flows.begin(flow.next);
  }
  EXPECT_LT(flows.size(), 1100);
  EXPECT_EQ(&flows.of("waits"), &kept);
  EXPECT_EQ(flows.find("flow 1"), nullptr);
}

}  // namespace
}  // namespace motley
