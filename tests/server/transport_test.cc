// How answers leave a server and how it ends, over a handler of the test's own.

#include <atomic>
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/out_of_memory.h"
#include "server/api/api_error.h"
#include "server/manual_timers.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::size_t megabyte = 1 << 20;

HttpResponse refuse(const Error& error, const HttpHead& /*head*/) { return error_response(error); }

// Answers every request with so many pieces of 256 KiB, and counts those that were made.
class PieceServer {
 public:
  PieceServer(std::size_t pieces, const HttpLimits& limits, Timers* timers = nullptr)
      : pieces_(pieces) {
    HttpHooks hooks{.handler = [this](Exchange& exchange) { return answer(exchange); },
                    .admit = [](const HttpHead&) { return HeadVerdict{.max_body_bytes = 1000}; },
                    .refuse = refuse};
    http_ = HttpServer::listen({.limits = limits, .timers = timers}, std::move(hooks)).value();
    http_->start();
  }
  ~PieceServer() { http_->stop(); }

  std::uint16_t port() const { return http_->port(); }
  HttpServer& http() { return *http_; }
  std::size_t made() const { return made_; }
  std::size_t bytes() const { return pieces_ * piece_bytes; }

  static constexpr std::size_t piece_bytes = 256 << 10;

 private:
  boost::asio::awaitable<void> answer(Exchange& exchange) {
    PieceSource next = [this, left = pieces_]() mutable -> std::string {
      if (left == 0) return {};
      --left;
      ++made_;
      return std::string(piece_bytes, 'x');
    };
    HttpResponse head = json_response({});
    co_await exchange.send_pieces(std::move(head), std::move(next));
  }

  std::size_t pieces_;
  std::atomic<std::size_t> made_{0};
  std::unique_ptr<HttpServer> http_;
};

// The bytes up to the end of a chunked answer, or those that came before it was cut. `each` is
// called with their number whenever some have come.
template <class Each>
std::size_t receive_chunked(Client& client, Each each) {
  constexpr std::string_view end = "\r\n0\r\n\r\n";
  std::size_t received = 0;
  std::string tail;
  while (!tail.ends_with(end)) {
    const std::string come = client.receive_some();
    if (come.empty()) break;
    received += come.size();
    tail = cat(tail, come);
    tail.erase(0, tail.size() - std::min(tail.size(), end.size()));
    each(received);
  }
  return received;
}

TEST(LargeAnswers, GoOutInPiecesAsTheyAreTaken) {
  PieceServer server(200, {});
  Client client(server.port(), 64 << 10);
  client.send(get("/"));
  const std::string come = client.receive_some();
  EXPECT_THAT(come, HasSubstr("Transfer-Encoding: chunked"));
  // What is made beyond what was taken stands in the buffers of two systems.
  EXPECT_LT(server.made() * PieceServer::piece_bytes, 16 * megabyte);
  EXPECT_GT(receive_chunked(client, [](std::size_t) {}), server.bytes() - come.size());
  client.send(get("/", "Connection: close\r\n"));
  EXPECT_EQ(client.receive().body.size(), server.bytes()) << "the connection goes on";
}

TEST(LargeAnswers, HaveNoChunksForOldClients) {
  PieceServer server(20, {});
  const Received reply = ask(server.port(), "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_FALSE(reply.headers.contains("content-length"));
  EXPECT_EQ(reply.body, std::string(server.bytes(), 'x'));
}

TEST(LargeAnswers, ThatTurnOutSmallHaveTheirLength) {
  PieceServer server(3, {});
  const Received reply = ask(server.port(), get("/"));
  EXPECT_EQ(reply.headers.at("content-length"), std::to_string(server.bytes()));
  EXPECT_EQ(reply.body.size(), server.bytes());
  PieceServer empty(0, {});
  EXPECT_EQ(ask(empty.port(), get("/")).headers.at("content-length"), "0");
}

TEST(SlowReaders, ThatGoOnGetAllOfIt) {
  ManualTimers timers;
  HttpLimits limits;
  limits.whole_answer_bytes = 64 * megabyte;  // one write, longer than a client may take nothing
  PieceServer server(64, limits, &timers);
  Client client(server.port(), 64 << 10);
  client.send(get("/"));
  std::size_t received = 0;
  std::size_t paused = 0;
  while (received < server.bytes()) {
    const std::string come = client.receive_some();
    ASSERT_FALSE(come.empty()) << "cut after " << received;
    received += come.size();
    if (received < paused + megabyte) continue;
    paused = received;
    timers.advance(limits.write_time * 3 / 4);
  }
  EXPECT_GT(timers.now() - TimePoint(), 10 * limits.write_time);
}

TEST(SlowReaders, ThatStopAreCut) {
  ManualTimers timers;
  PieceServer server(200, {}, &timers);
  Client client(server.port(), 64 << 10);
  client.send(get("/"));
  EXPECT_THAT(client.receive_some(), HasSubstr("200 OK"));
  ASSERT_TRUE(eventually([&] {
    timers.advance(HttpLimits().write_time);
    return server.http().connections() == 0;
  }));
  EXPECT_LT(server.made() * PieceServer::piece_bytes, 16 * megabyte);
}

TEST(SlowReaders, OfAStreamAreCutWhereTheEngineIsTooFarAhead) {
  HttpLimits limits;
  limits.stream_backlog_bytes = megabyte;
  limits.write_time = std::chrono::hours(1);
  TestServer server({.limits = limits});
  server.engine().say(std::vector<std::int32_t>(900, 100));
  server.engine().hold_after(800);  // it does not end by itself
  Client client(server.port(), 64 << 10);
  client.send(post("/v1/completions",
                   R"({"prompt": "x", "stream": true, "n": 128, "logprobs": 20,
                       "max_tokens": 900})"));
  // No time limit is over by then.
  server.engine().wait_for_ended(1);
  EXPECT_EQ(server.engine().cancelled(), 1);
  EXPECT_TRUE(eventually([&] { return server.http().connections() == 0; }));
}

TEST(WholeAnswers, ThatAreLargeAreTheSameJson) {
  HttpLimits limits;
  limits.whole_answer_bytes = 64 << 10;
  TestServer server({.limits = limits});
  server.engine().say(std::vector<std::int32_t>(50, 100));
  const auto asked = [&](std::string_view path, std::string_view body) {
    Client client(server.port());
    client.send(post(path, body));
    const Received reply = client.receive();
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.headers.contains("transfer-encoding"));
    return reply.json();
  };
  const json::Value completion =
      asked("/v1/completions", R"({"prompt": ["x", "y"], "n": 20, "logprobs": 20, "echo": true,
                                   "max_tokens": 50})");
  const json::Array& choices = *completion.if_object()->find("choices")->if_array();
  ASSERT_EQ(choices.size(), 40U);
  for (std::size_t i = 0; i < choices.size(); ++i)
    EXPECT_EQ(*choices[i].if_object()->find("index")->if_integer(), static_cast<std::int64_t>(i));
  EXPECT_EQ(
      *completion.if_object()->find("usage")->if_object()->find("completion_tokens")->if_integer(),
      2000);
  const json::Value chat =
      asked("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "n": 20,
                                        "logprobs": true, "top_logprobs": 20, "max_tokens": 50})");
  EXPECT_EQ(chat.if_object()->find("choices")->if_array()->size(), 20U);
}

TEST(Memory, ThatEndsIsAnAnswerAndTheEndOfAConnection) {
  const std::uint64_t before = out_of_memory_count();
  std::atomic<bool> ended = true;
  const auto handler = [&](Exchange& exchange) -> boost::asio::awaitable<void> {
    if (ended) throw std::bad_alloc();
    co_await exchange.send(json_response("{}"));
  };
  const auto server =
      HttpServer::listen({}, {.handler = handler,
                              .admit = [](const HttpHead&) { return HeadVerdict(); },
                              .refuse = refuse})
          .value();
  server->start();
  Client client(server->port());
  client.send(get("/"));
  const Received reply = client.receive();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.error("code"), "out_of_memory");
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(out_of_memory_count(), before + 1);
  ended = false;
  EXPECT_EQ(ask(server->port(), get("/")).status, 200);
  EXPECT_TRUE(eventually([&] { return server->connections() <= 1; }));
  server->stop();
}

TEST(Draining, DoesNotWaitForRequestsThatAreHalfSent) {
  using std::chrono::seconds;
  ManualTimers timers;
  PieceServer server(1, {}, &timers);
  Client in_head(server.port());
  Client in_body(server.port());
  Client silent(server.port());
  timers.wait_for_timers(3, seconds(30));
  timers.advance(seconds(1));
  in_head.send("GET / HTTP/1.1\r\nHos");
  in_body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
  timers.wait_for_timers(2, seconds(30));
  EXPECT_FALSE(server.http().drain(milliseconds(0)));
  timers.wait_for_timers(2, seconds(2));
  timers.advance(seconds(2));
  EXPECT_EQ(in_head.receive().status, 503);
  EXPECT_EQ(in_body.receive().status, 503);
  // It had promised nothing.
  EXPECT_FALSE(server.http().drain(milliseconds(0)));
  in_head.close();
  in_body.close();
  silent.close();
  EXPECT_TRUE(server.http().drain(seconds(60)));
  EXPECT_EQ(server.http().connections(), 0);
}

TEST(Draining, LetsARequestThatStillComesFinish) {
  HttpLimits limits;
  limits.drain_request_time = std::chrono::hours(1);
  PieceServer server(1, limits);
  Client client(server.port());
  const std::string_view asks =
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
      "Expect: 100-continue\r\n\r\n";
  client.send(asks);
  EXPECT_THAT(client.receive_some(), HasSubstr("100 Continue"));
  EXPECT_FALSE(server.http().drain(milliseconds(0)));
  client.send("{}");
  const Received reply = client.receive();
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(server.http().drain(std::chrono::seconds(60)));
}

}  // namespace
}  // namespace motley::server
