#include "base/log.h"

#include <array>
#include <cmath>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "base/utf8.h"

namespace motley::log {
namespace {

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { configure({}); }

  void start(Level level, Format format) {
    configure({.level = level, .format = format, .sink = [this](std::string_view line) {
                 lines_.emplace_back(line);
               }});
  }

  // The only line written since, without its newline.
  std::string line() {
    EXPECT_EQ(lines_.size(), 1U);
    if (lines_.empty()) return "";
    std::string text = lines_.back();
    lines_.clear();
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
    text.pop_back();
    return text;
  }

  // The same without the time.
  std::string after_time() {
    const std::string text = line();
    EXPECT_THAT(text, testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
                                            "\\.[0-9]{3}Z .*"));
    return text.size() < 25 ? text : text.substr(25);
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, TextLineHasTimeLevelEventAndFields) {
  start(Level::debug, Format::text);
  info("model.loaded", {{"layers", 48}, {"path", "/models/a"}, {"share", 0.5}, {"ready", true}});
  EXPECT_EQ(after_time(), "info    model.loaded layers=48 path=/models/a share=0.5 ready=true");
  debug("a");
  EXPECT_EQ(after_time(), "debug   a");
  warning("b");
  EXPECT_EQ(after_time(), "warning b");
  error("c", {{"bytes", std::uint64_t{61203283968}}});
  EXPECT_EQ(after_time(), "error   c bytes=61203283968");
}

TEST_F(LogTest, TextValuesAreQuotedWhereTheyCouldBeMistaken) {
  start(Level::debug, Format::text);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plain/value-1.5_x", "plain/value-1.5_x"},
      {"", "\"\""},
      {"a b", "\"a b\""},
      {"a=b", "\"a=b\""},
      {"a\"b", "\"a\\\"b\""},
      {"a\\b", "\"a\\\\b\""},
      {"a\nb", "\"a\\nb\""},
      {"a\x1b[2J", "\"a\\u001b[2J\""},
      {"\u009b2J", "\"\\u009b2J\""},
      {"caf\u00e9", "\"caf\u00e9\""},
      {"\xff", "\"\xef\xbf\xbd\""},
  };
  for (const auto& [value, shown] : cases) {
    info("e", {{"key", value}});
    EXPECT_EQ(after_time(), "info    e key=" + shown);
  }
}

TEST_F(LogTest, JsonLineParsesBack) {
  start(Level::debug, Format::json);
  warning("request.done", {{"name", "a \"b\"\n\xff"},
                           {"tokens", 12},
                           {"negative", std::int64_t{-5}},
                           {"share", 0.25},
                           {"large", 1e300},
                           {"letter", 'x'},
                           {"cached", false}});
  const std::string text = line();
  const auto parsed = json::parse(text, "log");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message() << "\n" << text;
  const json::Object& object = *parsed->if_object();
  EXPECT_EQ(object.size(), 10U);
  EXPECT_EQ(*object.find("level")->if_string(), "warning");
  EXPECT_EQ(*object.find("event")->if_string(), "request.done");
  EXPECT_EQ(object.find("time")->if_string()->size(), 24U);
  EXPECT_EQ(*object.find("name")->if_string(), "a \"b\"\n\xef\xbf\xbd");
  EXPECT_EQ(*object.find("tokens")->if_integer(), 12);
  EXPECT_EQ(*object.find("negative")->if_integer(), -5);
  EXPECT_EQ(object.find("share")->as_number("").value(), 0.25);
  EXPECT_EQ(object.find("large")->as_number("").value(), 1e300);
  EXPECT_EQ(*object.find("letter")->if_string(), "x");
  EXPECT_EQ(*object.find("cached")->if_boolean(), false);
}

TEST_F(LogTest, JsonLineStaysJsonWithInfiniteAndUndefinedNumbers) {
  start(Level::debug, Format::json);
  info("e", {{"a", HUGE_VAL}, {"b", -HUGE_VAL}, {"c", std::nan("")}, {"d", -std::nan("")}});
  const std::string text = line();
  const auto parsed = json::parse(text, "log");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message() << "\n" << text;
  EXPECT_EQ(*parsed->if_object()->find("a")->if_string(), "inf");
  EXPECT_EQ(*parsed->if_object()->find("b")->if_string(), "-inf");
}

TEST_F(LogTest, CharacterIsText) {
  start(Level::debug, Format::text);
  info("e", {{"key", ' '}, {"other", 'x'}});
  EXPECT_EQ(after_time(), "info    e key=\" \" other=x");
}

TEST_F(LogTest, WritesOnlyFromItsLevelOn) {
  const std::vector<Level> levels = {Level::debug, Level::info, Level::warning, Level::error};
  for (const Level set : {Level::debug, Level::info, Level::warning, Level::error, Level::off}) {
    start(set, Format::text);
    for (const Level level : levels) {
      EXPECT_EQ(enabled(level), level >= set && set != Level::off);
      write(level, "e", {});
    }
    EXPECT_FALSE(enabled(Level::off));
    EXPECT_EQ(lines_.size(), 4 - static_cast<std::size_t>(set));
    lines_.clear();
  }
}

TEST_F(LogTest, LinesOfSeveralThreadsStayWhole) {
  start(Level::info, Format::text);
  constexpr int threads = 4;
  constexpr int each = 500;
  std::vector<std::thread> writers;
  for (int t = 0; t < threads; ++t) {
    writers.emplace_back([t] {
      for (int i = 0; i < each; ++i) info("e", {{"thread", t}, {"i", i}});
    });
  }
  for (std::thread& writer : writers) writer.join();
  ASSERT_EQ(lines_.size(), static_cast<std::size_t>(threads * each));
  for (const std::string& text : lines_)
    ASSERT_THAT(text, testing::MatchesRegex("[^ ]+ info    e thread=[0-9] i=[0-9]+\n"));
}

TEST_F(LogTest, GoesToStandardErrorWithoutASink) {
  configure({.level = Level::info, .format = Format::text, .sink = {}});
  testing::internal::CaptureStderr();
  info("started", {{"port", 8000}});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("started port=8000\n"));
}

TEST_F(LogTest, JsonLineParsesWhateverIsInItsFields) {
  start(Level::debug, Format::json);
  std::vector<std::string> hostile = {"/models/\"; DROP\n{\"a\":1}",
                                      "\xc3",
                                      "\xed\xa0\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xe2\x80\xa8",
                                      "\x7f\x1b[2J",
                                      "\xff\xfe",
                                      std::string("a\0b", 3),
                                      "}\n{\"level\":\"error\"}",
                                      "\\",
                                      "\\u0000",
                                      "\xef\xbb\xbf"};
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  hostile.push_back(all);
  for (const std::string& value : hostile) {
    error(value, {{"path", value}, {"letter", value[0]}});
    const std::string text = line();
    const auto parsed = json::parse(text, "log");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message() << "\n" << text;
    EXPECT_EQ(*parsed->if_object()->find("path")->if_string(), utf8::repaired(value));
    EXPECT_EQ(*parsed->if_object()->find("event")->if_string(), utf8::repaired(value));
  }
}

TEST_F(LogTest, LongTextIsCutBetweenCharacters) {
  for (const Format format : {Format::text, Format::json}) {
    start(Level::debug, format);
    std::string value = "x";
    while (value.size() < 100'000) value += "\xe2\x82\xac";
    info("e", {{"value", value}});
    const std::string text = line();
    EXPECT_LT(text.size(), 9'000U);
    EXPECT_EQ(text.find("\xef\xbf\xbd"), std::string::npos);
  }
}

// Replaces standard error during a test: a pipe that is read at the end, or never.
class StandardError {
 public:
  StandardError() : before_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    ::dup2(ends_[1], STDERR_FILENO);
    ::close(ends_[1]);
  }
  ~StandardError() {
    restore();
    ::close(ends_[0]);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  std::string read() {
    restore();
    std::string text;
    std::array<char, 4096> piece{};
    ssize_t count = 0;
    while ((count = ::read(ends_[0], piece.data(), piece.size())) > 0)
      text.append(piece.data(), static_cast<std::size_t>(count));
    return text;
  }

 private:
  void restore() {
    if (before_ < 0) return;
    ::dup2(before_, STDERR_FILENO);
    ::close(std::exchange(before_, -1));
  }

  int before_;
  std::array<int, 2> ends_ = {-1, -1};
};

TEST_F(LogTest, BackgroundWritesEverythingByItsEnd) {
  configure({});
  StandardError standard_error;
  {
    const Background background;
    info("first");
    write_beside("beside\n");
    info("last");
  }
  EXPECT_THAT(standard_error.read(),
              testing::MatchesRegex("[^ ]+ info    first\nbeside\n[^ ]+ info    last\n"));
}

TEST_F(LogTest, AReaderThatStopsReadingBlocksNoThread) {
  configure({});
  const std::uint64_t before = lost();
  const StandardError standard_error;
  const Background background;
  const std::string value(4000, 'x');
  for (int i = 0; i < 2000; ++i) info("e", {{"value", value}});
  write_beside(value);
  EXPECT_GT(lost(), before);
}

TEST(LogDeathTest, ABrokenInvariantIsReportedAfterTheLog) {
  EXPECT_DEATH(
      {
        const Background background;
        info("the.last.line");
        MOTLEY_CHECK(false, "nothing holds");
      },
      "info    the.last.line\n.*broken invariant.*nothing holds");
}

TEST(LogFormat, IsReadByName) {
  EXPECT_EQ(parse_format("text").value(), Format::text);
  EXPECT_EQ(parse_format("json").value(), Format::json);
  EXPECT_EQ(parse_format("yaml").error().message(),
            "unknown log format 'yaml': use one of text, json");
}

TEST(LogLevel, IsReadByName) {
  EXPECT_EQ(parse_level("debug").value(), Level::debug);
  EXPECT_EQ(parse_level("info").value(), Level::info);
  EXPECT_EQ(parse_level("warning").value(), Level::warning);
  EXPECT_EQ(parse_level("error").value(), Level::error);
  EXPECT_EQ(parse_level("off").value(), Level::off);
}

TEST(LogLevel, UnknownNameListsTheKnownOnes) {
  for (const char* wrong : {"", "INFO", "warn", "trace"}) {
    const auto level = parse_level(wrong);
    ASSERT_FALSE(level.ok()) << wrong;
    EXPECT_EQ(level.error().message(),
              cat("unknown log level '", wrong, "': use one of debug, info, warning, error, off"));
  }
}

}  // namespace
}  // namespace motley::log
