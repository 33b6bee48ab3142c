#include "engine/inbox.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace motley::engine {
namespace {

Messages submission(RequestId id) {
  Messages message(1);
  message.front().emplace<SubmitMessage>(SubmitMessage{.arrival = {.id = id}});
  return message;
}

// "s1 c1 c2": submissions and cancels, with their requests.
std::string take(Inbox& inbox) {
  std::string taken;
  for (const Message& message : inbox.take()) {
    if (!taken.empty()) taken += ' ';
    if (const auto* const submit = std::get_if<SubmitMessage>(&message))
      taken += 's' + std::to_string(submit->arrival.id);
    if (const auto* const cancel = std::get_if<CancelMessage>(&message))
      taken += 'c' + std::to_string(cancel->request);
  }
  return taken;
}

RequestId enter(Inbox& inbox) {
  Inbox::Place place;
  return inbox.enter(place);
}

SamplerFactory::Abandon cancel(Inbox& inbox, RequestId id, std::optional<int> choice = {}) {
  Messages none;
  return inbox.cancel({.request = id, .choice = choice}, none);
}

bool submit(Inbox& inbox, RequestId id) {
  Messages message = submission(id);
  return inbox.submit(id, message);
}

TEST(Inbox, CancelsOfARequestInPreparationFollowIt) {
  Inbox inbox;
  const RequestId first = enter(inbox);
  const RequestId second = enter(inbox);
  EXPECT_EQ(std::pair(first, second), std::pair(RequestId{1}, RequestId{2}));
  std::ignore = cancel(inbox, first);
  EXPECT_FALSE(inbox.has_news());
  EXPECT_TRUE(submit(inbox, second));
  EXPECT_TRUE(submit(inbox, first));
  std::ignore = cancel(inbox, second);
  EXPECT_TRUE(inbox.has_news());
  EXPECT_EQ(take(inbox), "s2 s1 c1 c2");
  EXPECT_FALSE(inbox.has_news());
}

TEST(Inbox, ACancelOfTheWholeRequestAbandonsItsPreparationOnce) {
  Inbox inbox;
  const RequestId id = enter(inbox);
  int abandoned = 0;
  SamplerFactory::Abandon abandon = [&] { ++abandoned; };
  EXPECT_FALSE(inbox.attach(id, abandon));
  EXPECT_EQ(cancel(inbox, id, 0), nullptr);  // other choices need the sampler
  const SamplerFactory::Abandon now = cancel(inbox, id);
  ASSERT_NE(now, nullptr);
  now();
  EXPECT_EQ(cancel(inbox, id), nullptr);
  EXPECT_EQ(abandoned, 1);
  EXPECT_TRUE(submit(inbox, id));
  EXPECT_EQ(take(inbox), "s1 c1 c1 c1");
}

TEST(Inbox, AWithdrawnRequestLeavesNothing) {
  Inbox inbox;
  const RequestId id = enter(inbox);
  EXPECT_TRUE(inbox.withdraw(id));
  EXPECT_FALSE(inbox.withdraw(id));
  EXPECT_FALSE(submit(inbox, id));
  inbox.stop(false);
  EXPECT_TRUE(inbox.finished());
}

TEST(Inbox, IsFinishedOnceWhatWasAcceptedHasBeenTaken) {
  Inbox inbox;
  EXPECT_TRUE(inbox.takes_requests().ok());
  EXPECT_FALSE(inbox.finished());
  const RequestId id = enter(inbox);
  inbox.stop(false);
  EXPECT_FALSE(inbox.cancels_all());
  EXPECT_EQ(inbox.takes_requests().error().code(), ErrorCode::unavailable);
  EXPECT_TRUE(inbox.takes_messages().ok());
  EXPECT_FALSE(inbox.finished());
  EXPECT_TRUE(submit(inbox, id));
  EXPECT_FALSE(inbox.finished());
  EXPECT_EQ(take(inbox), "s1");
  EXPECT_TRUE(inbox.finished());
  inbox.close();
  EXPECT_EQ(inbox.takes_messages().error().code(), ErrorCode::unavailable);
}

TEST(Inbox, StoppingWithCancelsAbandonsEveryPreparation) {
  Inbox inbox;
  int abandoned = 0;
  SamplerFactory::Abandon first = [&] { ++abandoned; };
  SamplerFactory::Abandon second = first;
  EXPECT_FALSE(inbox.attach(enter(inbox), first));
  const RequestId late = enter(inbox);
  inbox.stop(true);
  while (const SamplerFactory::Abandon next = inbox.next_abandon()) next();
  EXPECT_EQ(abandoned, 1);
  EXPECT_TRUE(inbox.attach(late, second)) << "the caller abandons it";
  EXPECT_NE(second, nullptr);
  inbox.stop(false);
  EXPECT_TRUE(inbox.cancels_all()) << "a later call takes nothing back";
}

TEST(Inbox, AFailedDeviceIsTheAnswerToEverything) {
  Inbox inbox;
  inbox.fail({ErrorCode::internal, "the device is lost"});
  EXPECT_TRUE(inbox.stopping());
  EXPECT_EQ(inbox.takes_requests().error().what(), "the device is lost");
  EXPECT_EQ(inbox.takes_messages().error().what(), "the device is lost");
}

// Requests that have ended leave their memory until it is trimmed.
TEST(Inbox, OpenRequestsKeepTheMemoryOfTheirCancel) {
  Inbox inbox;
  const RequestId first = enter(inbox);
  EXPECT_TRUE(submit(inbox, first));
  const RequestId second = enter(inbox);
  EXPECT_EQ(take(inbox), "s1");
  inbox.trim_cancels(1);
  std::ignore = cancel(inbox, first);
  inbox.trim_cancels(0);
  std::ignore = cancel(inbox, second);
  EXPECT_TRUE(submit(inbox, second));
  EXPECT_EQ(take(inbox), "c1 s2 c2");
}

}  // namespace
}  // namespace motley::engine
