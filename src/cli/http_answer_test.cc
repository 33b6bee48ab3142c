#include "cli/http_answer.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace motley::cli {
namespace {

constexpr std::string_view chunked =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n";

TEST(HttpAnswer, IsTheSameHoweverItsBytesCome) {
  for (const std::string_view text :
       {chunked, std::string_view("HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nhello, world")}) {
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
      HttpAnswer answer;
      std::string body;
      for (std::size_t at = 0; at < text.size(); at += piece) {
        EXPECT_FALSE(answer.complete());
        ASSERT_TRUE(answer.take(text.substr(at, piece)).ok());
        body += answer.take_body();
      }
      EXPECT_TRUE(answer.complete());
      EXPECT_EQ(answer.status(), 200);
      EXPECT_EQ(body, "hello, world");
      EXPECT_TRUE(answer.end().ok());
    }
  }
}

TEST(HttpAnswer, ABodyWithoutLengthEndsWithItsConnection) {
  HttpAnswer answer;
  ASSERT_TRUE(answer.take("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\nno").ok());
  EXPECT_FALSE(answer.complete());
  EXPECT_TRUE(answer.end().ok());
  EXPECT_TRUE(answer.complete());
  EXPECT_EQ(answer.status(), 404);
  EXPECT_EQ(answer.take_body(), "no");
}

TEST(HttpAnswer, RefusesWhatIsNone) {
  for (const std::string_view text :
       {"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 two\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n"})
    EXPECT_FALSE(HttpAnswer().take(text).ok()) << text;
  EXPECT_FALSE(HttpAnswer().take(std::string(100'000, 'x')).ok());
}

TEST(HttpAnswer, NoticesThatItsEndIsMissing) {
  HttpAnswer answer;
  ASSERT_TRUE(answer.take(chunked.substr(0, chunked.size() - 2)).ok());
  EXPECT_FALSE(answer.end().ok());
}

TEST(EventReader, GivesWholeEventsOnly) {
  EventReader events;
  events.take(": keep-alive\n\ndata: {\"a\"");
  EXPECT_EQ(events.next(), std::nullopt);
  events.take(": 1}\n\ndata: [DONE]\n\n");
  EXPECT_EQ(events.next(), "{\"a\": 1}");
  EXPECT_EQ(events.next(), "[DONE]");
  EXPECT_EQ(events.next(), std::nullopt);
}

TEST(Metrics, AreFoundByTheirWholeNames) {
  constexpr std::string_view page =
      "# TYPE steps counter\nsteps_total 12\nsteps 3.5\ninfo{max=\"4\",running=\"a,b\"} 1.0\n";
  EXPECT_EQ(metric(page, "steps"), 3.5);
  EXPECT_EQ(metric(page, "steps_total"), 12);
  EXPECT_EQ(metric(page, "total"), std::nullopt);
  EXPECT_EQ(metric_label(page, "info", "running"), "a,b");
  EXPECT_EQ(metric_label(page, "info", "waiting"), "");
  EXPECT_EQ(metric_label(page, "steps", "running"), "");
}

}  // namespace
}  // namespace motley::cli
