#include "server/mailbox.h"

#include <optional>
#include <thread>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

namespace motley::server {
namespace {

namespace asio = boost::asio;

class MailboxTest : public testing::Test {
 protected:
  using News = Mailbox::Entries;

  // From a separate thread, as the engine does.
  void say_tokens(int count) {
    std::thread([&] {
      const std::vector<engine::TopLogprob> top(20);
      for (int i = 0; i < count; ++i)
        sink_->take(engine::TokenEvent{.choice = 0, .id = i, .logprob = -1, .top = top});
    }).join();
  }
  // The result of next(); nothing if it keeps waiting.
  std::optional<Result<News>> next() {
    const auto taken = std::make_shared<std::optional<Result<News>>>();
    asio::co_spawn(context_, take(mailbox_, taken), asio::detached);
    context_.restart();
    context_.poll();
    return *taken;
  }
  static asio::awaitable<void> take(std::shared_ptr<Mailbox> mailbox,
                                    std::shared_ptr<std::optional<Result<News>>> taken) {
    *taken = co_await mailbox->next();
  }
  std::vector<std::int32_t> next_tokens() {
    std::vector<std::int32_t> ids;
    for (const engine::EventQueue::Entry& each : next().value().value())
      ids.push_back(std::get<engine::TokenEvent>(each.event).id);
    return ids;
  }

  static constexpr std::size_t room = 10'000;  // for a few dozen tokens

  asio::io_context context_;
  std::shared_ptr<Mailbox> mailbox_ = Mailbox::make(context_.get_executor(), room);
  std::shared_ptr<engine::EventSink> sink_ = mailbox_->sink_for(0);
};

TEST_F(MailboxTest, RoomIsCountedFromWhatWasTakenLast) {
  for (int round = 0; round < 10; ++round) {
    say_tokens(10);
    EXPECT_EQ(next_tokens(), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

TEST_F(MailboxTest, MoreThanItHoldsIsAnErrorAndNoPartOfTheAnswer) {
  say_tokens(1000);
  for (int i = 0; i < 2; ++i) {
    const auto taken = next();
    ASSERT_TRUE(taken.has_value());
    ASSERT_FALSE(taken->ok());
    EXPECT_EQ(taken->error().code(), ErrorCode::busy);
    EXPECT_EQ(taken->error().what(), "the answer came faster than it could be written");
    say_tokens(1);
  }
}

TEST_F(MailboxTest, OfAStreamGivesNoticeOnceAndNoNewsAnyMore) {
  int notices = 0;
  mailbox_->limit_backlog(room / 2, [&] { ++notices; });
  say_tokens(10);
  EXPECT_EQ(next_tokens().size(), 10U);
  say_tokens(1000);
  EXPECT_EQ(notices, 0) << "on the executor only";
  EXPECT_FALSE(next().has_value());
  EXPECT_EQ(notices, 1);
  say_tokens(10);
  mailbox_->wake();
  context_.restart();
  context_.poll();
  EXPECT_EQ(notices, 1);
  mailbox_->limit_backlog(0, nullptr);
  EXPECT_EQ(next().value().error().code(), ErrorCode::busy);
}

}  // namespace
}  // namespace motley::server
