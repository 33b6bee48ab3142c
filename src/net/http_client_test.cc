#include "net/http_client.h"

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "net/byte_stream.h"
#include "net/unix_socket.h"

namespace motley::net {
namespace {

namespace asio = boost::asio;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The pieces of an answer; after the last one the server may close.
struct ScriptedAnswer {
  std::vector<std::string> pieces;
  bool closes = false;
  bool in_the_middle = false;  // comes after the first bytes of the request
};

// A server on a Unix socket that gives set answers, in the order of requests. All connections are
// on the test's thread.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::deque<ScriptedAnswer> answers)
      : file_(SocketFile::listen(folder_.path() / "socket", acceptor_).value()),
        answers_(std::move(answers)) {
    asio::co_spawn(context_, accept(), asio::detached);
  }

  ServerUrl url() const { return ServerUrl::parse(cat("unix:", file_.path().native())).value(); }
  // As they came, each with its body.
  const std::vector<std::string>& requests() const { return requests_; }
  int connections() const { return connections_; }

  // What the client gets; its errors have status 0.
  HttpClient::Answer ask(HttpClient& client, HttpClient::Request request,
                         HttpClient::Take take = {}) {
    HttpClient::Answer answer;
    bool done = false;
    asio::co_spawn(
        context_,
        [&]() -> asio::awaitable<void> {
          const auto sent = co_await client.send(std::move(request), std::move(take));
          answer = sent.ok() ? *sent : HttpClient::Answer{.body = sent.error().message()};
          done = true;
        },
        asio::detached);
    while (!done) context_.run_one();
    return answer;
  }

 private:
  static bool is_before_body(std::string_view request) {
    const std::size_t length = request.find("Content-Length: ");
    return length != request.npos && request[length + 16] != '0';
  }
  asio::awaitable<void> accept() {
    while (true) {
      auto [failure, socket] = co_await acceptor_.async_accept(no_throw);
      if (failure) co_return;
      ++connections_;
      const auto stream = std::make_shared<ByteStream>(std::move(socket));
      asio::co_spawn(context_, serve(stream), asio::detached);
    }
  }
  asio::awaitable<void> serve(std::shared_ptr<ByteStream> stream) {
    std::array<char, 1000> bytes{};
    std::string request;
    while (!answers_.empty()) {
      const auto [failure, count] = co_await stream->read_some(asio::buffer(bytes));
      if (failure) co_return;
      request.append(bytes.data(), count);
      // The tests' bodies end so.
      const bool whole = !answers_.front().in_the_middle;
      if (whole && !request.ends_with("\r\n\r\n") && !request.ends_with("end")) continue;
      if (whole && request.ends_with("\r\n\r\n") && is_before_body(request)) continue;
      requests_.push_back(std::exchange(request, {}));
      const ScriptedAnswer answer = std::move(answers_.front());
      answers_.pop_front();
      for (const std::string& piece : answer.pieces)
        co_await stream->write({piece, "", ""}, [] { return true; });
      if (answer.closes) co_return stream->close();
    }
  }

  TemporaryFolder folder_;
  asio::io_context context_;
  Acceptor acceptor_{context_};
  SocketFile file_;
  std::deque<ScriptedAnswer> answers_;
  std::vector<std::string> requests_;
  int connections_ = 0;
};

std::string whole(int status, std::string_view body) {
  return cat("HTTP/1.1 ", status, " X\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

TEST(HttpClient, SendsRequestsOverOneConnection) {
  ScriptedServer server({{{whole(200, "one")}}, {{whole(201, "two")}}});
  HttpClient client(server.url());
  const HttpClient::Answer first = server.ask(client, {.path = "/a?b=c"});
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "one");
  const HttpClient::Answer second =
      server.ask(client, {.method = "PUT", .path = "/x", .headers = {{"A", "b"}}, .body = "end"});
  EXPECT_EQ(second.status, 201);
  EXPECT_EQ(second.body, "two");
  EXPECT_EQ(server.connections(), 1);
  ASSERT_EQ(server.requests().size(), 2U);
  EXPECT_THAT(server.requests()[0], StartsWith("GET /a?b=c HTTP/1.1\r\nHost: localhost\r\n"));
  EXPECT_THAT(server.requests()[1], StartsWith("PUT /x HTTP/1.1\r\n"));
  EXPECT_THAT(server.requests()[1], EndsWith("A: b\r\nContent-Length: 3\r\n\r\nend"));
}

TEST(HttpClient, ReadsBodiesHoweverTheyEnd) {
  const std::string large(100'000, 'x');
  ScriptedServer server({
      {{"HTTP/1.1 200 OK\r\nTransfer-Enc", "oding: chunked\r\n\r\n3\r\nab", "c\r\n", "1\r\nd\r\n",
        "0\r\n\r\n"}},
      {{whole(200, large)}},
      {{whole(200, "")}},
      {{"HTTP/1.1 200 OK\r\n\r\n", "to the ", "end"}, true},
  });
  HttpClient client(server.url());
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "abcd");
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, large);
  EXPECT_EQ(server.ask(client, {.path = "/"}).status, 200);
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "to the end");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, TakesNoAnswerForThatOfAnotherRequest) {
  ScriptedServer server({{{"HTTP/1.1 100 Continue\r\n\r\n", whole(200, "one")}},
                         {{cat(whole(200, "two"), whole(200, "not asked for"))}},
                         {{whole(200, "three")}}});
  HttpClient client(server.url());
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "one");
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "two");
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "three");
  EXPECT_EQ(server.connections(), 2);
}

TEST(HttpClient, GivesTheBodyOfA200InPieces) {
  ScriptedServer server({{{whole(200, "hello")}}, {{whole(404, "none")}}, {{whole(200, "again")}}});
  HttpClient client(server.url());
  std::string taken;
  const HttpClient::Take take = [&](std::string_view piece) -> Result<void> {
    taken += piece;
    if (taken == "helloagain") return Error(ErrorCode::bad_file, "enough");
    return {};
  };
  EXPECT_EQ(server.ask(client, {.path = "/"}, take).body, "");
  EXPECT_EQ(taken, "hello");
  EXPECT_EQ(server.ask(client, {.path = "/"}, take).body, "none");
  EXPECT_EQ(taken, "hello");
  EXPECT_EQ(server.ask(client, {.path = "/"}, take).body, "enough");
}

TEST(HttpClient, ReplacesAConnectionThatTheServerHasClosed) {
  ScriptedServer server({{{whole(200, "one")}, true}, {{whole(200, "two")}}});
  HttpClient client(server.url());
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "one");
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "two");
  EXPECT_EQ(server.connections(), 2);
}

TEST(HttpClient, SendsAgainWhatMayBeDoneTwice) {
  for (const char* const method : {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}) {
    ScriptedServer server({{{whole(200, "one")}}, {{}, true}, {{"HTTP/1.1 204 X\r\n\r\n"}}});
    HttpClient client(server.url());
    EXPECT_EQ(server.ask(client, {.path = "/"}).body, "one");
    EXPECT_EQ(server.ask(client, {.method = method, .path = "/"}).status, 204) << method;
    EXPECT_EQ(server.requests().size(), 3U) << method;
  }
}

// The server may have done what it was asked to.
TEST(HttpClient, SendsNoPostAgainThatWasSent) {
  ScriptedServer server({{{whole(200, "one")}}, {{}, true}, {{whole(200, "again")}}});
  HttpClient client(server.url());
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "one");
  const auto answer = server.ask(client, {.method = "POST", .path = "/", .body = "end"});
  EXPECT_THAT(answer.body, HasSubstr("can't ask the server"));
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST(HttpClient, SendsAPostAgainThatWasNotSentCompletely) {
  const std::string body = cat(std::string(4 << 20, 'x'), "end");
  ScriptedServer server({{{whole(200, "one")}},
                         {.pieces = {}, .closes = true, .in_the_middle = true},
                         {{whole(200, "two")}}});
  HttpClient client(server.url());
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "one");
  const auto answer = server.ask(client, {.method = "POST", .path = "/", .body = body});
  EXPECT_EQ(answer.body, "two");
  ASSERT_EQ(server.requests().size(), 3U);
  EXPECT_THAT(server.requests()[2], EndsWith(cat("\r\n\r\n", body)));
}

TEST(HttpClient, SendsNothingAgainOfWhichAnAnswerHasBegun) {
  for (const char* const begun : {"H", "HTTP/1.1 200 X\r\nA: b\r\n", "HTTP/1.1 100 X\r\n\r\n"}) {
    ScriptedServer server({{{whole(200, "one")}}, {{begun}, true}, {{whole(200, "again")}}});
    HttpClient client(server.url());
    EXPECT_EQ(server.ask(client, {.path = "/"}).body, "one");
    EXPECT_THAT(server.ask(client, {.path = "/"}).body, HasSubstr("can't ask the server")) << begun;
    EXPECT_EQ(server.requests().size(), 2U) << begun;
  }
}

TEST(HttpClient, SaysHowLongEveryBodyIs) {
  ScriptedServer server({{{whole(200, "")}}, {{whole(200, "")}}, {{whole(200, "")}}});
  HttpClient client(server.url());
  server.ask(client, {.path = "/", .body = "end"});
  server.ask(client, {.path = "/"});
  server.ask(client, {.method = "POST", .path = "/"});
  ASSERT_EQ(server.requests().size(), 3U);
  EXPECT_THAT(server.requests()[0], EndsWith("Content-Length: 3\r\n\r\nend"));
  EXPECT_THAT(server.requests()[1], Not(HasSubstr("Content-Length")));
  EXPECT_THAT(server.requests()[2], HasSubstr("Content-Length: 0"));
}

TEST(HttpClient, ReadsNoBodyAfterHead) {
  ScriptedServer server({{{"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n"}},
                         {{"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"}},
                         {{whole(200, "two")}}});
  HttpClient client(server.url());
  for (int i = 0; i < 2; ++i) {
    const auto answer = server.ask(client, {.method = "HEAD", .path = "/"});
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.body, "");
  }
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "two");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, TakesNoEmptyPieces) {
  ScriptedServer server({{{"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\n", "a",
                           "bc\r", "\n0\r\n", "\r\n"}},
                         {{"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n", "o", "k"}}});
  HttpClient client(server.url());
  std::string taken;
  const HttpClient::Take take = [&](std::string_view piece) -> Result<void> {
    EXPECT_FALSE(piece.empty());
    taken += piece;
    return {};
  };
  EXPECT_EQ(server.ask(client, {.path = "/"}, take).status, 200);
  EXPECT_EQ(server.ask(client, {.path = "/"}, take).status, 200);
  EXPECT_EQ(taken, "abcok");
}

TEST(HttpClient, ReadsNoMoreOfAnErrorThanItHolds) {
  constexpr std::size_t held_bytes = 16 << 20;
  const std::string endless(held_bytes + 1, 'x');
  ScriptedServer server(
      {{{"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", endless}, true},
       {{whole(200, "two")}}});
  HttpClient client(server.url());
  const auto answer = server.ask(client, {.path = "/"});
  EXPECT_EQ(answer.status, 500) << answer.body;
  EXPECT_EQ(answer.body.size(), held_bytes);
  EXPECT_EQ(server.ask(client, {.path = "/"}).body, "two");
  EXPECT_EQ(server.connections(), 2);
}

TEST(HttpClient, SaysWhatIsWrongWithTheServer) {
  ScriptedServer server({{{}, true},
                         {{"SSH-2.0\r\n\r\n"}},
                         {{"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n", "cut"}, true}});
  HttpClient client(server.url());
  EXPECT_THAT(server.ask(client, {.path = "/"}).body, HasSubstr("can't ask the server"));
  EXPECT_THAT(server.ask(client, {.path = "/"}).body, HasSubstr("can't ask the server"));
  EXPECT_THAT(server.ask(client, {.path = "/"}).body, HasSubstr("can't read the answer"));
  HttpClient lost(ServerUrl::parse("unix:/nowhere/socket").value());
  EXPECT_THAT(
      server.ask(lost, {.path = "/"}).body,
      HasSubstr("can't reach the server: No such file or directory (unix:/nowhere/socket)"));
}

TEST(HttpClient, ReachesPortsToo) {
  asio::io_context context;
  asio::ip::tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  HttpClient client(
      ServerUrl::parse(cat("http://127.0.0.1:", acceptor.local_endpoint().port(), "/base"))
          .value());
  std::string request;
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        ByteStream stream(co_await acceptor.async_accept(asio::use_awaitable));
        std::array<char, 1000> bytes{};
        const auto [failure, count] = co_await stream.read_some(asio::buffer(bytes));
        request.assign(bytes.data(), count);
        co_await stream.write({whole(200, "here"), "", ""}, [] { return true; });
      },
      asio::detached);
  std::string body;
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        HttpClient::Request asked{.path = "/x"};
        const auto answer = co_await client.send(std::move(asked));
        body = answer.ok() ? answer->body : answer.error().message();
      },
      asio::detached);
  context.run();
  EXPECT_EQ(body, "here");
  EXPECT_THAT(request, StartsWith("GET /base/x HTTP/1.1\r\n"));
}

}  // namespace
}  // namespace motley::net
