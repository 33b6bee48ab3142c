#include "text/stop_matcher.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::text {
namespace {

struct Ending {
  std::string text;
  std::optional<std::size_t> stop;

  bool operator==(const Ending&) const = default;
};

StopMatcher matcher_of(std::vector<std::string> stops, bool include) {
  return {StopStrings::make(std::move(stops)).value(), include};
}

Ending read(const std::vector<std::string>& stops, bool include,
            const std::vector<std::string>& pieces) {
  StopMatcher matcher = matcher_of(stops, include);
  Ending ending;
  for (const std::string& piece : pieces) {
    const StopMatcher::Output output = matcher.push(piece);
    ending.text += output.text;
    ending.stop = output.stop;
    if (ending.stop) return ending;
  }
  ending.text += matcher.finish();
  return ending;
}

// The same by comparing every stop string at every byte.
Ending expected(const std::vector<std::string>& stops, bool include, std::string_view text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    Ending found;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (!text.substr(0, end).ends_with(stops[i])) continue;
      if (!found.stop || stops[i].size() > stops[*found.stop].size()) found.stop = i;
    }
    if (!found.stop) continue;
    found.text = text.substr(0, include ? end : end - stops[*found.stop].size());
    return found;
  }
  return {.text = std::string(text), .stop = std::nullopt};
}

TEST(StopMatcher, EndsTextAcrossPieces) {
  EXPECT_EQ(read({"END", "STOP"}, false, {"one ST", "O", "P two"}), (Ending{"one ", 1}));
  EXPECT_EQ(read({"END", "STOP"}, true, {"one ST", "O", "P two"}), (Ending{"one STOP", 1}));
  EXPECT_EQ(read({"STOP"}, false, {"one ST", "O"}), (Ending{"one STO", std::nullopt}));
  EXPECT_EQ(read({}, false, {"a", "b"}), (Ending{"ab", std::nullopt}));
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher = matcher_of({"\n\nUser:", "###"}, false);
  EXPECT_EQ(matcher.push("hello").text, "hello");
  EXPECT_EQ(matcher.push(" #").text, " ");
  EXPECT_EQ(matcher.push("#!").text, "##!");
  EXPECT_EQ(matcher.push("\n\n").text, "");
  EXPECT_EQ(matcher.push("\n").text, "\n");
  EXPECT_EQ(matcher.push("\u00E4").text, "\n\n\u00E4");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TakesTheLongerOfTwoThatEndTogether) {
  EXPECT_EQ(read({"b", "ab"}, false, {"xab"}), (Ending{"x", 1}));
  EXPECT_EQ(read({"abc", "b"}, false, {"xabc"}), (Ending{"xa", 1}));
}

TEST(StopMatcher, IsTheSameHoweverTheTextIsCut) {
  std::mt19937 random(1);
  const auto text = [&](std::size_t most) {
    std::string made(1 + random() % most, 'a');
    for (char& c : made) c = "ab\n"[random() % 3];
    return made;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (auto i = random() % 4; i > 0; --i) stops.push_back(text(5));
    const std::string whole = text(30);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < whole.size();) {
      pieces.push_back(whole.substr(at, random() % 4));
      at += pieces.back().size();
    }
    const bool include = round % 2 == 0;
    const Ending found = read(stops, include, pieces);
    ASSERT_EQ(found, expected(stops, include, whole)) << testing::PrintToString(stops) << whole;
  }
}

TEST(StopMatcher, TextThatMayNotEndYetGoesOn) {
  StopMatcher matcher = matcher_of({"##", "end"}, false);
  EXPECT_EQ(matcher.push("a##b", false).text, "a##b");
  EXPECT_EQ(matcher.push("end", false).text, "end");
  EXPECT_EQ(matcher.push(" e", false).text, " ");
  const StopMatcher::Output across = matcher.push("nd!");
  EXPECT_EQ(across.text, "") << "what began before may end the text after";
  EXPECT_EQ(across.stop, 1U);
}

// An ignored stop string may overlap with one that counts.
TEST(StopMatcher, FindsAStopThatOverlapsOneThatDidNotCount) {
  StopMatcher matcher = matcher_of({"aba"}, false);
  EXPECT_EQ(matcher.push("xaba", false).text, "xab");
  const StopMatcher::Output found = matcher.push("bab");
  EXPECT_EQ(found.text, "");
  EXPECT_EQ(found.stop, 0U);
}

TEST(StopMatcher, EarlyTextIsTheSameHoweverItIsCut) {
  std::mt19937 random(2);
  for (int round = 0; round < 5000; ++round) {
    std::string whole(1 + random() % 20, 'a');
    for (char& c : whole) c = "ab"[random() % 2];
    std::string stop(1 + random() % 4, 'a');
    for (char& c : stop) c = "ab"[random() % 2];
    const std::size_t early = random() % (whole.size() + 1);
    // The first position after the border where the stop string ends.
    std::size_t end = std::max(early + 1, stop.size());
    while (end <= whole.size() && !std::string_view(whole).substr(0, end).ends_with(stop)) ++end;
    const bool stops = end <= whole.size();
    const std::string wanted = stops ? whole.substr(0, end - stop.size()) : whole;

    StopMatcher matcher = matcher_of({stop}, false);
    std::string found;
    bool stopped = false;
    for (std::size_t at = 0; at < whole.size() && !stopped;) {
      const std::size_t limit = at < early ? early : whole.size();
      const std::size_t size = std::min(limit - at, std::size_t{1} + random() % 3);
      const StopMatcher::Output output = matcher.push(whole.substr(at, size), at >= early);
      found += output.text;
      stopped = output.stop.has_value();
      at += size;
    }
    if (!stopped) found += matcher.finish();
    ASSERT_EQ(stopped, stops) << whole << ", stop " << stop << ", early " << early;
    ASSERT_EQ(found, wanted) << whole << ", stop " << stop << ", early " << early;
  }
}

TEST(StopMatcher, TextsShareTheirStopStrings) {
  const auto stops = StopStrings::make({"ab", "b!"}).value();
  StopMatcher one(stops, false);
  StopMatcher other(stops, false);
  EXPECT_EQ(one.push("xa").text, "x");
  EXPECT_EQ(other.push("b").text, "");
  EXPECT_EQ(one.push("b").stop, 0);
  EXPECT_EQ(other.push("!").stop, 1);
}

TEST(StopMatcher, RefusesAnEmptyStop) {
  EXPECT_THAT(StopStrings::make({"a", ""}).error().message(),
              testing::HasSubstr("stop string 1 is empty"));
}

}  // namespace
}  // namespace motley::text
