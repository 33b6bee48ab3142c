#include "base/log.h"

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

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

  // The one line written since, without its end.
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
