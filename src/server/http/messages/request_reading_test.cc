// Headers and bodies that arrive in pieces of any size.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "net/byte_stream.h"
#include "server/http/messages/request_head.h"
#include "server/http/wire/chunk_decoder.h"
#include "server/http/wire/head_scanner.h"

namespace motley::server {
namespace {

std::string head_with(std::string_view fields) {
  return cat("POST /x?y HTTP/1.1\r\nHost: a\r\n", fields, "\r\n");
}

HeadScanner::State scanned(std::string_view bytes) { return HeadScanner().scan(bytes); }

TEST(HeadScanner, FindsTheEndWhereverTheBytesAreCut) {
  const std::string head = head_with("A: b\r\n");
  const std::string bytes = head + "body";
  for (std::size_t cut = 0; cut < head.size(); ++cut) {
    HeadScanner scanner;
    ASSERT_EQ(scanner.scan(bytes.substr(0, cut)), HeadScanner::State::incomplete) << cut;
    ASSERT_EQ(scanner.scan(bytes), HeadScanner::State::complete) << cut;
    ASSERT_EQ(scanner.bytes(), head.size());
  }
}

TEST(HeadScanner, RefusesWhatTwoParsersReadDifferently) {
  using namespace std::string_view_literals;
  for (const std::string_view bytes :
       {"GET / HTTP/1.1\nHost: a\n\n"sv, "GET / HTTP/1.1\r\nHost: a\n\r\n"sv,
        "GET / HTTP/1.1\r\nHost: a\r\n\n"sv, "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"sv,
        "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"sv, "GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n"sv,
        "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n"sv, "GET / HTTP/1.1\r\nHost: \x7f\r\n\r\n"sv,
        "\x16\x03\x01"sv})
    EXPECT_EQ(scanned(bytes), HeadScanner::State::malformed) << printable(bytes);
}

TEST(RequestHead, SaysWhatFollowsIt) {
  const auto plain = parse_head(head_with("Content-Length: 7\r\nExpect: 100-Continue\r\n"));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->content_length, 7);
  EXPECT_TRUE(plain->expects_continue);
  EXPECT_EQ(plain->head.path, "/x");
  EXPECT_TRUE(plain->keep_alive);
  const auto chunked = parse_head(head_with("Transfer-Encoding: Chunked\r\n"));
  ASSERT_TRUE(chunked.ok());
  EXPECT_TRUE(chunked->chunked);
  const auto old = parse_head("GET / HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(old.ok());
  EXPECT_FALSE(old->keep_alive || old->has_body());
}

TEST(RequestHead, TakesTheTargetApart) {
  const auto head_of = [](std::string_view target) {
    return parse_head(cat("GET ", target, " HTTP/1.1\r\nHost: a\r\n\r\n"));
  };
  const auto head = head_of("/a%2Fb?version=1%2B+2&x?y=&%26=z");
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->head.path, "/a%2Fb");
  EXPECT_EQ(head->head.query.value("version").value(), "1+ 2");
  EXPECT_EQ(head->head.query.value("x?y").value(), "");
  EXPECT_EQ(head->head.query.value("&").value(), "z");
  EXPECT_EQ(head->head.query.value("x").value(), std::nullopt);
  EXPECT_EQ(head_of("/a")->head.query.value("").value(), std::nullopt);
  EXPECT_TRUE(head->head.query.well_formed());
  for (const char* const target : {"/b?%", "/b?a=%4", "/b?a=%4g", "/b?%%25"}) {
    const auto other = head_of(target);
    ASSERT_TRUE(other.ok()) << target;
    EXPECT_EQ(other->head.path, "/b");
    EXPECT_FALSE(other->head.query.well_formed()) << target;
  }
}

TEST(RequestHead, RefusesEveryDoubtAboutTheBodysEnd) {
  const std::vector<std::pair<std::string, ErrorCode>> cases = {
      {"Transfer-Encoding: gzip, chunked\r\n", ErrorCode::not_implemented},
      {"Transfer-Encoding: identity, chunked\r\n", ErrorCode::not_implemented},
      {"Transfer-Encoding: chunked, gzip\r\n", ErrorCode::invalid_argument},
      {"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", ErrorCode::invalid_argument},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", ErrorCode::invalid_argument},
      {"Transfer-Encoding: xchunked\r\n", ErrorCode::invalid_argument},
      {"Transfer-Encoding: \"chunked\"\r\n", ErrorCode::invalid_argument},
      {"Transfer-Encoding: identity\r\nContent-Length: 3\r\n", ErrorCode::invalid_argument},
      {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", ErrorCode::invalid_argument},
      {"Content-Length: 3\r\nContent-Length: 3\r\n", ErrorCode::invalid_argument},
      {"Content-Length: 3, 3\r\n", ErrorCode::invalid_argument},
      {"Content-Length: +3\r\n", ErrorCode::invalid_argument},
      {"Content-Length: 0x3\r\n", ErrorCode::invalid_argument},
      {"Content-Length: 3 3\r\n", ErrorCode::invalid_argument},
      {"Content-Length:\r\n", ErrorCode::invalid_argument},
      {"Content-Length: 18446744073709551616\r\n", ErrorCode::invalid_argument},
      {"Content-Length : 3\r\n", ErrorCode::invalid_argument},
      {"Content Length: 3\r\n", ErrorCode::invalid_argument},
      {": 3\r\n", ErrorCode::invalid_argument},
      {"no colon\r\n", ErrorCode::invalid_argument},
  };
  for (const auto& [fields, code] : cases) {
    const auto head = parse_head(head_with(fields));
    ASSERT_FALSE(head.ok()) << fields;
    EXPECT_EQ(head.error().code(), code) << fields << head.error().message();
  }
  EXPECT_FALSE(parse_head("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").ok());
  EXPECT_FALSE(parse_head("POST / HTTP/1.1\r\n\r\n").ok());
}

// The content of a body that arrives in pieces of this size, or the error.
Result<std::string> decoded(std::string_view bytes, std::size_t piece, std::size_t extra = 20) {
  ChunkDecoder decoder(extra);
  std::string content;
  while (!decoder.done() && !bytes.empty()) {
    MOTLEY_TRY(const ChunkDecoder::Step step, decoder.take(bytes.substr(0, piece)));
    content += step.content;
    bytes.remove_prefix(step.used);
  }
  if (!decoder.done()) return Error(ErrorCode::cancelled, "not the end");
  return cat(content, "|", bytes);
}

TEST(ChunkDecoder, TakesBodiesApartWhereverTheyAreCut) {
  const std::string_view body =
      "3\r\nabc\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nA: b\r\nC:\r\n\r\nnext";
  for (std::size_t piece = 1; piece <= body.size(); ++piece) {
    const auto content = decoded(body, piece);
    ASSERT_TRUE(content.ok()) << content.error().message();
    EXPECT_EQ(content->substr(0, 14), "abc0123456789|") << piece;
  }
  EXPECT_EQ(decoded(body, body.size()).value(), "abc0123456789|next");
  EXPECT_EQ(decoded("0\r\n\r\n", 1).value(), "|");
}

TEST(ChunkDecoder, RefusesWhatIsNotWellFormed) {
  using namespace std::string_view_literals;
  for (const std::string_view body :
       {"\r\n"sv, "x\r\n"sv, "-1\r\n"sv, "+1\r\na"sv, " 1\r\na"sv, "0x1\r\na"sv, "1 \r\na"sv,
        "1\na\r\n0\r\n\r\n"sv, "1\r\nab\r\n"sv, "1\r\na\n0\r\n\r\n"sv, "1\r\na\r\r"sv, "1;\n"sv,
        "1;\0\r\n"sv, "0\r\nA: b\n\r\n"sv, "0\r\n\n"sv, "ffffffffffffffff\r\na"sv,
        "10000000000000000\r\na"sv, "0000000000000001\r\na"sv})
    EXPECT_EQ(decoded(body, 1).error().code(), ErrorCode::invalid_argument) << printable(body);
}

TEST(ChunkDecoder, BoundsExtensionsAndTrailersTogether) {
  const std::string half(10, 'x');
  EXPECT_TRUE(decoded(cat("1;", half, "\r\na\r\n0\r\n", half, "\r\n\r\n"), 1).ok());
  EXPECT_EQ(decoded(cat("1;", half, "\r\na\r\n0\r\n", half, "x\r\n\r\n"), 1).error().code(),
            ErrorCode::too_long);
}

TEST(ClientAddress, OfIpv6IsItsNetwork) {
  const auto address = [](const char* text) {
    return net::client_address(boost::asio::ip::make_address(text));
  };
  EXPECT_EQ(address("10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(address("::ffff:10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(address("2001:db8:1:2:3:4:5:6"), address("2001:db8:1:2:ffff::1"));
  EXPECT_NE(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
}

}  // namespace
}  // namespace motley::server
