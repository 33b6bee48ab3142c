#include "engine/requests/event_queue.h"

#include <gtest/gtest.h>

namespace motley::engine {
namespace {

// The ids of the tokens that wait.
std::vector<std::int32_t> taken_ids(EventQueue& queue) {
  std::vector<std::int32_t> ids;
  for (const EventQueue::Entry& each : queue.take().value())
    ids.push_back(std::get<TokenEvent>(each.event).id);
  return ids;
}

TEST(EventQueue, KeepsTheOrderOfAllItsRequests) {
  const auto queue = std::make_shared<EventQueue>([] { return true; });
  const auto first = queue->sink_for(0);
  const auto second = queue->sink_for(1);
  first->take(TokenEvent{.id = 7});
  second->take(TokenEvent{.id = 8});
  first->take(Usage{.completion_tokens = 1});
  const auto taken = queue->take().value();
  ASSERT_EQ(taken.size(), 3U);
  EXPECT_EQ(taken[1].request, 1U);
  EXPECT_EQ(std::get<TokenEvent>(taken[1].event).id, 8);
  EXPECT_EQ(taken[2].request, 0U);
  EXPECT_TRUE(is_last(taken[2].event));
  EXPECT_TRUE(queue->take().value().empty());
}

TEST(EventQueue, WakesItsReaderOnceForAllThatWaits) {
  int woken = 0;
  const auto queue = std::make_shared<EventQueue>([&] { return ++woken > 0; });
  const auto sink = queue->sink_for(0);
  for (int i = 0; i < 3; ++i) sink->take(TokenEvent{.id = i});
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(taken_ids(*queue), (std::vector<std::int32_t>{0, 1, 2}));
  sink->take(TokenEvent{.id = 3});
  EXPECT_EQ(woken, 2);
}

TEST(EventQueue, WakesAgainAReaderThatCouldNotBeWoken) {
  int tries = 0;
  const auto queue = std::make_shared<EventQueue>([&] { return ++tries > 1; });
  const auto sink = queue->sink_for(0);
  for (int i = 0; i < 3; ++i) sink->take(TokenEvent{.id = i});
  EXPECT_EQ(tries, 2);
}

TEST(EventQueue, DropsAllIfMoreWaitsThanItHolds) {
  const auto queue =
      std::make_shared<EventQueue>([] { return true; }, 3 * sizeof(EventQueue::Entry));
  const auto sink = queue->sink_for(0);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) sink->take(TokenEvent{.id = i});
    EXPECT_EQ(taken_ids(*queue).size(), 3U);
  }
  for (int i = 0; i < 4; ++i) sink->take(TokenEvent{.id = i});
  EXPECT_TRUE(queue->overflowed());
  EXPECT_EQ(queue->take().error().code(), ErrorCode::busy);
  sink->take(TokenEvent{});
  EXPECT_EQ(queue->take().error().code(), ErrorCode::busy) << "the answer has a gap";
}

TEST(EventQueue, CountsAPromptsScoresWithTheirLists) {
  const auto queue =
      std::make_shared<EventQueue>([] { return true; }, 2 * sizeof(EventQueue::Entry));
  queue->sink_for(0)->take(PromptEvent{.first = 1, .logprobs = std::vector<float>(1000)});
  EXPECT_TRUE(queue->overflowed());
}

}  // namespace
}  // namespace motley::engine
