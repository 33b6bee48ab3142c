#include "cli/ask/side_by_side.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The visible text of a line, without escape sequences for colours and weights.
std::string shown(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b')
      i = line.find('m', i);
    else
      text += line[i];
  }
  return text;
}

std::vector<std::string> shown(const std::vector<Voice>& voices, const Canvas& canvas) {
  std::vector<std::string> lines = side_by_side(voices, canvas);
  std::ranges::transform(lines, lines.begin(), [](const std::string& line) { return shown(line); });
  return lines;
}

std::vector<Voice> six_voices() {
  std::vector<Voice> voices;
  for (const char* name : {"base", "one", "two", "three", "four", "five"})
    voices.push_back({.name = name, .text = cat("said by ", name), .tokens = 3, .ended = true});
  return voices;
}

TEST(Wrapped, BreaksAtSpacesAndKeepsLines) {
  EXPECT_THAT(wrapped("the cat sat on\nthe mat", 7), ElementsAre("the cat", "sat on", "the mat"));
  EXPECT_THAT(wrapped("a\n\n  b", 7), ElementsAre("a", "", "  b"));
  EXPECT_THAT(wrapped("", 7), ElementsAre());
}

TEST(Wrapped, CutsWordsThatNoLineHolds) {
  EXPECT_THAT(wrapped("ab abcdefgh i", 3), ElementsAre("ab", "abc", "def", "gh", "i"));
}

TEST(Wrapped, CountsColumnsOfATerminal) {
  EXPECT_EQ(columns_of("naïve"), 5);
  EXPECT_EQ(columns_of("nai\u0308ve"), 5);
  EXPECT_EQ(columns_of("日本"), 4);
  EXPECT_THAT(wrapped("日本語", 4), ElementsAre("日本", "語"));
}

TEST(Wrapped, AModelCannotMoveTheCursor) {
  EXPECT_THAT(wrapped("a\x1b[2Jb\r\x7f", 20), ElementsAre("a\uFFFD[2Jb\uFFFD\uFFFD"));
  EXPECT_THAT(wrapped("a\u202Eb", 20), ElementsAre("a\uFFFDb"));
}

TEST(SideBySide, AWideTerminalHasAllInOneRow) {
  const auto lines = shown(six_voices(), {.width = 6 * 32 + 5 * 3});
  ASSERT_EQ(lines.size(), 2);
  EXPECT_THAT(lines[0], HasSubstr("base ──"));
  EXPECT_THAT(lines[0], HasSubstr("── 3 tokens   five ─"));
  EXPECT_THAT(lines[1], testing::StartsWith("said by base" + std::string(23, ' ') + "said by one"));
}

TEST(SideBySide, ANarrowOneHasThemBelowEachOther) {
  const auto lines = shown(six_voices(), {.width = 40});
  EXPECT_EQ(lines.size(), 6 * 2 + 5);
  EXPECT_EQ(lines[1], "said by base");
  EXPECT_EQ(lines[2], "");
}

TEST(SideBySide, RowsAreFilledEvenly) {
  // Wide enough for four columns: two rows of three, not four and two.
  const auto lines = shown(six_voices(), {.width = 4 * 32 + 3 * 3});
  EXPECT_EQ(lines.size(), 5);
  EXPECT_THAT(lines[0], HasSubstr("two"));
  EXPECT_THAT(lines[0], Not(HasSubstr("three")));
}

TEST(SideBySide, NoLineIsWiderOrTallerThanTheCanvas) {
  std::vector<Voice> voices = six_voices();
  for (Voice& voice : voices)
    for (int i = 0; i < 40; ++i) voice.text += " and something more";
  voices[1].name = std::string(50, 'n');
  for (std::size_t width = 1; width < 260; ++width) {
    for (const std::string& line : shown(voices, {.width = width}))
      ASSERT_LE(columns_of(line), width) << line;
  }
  for (const std::size_t height : {20U, 30U, 50U})
    EXPECT_LE(side_by_side(voices, {.width = 120, .height = height}).size(), height);
}

TEST(SideBySide, WhereHeightEndsTheLastLinesAreShown) {
  const std::vector<Voice> voices = {{.name = "base", .text = "1\n2\n3\n4\n5\n6", .tokens = 11}};
  EXPECT_THAT(shown(voices, {.width = 20, .height = 5}),
              ElementsAre("base ───── 11 tokens", "4", "5", "6"));
}

TEST(SideBySide, SaysHowItEnded) {
  const std::vector<Voice> voices = {
      {.name = "a", .text = "x", .tokens = 1, .ended = true, .cut_off = true},
      {.name = "b", .text = "no such adapter", .ended = true, .failed = true},
      {.name = "c"}};
  const auto lines = shown(voices, {.width = 20});
  EXPECT_THAT(lines, ElementsAre("a ────────── 1 token", "x", "…", "", "b ─────────── failed",
                                 "no such adapter", "", "c ────────── waiting"));
}

}  // namespace
}  // namespace motley::cli
