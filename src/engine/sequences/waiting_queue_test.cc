#include "engine/sequences/waiting_queue.h"

#include <string>

#include <gtest/gtest.h>

#include "engine/sequences/test_sequences.h"

namespace motley::engine::test {
namespace {

class WaitingQueueTest : public testing::Test {
 protected:
  // A request of ten tokens.
  std::shared_ptr<Job> add(const std::string& client, int priority = 0, std::uint32_t weight = 1) {
    WaitingSequence made = sequences.waiting({.tokens = prompt(4),
                                              .max_tokens = 6,
                                              .priority = priority,
                                              .client = client,
                                              .client_weight = weight});
    std::shared_ptr<Job> job = made.sequence.job;
    queue.add(make_waiting_place(), std::move(made));
    return job;
  }
  // "a1 b3": clients with their requests, in the order in which they begin.
  std::string order() {
    queue.order(sequences.jobs.clients());
    std::string text;
    for (const WaitingQueue::QueueEntry& entry : queue.in_order()) {
      const Job& job = *entry.sequence().sequence.job;
      text += cat(text.empty() ? "" : " ", job.request.client, job.id);
    }
    return text;
  }
  // The first in order begins.
  WaitingSequence begin_first() {
    queue.order(sequences.jobs.clients());
    WaitingQueue::Place place = queue.take(queue.in_order().front());
    queue.forget_order();
    WaitingSequence begun = std::move(place.mapped());
    Job& job = *begun.sequence.job;
    if (!job.started) sequences.jobs.start(job);
    job.started = true;
    return begun;
  }

  Sequences sequences;
  WaitingQueue queue{{.adapter_patience = std::chrono::seconds(1), .sequences = 2}};
};

TEST_F(WaitingQueueTest, ClientsTakeTurns) {
  for (const char* client : {"a", "a", "a", "b", "c", "b"}) add(client);
  EXPECT_EQ(order(), "a1 b4 c5 a2 b6 a3");
}

TEST_F(WaitingQueueTest, AClientOfTwiceTheWeightHasTwoTurns) {
  for (int i = 0; i < 2; ++i) add("a");
  for (int i = 0; i < 4; ++i) add("b", 0, 2);
  EXPECT_EQ(order(), "a1 b3 b4 a2 b5 b6");
}

TEST_F(WaitingQueueTest, APriorityMovesARequestBeforeOthersOfItsClientOnly) {
  for (const char* client : {"a", "a", "b"}) add(client);
  add("b", 1);
  EXPECT_EQ(order(), "a1 b4 a2 b3");
}

TEST_F(WaitingQueueTest, WhatBegunHasUsedItsClientsTurn) {
  for (const char* client : {"a", "a", "b"}) add(client);
  begin_first();
  EXPECT_EQ(order(), "b3 a2");
}

TEST_F(WaitingQueueTest, APreemptedSequenceKeepsItsTurn) {
  for (const char* client : {"a", "a", "b"}) add(client);
  WaitingSequence preempted = begin_first();
  begin_first();
  queue.add(make_waiting_place(), std::move(preempted));
  EXPECT_EQ(order(), "a1 a2");
}

TEST_F(WaitingQueueTest, CountsByClientAreOfTheLastOrder) {
  using Counts = std::unordered_map<std::string, std::int64_t>;
  add("a");
  add("a");
  const std::shared_ptr<Job> left = add("b");
  EXPECT_EQ(queue.by_client(), Counts{});
  EXPECT_EQ(order(), "a1 b3 a2");
  EXPECT_EQ(queue.by_client(), (Counts{{"a", 2}, {"b", 1}}));
  const std::uint64_t changes = queue.changes();
  EXPECT_EQ(order(), "a1 b3 a2");
  EXPECT_EQ(queue.changes(), changes) << "nothing has changed";
  queue.remove_if([&](const WaitingSequence& each) { return each.sequence.job == left; });
  EXPECT_EQ(order(), "a1 a2");
  EXPECT_EQ(queue.by_client(), (Counts{{"a", 2}}));
  EXPECT_GT(queue.changes(), changes);
}

TEST_F(WaitingQueueTest, SequencesOfTheBaseHaveTheirClaimAtOnce) {
  add("a");
  EXPECT_EQ(queue.without_adapters(), 1);
  queue.give_adapters(sequences.residency, TimePoint{});
  EXPECT_EQ(queue.without_adapters(), 0);
}

TEST_F(WaitingQueueTest, AdaptersThatFitAreClaimedForAllThatWantThem) {
  sequences.store.put("wide", 8, 1);  // all pages there are
  sequences.store.put("small", 1, 2);
  for (const char* name : {"wide", "small"}) {
    sequences.residency.load({.name = name, .path = name}, false,
                             [](const Result<void>& loaded) { EXPECT_TRUE(loaded.ok()); });
  }
  sequences.residency.collect();
  const auto wants = [&](const char* adapter) {
    queue.add(make_waiting_place(),
              sequences.waiting({.tokens = prompt(4), .adapters = {{adapter, 1}}}));
  };
  wants("wide");
  wants("small");
  wants("wide");
  queue.order(sequences.jobs.clients());
  queue.give_adapters(sequences.residency, TimePoint{});
  std::string claimed;
  for (const auto& [order, waiting] : queue.all()) claimed += waiting.claim ? 'y' : 'n';
  EXPECT_EQ(claimed, "yny");
}

}  // namespace
}  // namespace motley::engine::test
