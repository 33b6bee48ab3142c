#include "engine/replicas/placement.h"

#include <numeric>
#include <random>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::engine {
namespace {

using testing::ElementsAre;
using Statuses = std::vector<ReplicaStatus>;

Request request_of(std::size_t tokens, std::vector<std::string> adapters = {}, int seed = 0) {
  Request request;
  request.tokens.resize(tokens);
  std::iota(request.tokens.begin(), request.tokens.end(), 1000 * seed);
  for (std::string& name : adapters) request.adapters.push_back({std::move(name), 1});
  return request;
}

class PlacementTest : public testing::Test {
 protected:
  // The statuses with no adapter of the request ready anywhere.
  static Statuses none_ready(Statuses statuses, const Request& request) {
    for (ReplicaStatus& each : statuses) each.ready_adapters.resize(request.adapters.size());
    return statuses;
  }
  std::size_t choose(const Request& request, const Statuses& statuses) const {
    return placement_.order(placement_.keys_of(request), none_ready(statuses, request)).front();
  }
  void place(const Request& request, std::size_t replica) {
    placement_.place(placement_.keys_of(request), replica);
  }

  Placement placement_{{.replicas = 3}};
  Statuses idle_ = Statuses(3);
};

TEST_F(PlacementTest, TheLeastLoadedComesFirst) {
  const Request request = request_of(8);
  const Statuses statuses = {{.sequences = 5}, {.sequences = 0}, {.sequences = 3}};
  EXPECT_THAT(placement_.order(placement_.keys_of(request), statuses), ElementsAre(1, 2, 0));
}

TEST_F(PlacementTest, EqualOnesTakeTurns) {
  const Request request = request_of(8);
  std::vector<std::size_t> chosen;
  for (int i = 0; i < 6; ++i) {
    chosen.push_back(choose(request, idle_));
    place(request, chosen.back());
  }
  EXPECT_THAT(chosen, ElementsAre(0, 1, 2, 0, 1, 2));
}

// A beginning that all requests share does not leave the other replicas idle.
TEST_F(PlacementTest, ALongBeginningCountsForSoManySequencesOnly) {
  const Request request = request_of(8192);
  place(request, 1);
  const auto choice = [&](std::int64_t sequences) {
    return choose(request, {{.sequences = 0}, {.sequences = sequences}, {.sequences = 0}});
  };
  EXPECT_EQ(choice(7), 1);
  EXPECT_NE(choice(9), 1);
}

TEST_F(PlacementTest, LeavesOutThoseThatHaveStopped) {
  const Statuses statuses = {{.sequences = 1}, {.serves = false}, {.sequences = 2}};
  const Request request = request_of(8);
  EXPECT_THAT(placement_.order(placement_.keys_of(request), statuses), ElementsAre(0, 2));
  EXPECT_TRUE(
      placement_.order(placement_.keys_of(request), Statuses(3, {.serves = false})).empty());
}

TEST_F(PlacementTest, GoesWhereItsAdapterIsReadyUnlessThatHasMuchMoreToDo) {
  const Request request = request_of(8, {"law"});
  const auto choice = [&](std::int64_t sequences) {
    Statuses statuses = none_ready(idle_, request);
    statuses[2].ready_adapters[0] = true;
    statuses[2].sequences = sequences;
    return placement_.order(placement_.keys_of(request), statuses).front();
  };
  EXPECT_EQ(choice(0), 2);
  EXPECT_EQ(choice(31), 2);
  EXPECT_EQ(choice(33), 0);
}

TEST_F(PlacementTest, RemembersWhereAnAdapterWasUsed) {
  place(request_of(8, {"law"}), 1);
  const Statuses statuses = {{.sequences = 0}, {.sequences = 9}, {.sequences = 0}};
  EXPECT_EQ(choose(request_of(8, {"law"}, 1), statuses), 1);
  EXPECT_NE(choose(request_of(8, {"medicine"}, 1), statuses), 1);
}

TEST_F(PlacementTest, GoesWhereTheBeginningOfItsPromptIs) {
  place(request_of(64 + 1), 2);
  Request longer = request_of(200);
  EXPECT_EQ(choose(longer, idle_), 2);
  // 64 tokens are worth two sequences.
  EXPECT_EQ(choose(longer, {{.sequences = 0}, {.sequences = 0}, {.sequences = 1}}), 2);
  EXPECT_NE(choose(longer, {{.sequences = 0}, {.sequences = 0}, {.sequences = 3}}), 2);
  // Another beginning, and the same with another salt or another adapter, are not there.
  longer.tokens[0] = 77;
  EXPECT_NE(choose(longer, idle_), 2);
  Request salted = request_of(200);
  salted.cache_salt = "mine";
  EXPECT_NE(choose(salted, idle_), 2);
  EXPECT_NE(choose(request_of(200, {"law"}), idle_), 2);
}

TEST_F(PlacementTest, CountsOnlyBlocksBehindWhichNothingIsMissing) {
  place(request_of(32 + 1), 0);
  place(request_of(128 + 1), 1);
  EXPECT_EQ(choose(request_of(200), idle_), 1);
  EXPECT_EQ(choose(request_of(200), {{.sequences = 0}, {.sequences = 4}, {.sequences = 9}}), 0);
}

// Of a model that keeps states the prompt is there as far as its state was saved.
TEST_F(PlacementTest, CountsBlocksUpToASavedState) {
  placement_ = Placement({.replicas = 3, .keeps_states = true});
  Request request = request_of(200);
  place(request, 1);
  const auto is_there = [&](const Request& next) {
    return choose(next, {{.sequences = 0}, {.sequences = 3}, {.sequences = 0}}) == 1;
  };
  EXPECT_TRUE(is_there(request_of(200)));
  EXPECT_TRUE(is_there(request_of(900)));
  EXPECT_FALSE(is_there(request_of(190))) << "its pages are there, and no state at 176";
  request.conversation_tokens = 150;
  place(request, 1);
  EXPECT_TRUE(is_there(request_of(190)));
  EXPECT_FALSE(is_there(request_of(140)));
}

TEST_F(PlacementTest, TheSameCallsGiveTheSameChoices) {
  const auto choices = [] {
    Placement placement({.replicas = 8});
    std::mt19937 random(7);
    std::vector<std::size_t> chosen;
    for (int i = 0; i < 2000; ++i) {
      const Request request =
          request_of(random() % 100, {cat("a", random() % 20)}, static_cast<int>(random() % 10));
      Statuses statuses(8);
      for (ReplicaStatus& each : statuses)
        each = {.serves = random() % 20 != 0,
                .sequences = static_cast<std::int64_t>(random() % 40),
                .ready_adapters = {random() % 4 == 0}};
      const Placement::Keys keys = placement.keys_of(request);
      const auto order = placement.order(keys, statuses);
      if (order.empty()) continue;
      chosen.push_back(order.front());
      placement.place(keys, order.front());
    }
    return chosen;
  };
  const auto first = choices();
  EXPECT_EQ(first, choices());
  for (std::size_t replica = 0; replica < 8; ++replica)
    EXPECT_GT(std::ranges::count(first, replica), 100);
}

TEST(Placement, ForgetsWhatWasLongAgo) {
  Placement placement({.replicas = 2, .remembered = 8});
  const Request request = request_of(65);
  const auto chosen = [&] {
    const Statuses statuses = {{.sequences = 0}, {.sequences = 1}};
    return placement.order(placement.keys_of(request), statuses).front();
  };
  placement.place(placement.keys_of(request), 1);
  EXPECT_EQ(chosen(), 1);
  for (int i = 1; i < 20; ++i)
    placement.place(placement.keys_of(request_of(33, {}, i)), static_cast<std::size_t>(i % 2));
  EXPECT_EQ(chosen(), 0);
}

}  // namespace
}  // namespace motley::engine
