#include "engine/sequences/jobs.h"

#include <gtest/gtest.h>

#include "engine/sequences/test_sequences.h"

namespace motley::engine::test {
namespace {

TEST(Jobs, AClientPaysForWhatItsRequestUsed) {
  struct Row {
    std::int64_t completion_tokens = 0;
    std::uint64_t next = 0;  // the turn after it, in tokens
  };
  // A prompt of 10, and twice 5 tokens at most.
  for (const Row& row : {Row{0, 10}, Row{4, 14}, Row{10, 20}}) {
    SCOPED_TRACE(row.completion_tokens);
    Sequences sequences;
    const auto job = sequences.job({.tokens = prompt(10), .max_tokens = 5, .choices = 2});
    EXPECT_EQ(job->cost, 20U);
    sequences.jobs.start(*job);
    job->started = true;
    job->completion_tokens = row.completion_tokens;
    const Client& client = *job->client;
    EXPECT_TRUE(sequences.jobs.remove(*job));
    EXPECT_EQ(client.next, Clients::after(client, 0, row.next));
    EXPECT_TRUE(client.idle());
  }
}

TEST(Jobs, WhatNeverBeganCostsNothing) {
  Sequences sequences;
  const auto job = sequences.job({.tokens = prompt(10), .max_tokens = 5});
  const Client& client = *job->client;
  EXPECT_TRUE(sequences.jobs.remove(*job));
  EXPECT_FALSE(sequences.jobs.remove(*job));
  EXPECT_EQ(client.next, 0U);
}

TEST(Jobs, RequestsOfOneClientTakeTurnsByTheirAdapters) {
  Sequences sequences;
  for (const char* name : {"a", "b"}) {
    sequences.store.put(name, 1, static_cast<std::uint32_t>(name[0]));
    sequences.residency.load({.name = name, .path = name}, false, [](const Result<void>&) {});
  }
  sequences.residency.collect();
  const auto tag_of = [&](const char* adapter) {
    return sequences.job({.tokens = prompt(4), .adapters = {{adapter, 1}}})->tag;
  };
  const std::uint64_t first = tag_of("a");
  const std::uint64_t second = tag_of("a");
  EXPECT_LT(first, second);
  EXPECT_EQ(tag_of("b"), first);
}

TEST(Jobs, TheFirstErrorOfAJobStays) {
  Sequences sequences;
  const auto job = sequences.job({.tokens = prompt(4)});
  EXPECT_FALSE(sequences.jobs.take_marked());
  sequences.jobs.mark(*job, {ErrorCode::internal, "first"});
  sequences.jobs.mark(*job, {ErrorCode::internal, "second"});
  EXPECT_EQ(job->failure->what(), "first");
  EXPECT_TRUE(sequences.jobs.take_marked());
  EXPECT_FALSE(sequences.jobs.take_marked());
}

TEST(Jobs, AVisitMayRemoveItsJob) {
  Sequences sequences;
  for (int i = 0; i < 3; ++i) sequences.job({.tokens = prompt(4)});
  std::vector<RequestId> seen;
  sequences.jobs.each([&](const std::shared_ptr<Job>& job) {
    seen.push_back(job->id);
    if (job->id != 2) sequences.jobs.remove(*job);
  });
  EXPECT_EQ(seen, (std::vector<RequestId>{1, 2, 3}));
  EXPECT_EQ(sequences.jobs.size(), 1U);
  EXPECT_EQ(sequences.jobs.find(1), nullptr);
  EXPECT_NE(sequences.jobs.find(2), nullptr);
}

}  // namespace
}  // namespace motley::engine::test
