#include "net/connect.h"

#include <filesystem>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"

namespace motley::net {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using ::testing::HasSubstr;

// A Unix socket with place for two clients that wait, which the test accepts.
class WaitingClients : public testing::Test {
 protected:
  static constexpr int places = 2;

  WaitingClients() : acceptor_(context_) {
    acceptor_.open();
    acceptor_.bind(stream_protocol::endpoint(path_.native()));
    acceptor_.listen(places - 1);
  }

  // Begins one more; what comes of it is added to `outcomes_` as the context runs.
  void start(int tries) {
    asio::co_spawn(
        context_,
        [this, tries]() -> asio::awaitable<void> {
          auto stream = co_await connect(url_, tries);
          outcomes_.push_back(stream.ok() ? "connected" : stream.error().message());
          if (stream.ok()) streams_.push_back(*std::move(stream));
        },
        asio::detached);
  }
  void fill() {
    for (int i = 0; i < places; ++i) start(1);
    context_.run();
    context_.restart();
    ASSERT_EQ(outcomes_, std::vector<std::string>(places, "connected"));
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "socket";
  ServerUrl url_ = ServerUrl::parse(cat("unix:", path_.native())).value();
  asio::io_context context_;
  stream_protocol::acceptor acceptor_;
  std::vector<ByteStream> streams_;
  std::vector<std::string> outcomes_;
};

TEST_F(WaitingClients, AreRefusedWhereTheQueueStaysFull) {
  fill();
  start(3);
  context_.run();
  EXPECT_THAT(outcomes_.back(), HasSubstr("accepts none of the clients that wait"));
  EXPECT_EQ(streams_.size(), places);
}

TEST_F(WaitingClients, ConnectWhenThereIsAPlace) {
  fill();
  start(200);
  context_.run_one();  // it finds the queue full
  const stream_protocol::socket accepted = acceptor_.accept();
  context_.run();
  EXPECT_EQ(outcomes_.back(), "connected");
  EXPECT_EQ(streams_.back().peer().kind, Peer::Kind::unix_socket);
}

}  // namespace
}  // namespace motley::net
