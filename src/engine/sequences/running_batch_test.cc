#include "engine/sequences/running_batch.h"

#include <string>

#include <gtest/gtest.h>

#include "engine/sequences/test_sequences.h"

namespace motley::engine::test {
namespace {

class RunningBatchTest : public testing::Test {
 protected:
  Job& add(const std::string& client, std::int64_t tokens = 4, std::uint32_t weight = 1) {
    auto made = sequences.running(
        {.tokens = prompt(tokens), .max_tokens = 8, .client = client, .client_weight = weight});
    Job& job = *made->sequence.job;
    batch.add(std::move(made));
    return job;
  }
  std::string order() {
    batch.order();
    EXPECT_FALSE(batch.is_out_of_order());
    std::string text;
    for (const auto& each : batch.all()) {
      const Job& job = *each->sequence.job;
      text += cat(text.empty() ? "" : " ", job.request.client, job.id);
    }
    return text;
  }

  Sequences sequences;
  RunningBatch batch{sequences.pages, {.sequences = 8, .longest = 20}};
};

TEST_F(RunningBatchTest, TheFirstOfEachClientStandsBeforeAnyonesSecond) {
  for (const char* client : {"a", "a", "a", "b", "c", "b"}) add(client);
  EXPECT_EQ(order(), "a1 b4 c5 a2 b6 a3");
  EXPECT_EQ(batch.running_of(*batch.last().sequence.job->client), 3);
}

TEST_F(RunningBatchTest, AClientOfTwiceTheWeightStandsAsTwo) {
  for (int i = 0; i < 2; ++i) add("a");
  for (int i = 0; i < 4; ++i) add("b", 4, 2);
  EXPECT_EQ(order(), "a1 b3 b4 a2 b5 b6");
}

TEST_F(RunningBatchTest, WhatLeavesMakesOthersMoveUp) {
  for (const char* client : {"a", "a", "b", "b"}) add(client);
  EXPECT_EQ(order(), "a1 b3 a2 b4");
  const Client& client = *batch.take(0)->sequence.job->client;
  EXPECT_EQ(order(), "a2 b3 b4");
  EXPECT_EQ(batch.running_of(client), 1);
  batch.remove_if([](const RunningSequence& each) { return each.sequence.job->id == 2; });
  EXPECT_EQ(order(), "b3 b4");
  EXPECT_EQ(batch.running_of(client), 0);
}

TEST_F(RunningBatchTest, ClientsShareTheRowsOfPrompts) {
  struct Client {
    std::int64_t wanted = 0;
    std::uint32_t weight = 1;
    std::int64_t share = 0;
  };
  struct Row {
    std::int64_t rows = 0;
    std::vector<Client> clients;
  };
  const std::vector<Row> rows = {
      {12, {{20, 1, 12}}},
      {12, {{20, 1, 6}, {20, 1, 6}}},
      {12, {{2, 1, 2}, {20, 1, 10}}},  // what one does not need goes to the other
      {12, {{20, 1, 3}, {20, 3, 9}}},
      {12, {{20, 1, 10}, {2, 3, 2}}},
      {7, {{20, 1, 4}, {20, 1, 3}}},
      {0, {{20, 1, 0}, {20, 1, 0}}},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    Sequences own;
    RunningBatch some(own.pages, {.sequences = 8, .longest = 20});
    for (std::size_t k = 0; k < rows[i].clients.size(); ++k) {
      const Client& client = rows[i].clients[k];
      some.add(own.running({.tokens = prompt(client.wanted),
                            .client = std::to_string(k),
                            .client_weight = client.weight}));
    }
    some.order();
    some.share_rows(rows[i].rows, [](const RunningSequence& each) { return each.remaining(); });
    for (std::size_t k = 0; k < rows[i].clients.size(); ++k)
      EXPECT_EQ(some[k].sequence.job->client->rows, rows[i].clients[k].share) << k;
  }
}

TEST_F(RunningBatchTest, GrowthIsWhatSequencesMayStillNeed) {
  add("a", 4);
  EXPECT_EQ(batch.growth(), 1);
  batch.learn(true);
  batch.learn(true);
  EXPECT_EQ(batch.growth(), 2) << "12 tokens are 3 pages of 4, and it has one";
  add("a", 16);
  EXPECT_EQ(batch.growth(), 3) << "no sequence is longer than 20 tokens";
}

TEST_F(RunningBatchTest, ADeniedRightOfWayIsDeniedUntilTheNextAdmission) {
  Client& client = *add("a").client;
  batch.start_admission();
  EXPECT_FALSE(batch.denies(client));
  client.denied = batch.admission();
  EXPECT_TRUE(batch.denies(client));
  batch.start_admission();
  EXPECT_FALSE(batch.denies(client));
}

}  // namespace
}  // namespace motley::engine::test
