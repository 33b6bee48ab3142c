// Bodies that come compressed: read as what they hold, bounded, charged, and refused by name.

#include <zlib.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/http/wire/body_coding.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

constexpr int zlib_bits = 15;
constexpr int gzip_bits = 31;
constexpr int raw_bits = -15;

std::string coded(std::string_view text, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string held(text);
  std::string bytes(text.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(held.data());
  stream.avail_in = static_cast<uInt>(held.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

Received post_coded(const TestServer& server, std::string_view coding, std::string_view body,
                    std::string_view path = "/v1/completions") {
  return server.ask(post(path, body, cat("Content-Encoding: ", coding, "\r\n")));
}

const std::string request = R"({"prompt": "x", "odd": 1})";

TEST(CodedBodies, AreReadAsWhatTheyHold) {
  TestServer server;
  server.engine().say("fine");
  const std::initializer_list<std::pair<std::string, std::string>> bodies = {
      {"gzip", coded(request, gzip_bits)},
      {"GZip", coded(request, gzip_bits)},
      {"x-gzip", coded(request, gzip_bits)},
      {"deflate", coded(request, zlib_bits)},
      {"deflate", coded(request, raw_bits)},
      {"identity", request},
      {"gzip", cat(coded(request.substr(0, 9), gzip_bits), coded(request.substr(9), gzip_bits))}};
  for (const auto& [coding, body] : bodies) {
    const Received answer = post_coded(server, coding, body);
    EXPECT_EQ(answer.status, 200) << coding << answer.body;
    EXPECT_EQ(text_at(answer.json(), "choices.0.text"), "fine");
    EXPECT_EQ(answer.headers.at("x-motley-ignored"), "odd");
  }
}

TEST(CodedBodies, InChunksAndBehindEachOther) {
  TestServer server;
  server.engine().say("fine");
  const std::string body = coded(request, gzip_bits);
  std::string chunked =
      "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Encoding: gzip\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const char byte : body) chunked += cat("1\r\n", std::string(1, byte), "\r\n");
  chunked += "0\r\n\r\n";
  Client client(server.port());
  ASSERT_TRUE(client.send(cat(chunked, post("/v1/completions", request), chunked)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.receive().status, 200);
}

TEST(CodedBodies, OfOtherCodingsAreRefusedFromTheirHead) {
  TestServer server;
  for (const char* const coding : {"br", "zstd", "compress", "gzip, gzip", "gzip;q=1"}) {
    Client client(server.port());
    ASSERT_TRUE(
        client.send(cat("POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: "
                        "1000\r\nContent-Encoding: ",
                        coding, "\r\n\r\n")));
    const Received refused = client.receive();
    EXPECT_EQ(refused.status, 415) << coding;
    EXPECT_THAT(refused.error("message"), HasSubstr(cat("'", coding, "'")));
    EXPECT_EQ(refused.headers.at("accept-encoding"), "gzip, deflate");
  }
  // Without a key nothing else is said.
  TestServer guarded({.keys = {"secret"}});
  EXPECT_EQ(post_coded(guarded, "br", "x").status, 401);
  EXPECT_EQ(post_coded(server, "br", "x", "/nowhere").status, 404);
  EXPECT_EQ(server.ask(get("/health", "Content-Encoding: br\r\n")).status, 200);
}

TEST(CodedBodies, ThatAreDamagedAreRefused) {
  TestServer server;
  const std::string whole = coded(request, gzip_bits);
  std::string damaged = whole;
  damaged[whole.size() - 5] ^= 1;  // of the checksum
  const std::initializer_list<std::tuple<std::string, std::string, std::string>> bodies = {
      {"gzip", whole.substr(0, whole.size() - 1), "it ends in the middle"},
      {"gzip", whole.substr(0, 3), "it ends in the middle"},
      {"gzip", damaged, "its bytes are damaged"},
      {"gzip", request, "its bytes are damaged"},
      {"gzip", cat(whole, "x"), "it ends in the middle"},
      {"deflate", cat(coded(request, zlib_bits), "x"), "bytes behind its end"},
      {"deflate", "\x78\x9c", "it ends in the middle"}};
  for (const auto& [coding, body, why] : bodies) {
    const Received refused = post_coded(server, coding, body);
    EXPECT_EQ(refused.status, 400) << coding << why;
    EXPECT_THAT(refused.error("message"), HasSubstr(cat("the body is no ", coding, ": ", why)));
  }
  EXPECT_EQ(post_coded(server, "gzip", "").status, 400) << "an empty body is no request";
  EXPECT_EQ(post_coded(server, "gzip", coded("[1]", gzip_bits)).error("message"),
            "the body is no JSON object: send one");
}

TEST(CodedBodies, ThatGrowBeyondTheLimitAreRefused) {
  TestServer server({.limits = {.body_bytes = 1 << 20}});
  server.engine().say("x");
  const std::string bomb = coded(std::string(64 << 20, ' '), gzip_bits);
  ASSERT_LT(bomb.size(), 100'000U);
  const Received refused = post_coded(server, "gzip", bomb);
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(refused.error("code"), "too_long");
  EXPECT_THAT(refused.error("message"), HasSubstr("more than 1048576 bytes, decoded"));
  const auto filled = [&](std::size_t bytes) {
    return coded(cat(request, std::string(bytes - request.size(), ' ')), gzip_bits);
  };
  EXPECT_EQ(post_coded(server, "gzip", filled(1 << 20)).status, 200);
  EXPECT_EQ(post_coded(server, "gzip", filled((1 << 20) + 1)).status, 413);
  // Other routes have smaller limits.
  TestServer loads({.adapter_loading = true});
  EXPECT_EQ(post_coded(loads, "gzip", filled(100'000), "/v1/unload_lora_adapter").status, 413);
}

TEST(CodedBodies, AreChargedAsTheyAreDecoded) {
  TestServer server({.limits = {.address_bodies_bytes = 256 << 10}});
  server.engine().say("x");
  const std::string large = coded(cat(request, std::string(1 << 20, ' ')), gzip_bits);
  ASSERT_LT(large.size(), 64U << 10);
  const Received refused = post_coded(server, "gzip", large);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_THAT(refused.error("message"), HasSubstr("may hold 262144 bytes together"));
  // And given back.
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(post_coded(server, "gzip", coded(request, gzip_bits)).status, 200);
}

TEST(DecodeBody, ChargesWhatItTakesAndNoMoreThanMayBe) {
  for (const std::size_t bytes :
       std::initializer_list<std::size_t>{0, 1, 16384, 16385, 100000, 1000000}) {
    std::size_t charged = 0;
    const auto charge = [&](std::size_t more) -> Result<void> {
      charged += more;
      return {};
    };
    const std::string text(bytes, 'x');
    const auto decoded = decode_body(coded(text, gzip_bits), BodyCoding::gzip, 1'000'000, charge);
    ASSERT_TRUE(decoded.ok()) << bytes;
    EXPECT_EQ(*decoded, text);
    EXPECT_GE(charged, bytes);
    EXPECT_LE(charged, 1'000'001U);
  }
  std::size_t charged = 0;
  const auto stop = [&](std::size_t more) -> Result<void> {
    charged += more;
    if (charged > 100'000) return Error(ErrorCode::busy, "full");
    return {};
  };
  const auto refused = decode_body(coded(std::string(1'000'000, 'x'), zlib_bits),
                                   BodyCoding::deflate, 1 << 24, stop);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::busy);
}

}  // namespace
}  // namespace motley::server
