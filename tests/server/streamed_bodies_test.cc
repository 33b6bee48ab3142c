// Bodies that a handler reads piece by piece, over a handler of the test's own.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/api/api_error.h"
#include "server/manual_timers.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t megabyte = 1 << 20;
constexpr std::size_t most_bytes = 256 * megabyte;

std::uint64_t hash_of(std::string_view bytes, std::uint64_t hash) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  return hash;
}

// Answers PUT with the length and the hash of the body, GET with "here", and POST without a look at
// the body.
class UploadServer {
 public:
  explicit UploadServer(Timers* timers = nullptr) {
    HttpHooks hooks{.handler = [this](Exchange& exchange) { return answer(exchange); },
                    .admit = [](const HttpHead& head) { return admit(head); },
                    .refuse = [](const Error& error, const HttpHead&) { return refuse(error); }};
    http_ = HttpServer::listen({.timers = timers}, std::move(hooks)).value();
    http_->start();
  }
  ~UploadServer() { http_->stop(); }

  std::uint16_t port() const { return http_->port(); }
  HttpServer& http() { return *http_; }
  int cancelled() const { return cancelled_; }
  int refused() const { return refused_; }
  std::size_t largest_piece() const { return largest_piece_; }

 private:
  static HttpResponse refuse(const Error& error) { return error_response(error); }
  static HeadVerdict admit(const HttpHead& head) {
    HeadVerdict verdict;
    verdict.max_body_bytes = head.method == "GET" ? 0 : head.path == "/small" ? 4 : most_bytes;
    verdict.streams_body = head.method != "GET";
    return verdict;
  }

  boost::asio::awaitable<void> answer(Exchange& exchange) {
    HttpResponse response = text_response("text/plain", "here");
    if (exchange.request().method == "PUT") {
      std::size_t bytes = 0;
      std::uint64_t hash = 0;
      while (true) {
        const Result<std::string_view> piece = co_await exchange.next_body_piece();
        if (!piece.ok() && piece.error().code() == ErrorCode::cancelled) {
          ++cancelled_;
          co_return;
        }
        if (!piece.ok()) {
          response = refuse(piece.error());
          ++refused_;
          if (exchange.request().path != "/again") break;
          const Result<std::string_view> again = co_await exchange.next_body_piece();
          EXPECT_EQ(again.ok() ? "none" : again.error().message(), piece.error().message());
          break;
        }
        if (piece->empty()) {
          response.body = cat(bytes, " ", hash);
          break;
        }
        largest_piece_ = std::max<std::size_t>(largest_piece_, piece->size());
        bytes += piece->size();
        hash = hash_of(*piece, hash);
      }
    }
    co_await exchange.send(std::move(response));
  }

  std::atomic<int> cancelled_{0};
  std::atomic<int> refused_{0};
  std::atomic<std::size_t> largest_piece_{0};
  std::unique_ptr<HttpServer> http_;
};

std::string put(std::string_view fields) {
  return cat("PUT /upload HTTP/1.1\r\nHost: here\r\n", fields, "\r\n");
}

// A body that differs everywhere, in pieces of a megabyte.
class Upload {
 public:
  std::string next() {
    std::string piece(megabyte, 'x');
    for (std::size_t i = 0; i < piece.size(); i += 8)
      piece[i] = static_cast<char>('0' + (state_ = state_ * 1103515245 + 12345) / 65536 % 10);
    hash_ = hash_of(piece, hash_);
    bytes_ += piece.size();
    return piece;
  }
  std::string answer() const { return cat(bytes_, " ", hash_); }

 private:
  std::uint32_t state_ = 1;
  std::size_t bytes_ = 0;
  std::uint64_t hash_ = 0;
};

void send_chunk(Client& client, std::string_view content) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string size;
  for (std::size_t rest = content.size(); rest > 0; rest >>= 4) size.insert(0, 1, hex[rest & 15]);
  ASSERT_TRUE(client.send(cat(size, "\r\n", content, "\r\n")));
}

TEST(StreamedBodies, ComeWholeInPieces) {
  UploadServer server;
  Client client(server.port());
  Upload plain;
  ASSERT_TRUE(client.send(put(cat("Content-Length: ", 40 * megabyte, "\r\n"))));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(client.send(plain.next()));
  EXPECT_EQ(client.receive().body, plain.answer());
  Upload chunked;
  ASSERT_TRUE(client.send(put("Transfer-Encoding: chunked\r\n")));
  for (int i = 0; i < 40; ++i) send_chunk(client, chunked.next());
  ASSERT_TRUE(client.send("0\r\n\r\n"));
  EXPECT_EQ(client.receive().body, chunked.answer()) << "the connection goes on";
  EXPECT_LT(server.largest_piece(), megabyte) << "no part is held beyond a buffer";
  EXPECT_EQ(server.http().stats().body_bytes, 0U);
}

// Uploads of many gigabytes would be as these, which end when all of them have come that far.
TEST(StreamedBodies, HoldUpNothingElse) {
  UploadServer server;
  std::vector<std::unique_ptr<Client>> uploads;
  std::vector<Upload> bodies(6);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    uploads.push_back(std::make_unique<Client>(server.port()));
    ASSERT_TRUE(uploads[i]->send(put("Transfer-Encoding: chunked\r\n")));
  }
  for (int round = 0; round < 8; ++round) {
    for (std::size_t i = 0; i < bodies.size(); ++i) send_chunk(*uploads[i], bodies[i].next());
    EXPECT_EQ(ask(server.port(), get("/")).body, "here");
    EXPECT_EQ(server.http().stats().body_bytes, 0U);
  }
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    ASSERT_TRUE(uploads[i]->send("0\r\n\r\n"));
    EXPECT_EQ(uploads[i]->receive().body, bodies[i].answer());
  }
}

TEST(StreamedBodies, BeyondTheirLimitAreRefused) {
  UploadServer server;
  Received reply = ask(server.port(), put(cat("Content-Length: ", most_bytes + 1, "\r\n")));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.headers.at("connection"), "close");
  reply = ask(server.port(),
              "PUT /small HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
              "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n");
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.headers.at("connection"), "close");
}

TEST(StreamedBodies, WithWrongFramingAreRefused) {
  UploadServer server;
  const Received reply =
      ask(server.port(), cat(put("Transfer-Encoding: chunked\r\n"), "5\r\nhelloX"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.headers.at("connection"), "close");
}

TEST(StreamedBodies, WhoseSendersAreTooSlowAreEnded) {
  ManualTimers timers;
  UploadServer server(&timers);
  Client client(server.port());
  ASSERT_TRUE(client.send(cat(put("Content-Length: 1000000\r\n"), std::string(1000, 'x'))));
  // Ten bytes now and then are not enough.
  EXPECT_TRUE(eventually([&] {
    client.send("0123456789");
    timers.advance(HttpLimits().request_time / 4);
    return server.refused() == 1;
  }));
  EXPECT_EQ(client.receive().status, 408);
}

TEST(StreamedBodies, OfClientsThatGoLeaveNothing) {
  UploadServer server;
  {
    Client client(server.port());
    ASSERT_TRUE(client.send(put("Content-Length: 1000000\r\nExpect: 100-continue\r\n")));
    EXPECT_THAT(client.receive_some(), HasSubstr("100 Continue"));
    ASSERT_TRUE(client.send(std::string(1000, 'x')));
    client.reset();
  }
  EXPECT_TRUE(eventually([&] { return server.cancelled() == 1; }));
  EXPECT_EQ(ask(server.port(), get("/")).body, "here");
}

TEST(StreamedBodies, AreAskedForWhenTheyAreRead) {
  UploadServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(put("Content-Length: 5\r\nExpect: 100-continue\r\n")));
  EXPECT_THAT(client.receive_some(), HasSubstr("100 Continue"));
  ASSERT_TRUE(client.send("hello"));
  EXPECT_EQ(client.receive().body, cat("5 ", hash_of("hello", 0)));
}

TEST(StreamedBodies, ThatWereRefusedStayRefused) {
  UploadServer server;
  // The handler of /again reads on after an error.
  const Received reply =
      ask(server.port(),
          "PUT /again HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
          "x\r\n0\r\n\r\n");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.headers.at("connection"), "close");
}

TEST(StreamedBodies, ThatAreNotReadEndTheConnection) {
  UploadServer server;
  const Received reply =
      ask(server.port(), "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 500\r\n\r\nabc");
  EXPECT_EQ(reply.body, "here");
  EXPECT_EQ(reply.headers.at("connection"), "close");
}

}  // namespace
}  // namespace motley::server
