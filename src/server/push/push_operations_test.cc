#include "server/push/push_operations.h"

#include <optional>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/async/name_turns.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

class PushOperationsTest : public testing::Test {
 protected:
  using Begun = std::shared_ptr<std::optional<PushOperations::Operation>>;

  // What it has after all that can go on has gone on.
  Begun begin(std::string_view id) {
    auto begun = std::make_shared<std::optional<PushOperations::Operation>>();
    asio::co_spawn(context_, take(operations_, context_, std::string(id), begun), asio::detached);
    poll();
    return begun;
  }
  static asio::awaitable<void> take(PushOperations& operations, asio::io_context& context,
                                    std::string id, Begun begun) {
    PushOperations::Operation operation =
        co_await operations.begin(context.get_executor(), "poet", id);
    begun->emplace(std::move(operation));
  }
  void poll() {
    context_.restart();
    context_.poll();
  }
  static HttpResponse answer(int status, std::string body = "{}") {
    return {.status = status, .body = std::move(body)};
  }

  asio::io_context context_;
  PushOperations operations_;
};

TEST_F(PushOperationsTest, GiveTheFirstAnswerToAll) {
  const Begun first = begin("a");
  ASSERT_TRUE(*first);
  EXPECT_EQ((*first)->answer(), nullptr);
  const Begun second = begin("a");
  const Begun third = begin("a");
  EXPECT_FALSE(*second) << "it waits";
  const Begun other = begin("b");
  ASSERT_TRUE(*other);
  EXPECT_EQ((*other)->answer(), nullptr);
  (*first)->end(answer(200, "first"));
  poll();
  for (const Begun& each : {second, third, begin("a")}) {
    ASSERT_TRUE(*each);
    ASSERT_NE((*each)->answer(), nullptr);
    EXPECT_EQ((*each)->answer()->body, "first");
  }
}

TEST_F(PushOperationsTest, PassOnWhatHasNotHappened) {
  Begun first = begin("a");
  const Begun second = begin("a");
  const Begun third = begin("a");
  first->reset();
  poll();
  ASSERT_TRUE(*second);
  EXPECT_EQ((*second)->answer(), nullptr);
  EXPECT_FALSE(*third);
  (*second)->end(answer(409));
  poll();
  ASSERT_TRUE(*third);
  EXPECT_EQ((*third)->answer()->status, 409);
}

TEST_F(PushOperationsTest, KeepNoAnswerThatAsksToTryAgain) {
  for (const int status : {408, 429, 499, 500, 503, 507}) {
    const Begun first = begin(cat(status));
    (*first)->end(answer(status));
    first->reset();
    const Begun again = begin(cat(status));
    ASSERT_TRUE(*again);
    EXPECT_EQ((*again)->answer(), nullptr) << status;
  }
  EXPECT_EQ(operations_.answers(), 0U);
  const Begun long_answer = begin("a");
  (*long_answer)->end(answer(400, std::string(PushOperations::max_answer_bytes + 1, 'x')));
  EXPECT_EQ(operations_.answers(), 0U);
}

TEST_F(PushOperationsTest, ForgetTheOldest) {
  for (std::size_t i = 0; i <= PushOperations::max_answers; ++i) (*begin(cat(i)))->end(answer(200));
  EXPECT_EQ(operations_.answers(), PushOperations::max_answers);
  EXPECT_EQ((*begin("0"))->answer(), nullptr);
  EXPECT_NE((*begin("1"))->answer(), nullptr);
}

asio::awaitable<void> take_turn(NameTurns& turns, asio::io_context& context, std::string name,
                                std::shared_ptr<std::optional<NameTurns::Turn>> taken) {
  NameTurns::Turn turn = co_await turns.take(context.get_executor(), std::move(name));
  taken->emplace(std::move(turn));
}

TEST(NameTurns, OfOneNameComeOneAfterTheOther) {
  asio::io_context context;
  NameTurns turns;
  const auto take = [&](const char* name) {
    auto taken = std::make_shared<std::optional<NameTurns::Turn>>();
    asio::co_spawn(context, take_turn(turns, context, name, taken), asio::detached);
    context.restart();
    context.poll();
    return taken;
  };
  const auto first = take("a");
  const auto second = take("a");
  const auto third = take("a");
  EXPECT_TRUE(*first && !*second && !*third);
  EXPECT_TRUE(*take("b"));
  first->reset();
  context.restart();
  context.poll();
  EXPECT_TRUE(*second && !*third);
  second->reset();
  context.restart();
  context.poll();
  EXPECT_TRUE(*third);
  third->reset();
  EXPECT_TRUE(*take("a"));
}

}  // namespace
}  // namespace motley::server
