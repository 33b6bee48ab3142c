#include "engine/requests/pauses.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Request of(std::vector<std::string> adapters) {
  Request request;
  for (std::string& name : adapters) request.adapters.push_back({std::move(name), 1});
  return request;
}

TEST(Pauses, OfAnAdapterConcernOnlyWhatNamesIt) {
  Pauses pauses;
  EXPECT_TRUE(pauses.empty());
  pauses.add({.mode = PauseMode::wait, .adapter = "a"}).value();
  EXPECT_EQ(pauses.of(of({"a"})), PauseMode::wait);
  EXPECT_EQ(pauses.of(of({"b"})), std::nullopt);
  EXPECT_EQ(pauses.of(of({})), std::nullopt);
  EXPECT_FALSE(pauses.check(of({"b", "a"})).ok());
  EXPECT_TRUE(pauses.check(of({"b"})).ok());
  EXPECT_FALSE(pauses.all());
  EXPECT_THAT(pauses.adapters(), ElementsAre("a"));
  pauses.end("b");
  pauses.end("");
  EXPECT_FALSE(pauses.empty());
  pauses.end("a");
  EXPECT_TRUE(pauses.empty());
}

// Else a pause that waits for the request's end would wait for another's end.
TEST(Pauses, OneThatEndsRequestsDecidesBeforeOneThatKeepsThem) {
  Pauses pauses;
  pauses.add({.mode = PauseMode::keep, .adapter = "a"}).value();
  pauses.add({.mode = PauseMode::wait, .adapter = "b"}).value();
  EXPECT_TRUE(pauses.keeps(of({"a"})));
  EXPECT_EQ(pauses.of(of({"a", "b"})), PauseMode::wait);
  pauses.add({.mode = PauseMode::wait}).value();
  EXPECT_FALSE(pauses.keeps(of({"a"})));
  pauses.end("");
  EXPECT_TRUE(pauses.keeps(of({"a"})));
}

TEST(Pauses, NewRequestsQueueOnlyWhereAllOfTheirPausesKeep) {
  Pauses pauses;
  pauses.add({.mode = PauseMode::keep}).value();
  EXPECT_TRUE(pauses.check(of({"a"})).ok());
  pauses.add({.mode = PauseMode::abort, .adapter = "a"}).value();
  EXPECT_TRUE(pauses.check(of({})).ok());
  const Result<void> refused = pauses.check(of({"a"}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::unavailable);
  EXPECT_NE(refused.error().message().find("'a' is paused"), std::string::npos);
}

TEST(Pauses, TheLastPauseOfANameCounts) {
  Pauses pauses;
  for (const PauseMode mode : {PauseMode::keep, PauseMode::abort, PauseMode::wait})
    pauses.add({.mode = mode}).value();
  EXPECT_EQ(pauses.of(of({})), PauseMode::wait);
  pauses.end_all();
  EXPECT_TRUE(pauses.empty());
}

TEST(Pauses, SoManyAdaptersAndNotMore) {
  Pauses pauses;
  for (std::size_t i = 0; i < Pauses::max_adapters; ++i)
    pauses.add({.adapter = std::to_string(i)}).value();
  EXPECT_FALSE(pauses.add({.adapter = "more"}).ok());
  EXPECT_TRUE(pauses.add({.mode = PauseMode::keep, .adapter = "7"}).ok());
  EXPECT_TRUE(pauses.add({}).ok());
  pauses.end_all();
  EXPECT_THAT(pauses.adapters(), IsEmpty());
}

}  // namespace
}  // namespace motley::engine
