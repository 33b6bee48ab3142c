#include "base/utf8.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace motley::utf8 {
namespace {

constexpr const char* replacement = "\xef\xbf\xbd";

std::string encoded(char32_t code_point) {
  std::string text;
  append(text, code_point);
  return text;
}

std::string replacements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += replacement;
  return text;
}

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = encoded(c);
    const Decoded back = decode(text + "x");
    ASSERT_TRUE(back.valid && back.code_point == c && back.length == text.size())
        << std::hex << static_cast<std::uint32_t>(c) << " gives "
        << static_cast<std::uint32_t>(back.code_point) << ", length " << back.length;
    ASSERT_EQ(text.size(), c < 0x80 ? 1U : c < 0x800 ? 2U : c < 0x10000 ? 3U : 4U);
  }
}

TEST(Utf8, HasTheBytesOfTheStandardAtEveryBoundary) {
  EXPECT_EQ(encoded(0x00), std::string(1, '\0'));
  EXPECT_EQ(encoded(0x7F), "\x7f");
  EXPECT_EQ(encoded(0x80), "\xc2\x80");
  EXPECT_EQ(encoded(0x7FF), "\xdf\xbf");
  EXPECT_EQ(encoded(0x800), "\xe0\xa0\x80");
  EXPECT_EQ(encoded(0xD7FF), "\xed\x9f\xbf");
  EXPECT_EQ(encoded(0xE000), "\xee\x80\x80");
  EXPECT_EQ(encoded(0xFFFF), "\xef\xbf\xbf");
  EXPECT_EQ(encoded(0x10000), "\xf0\x90\x80\x80");
  EXPECT_EQ(encoded(0x10FFFF), "\xf4\x8f\xbf\xbf");
}

// The well-formed sequences of three bytes and fewer, counted by brute force.
TEST(Utf8, AcceptsNothingBesideTheCodePoints) {
  int characters = 0;
  for (std::uint32_t bytes = 0; bytes < (1U << 24); ++bytes) {
    const char text[] = {static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8),
                         static_cast<char>(bytes)};
    const Decoded next = decode({text, 3});
    if (!next.valid) {
      ASSERT_EQ(next.code_point, 0xFFFDU);
      ASSERT_TRUE(next.length >= 1 && next.length <= 3);
    } else if (next.length == 3) {
      ++characters;
    } else if (next.length == 2 && text[2] == 0) {
      ++characters;
    } else if (next.length == 1 && text[1] == 0 && text[2] == 0) {
      ++characters;
    }
  }
  EXPECT_EQ(characters, 0x10000 - 0x800);
}

TEST(Utf8, RefusesBrokenSequences) {
  const std::vector<std::string> broken = {
      "\x80",              // a continuation byte alone
      "\xbf",              //
      "\xc0\x80",          // overlong
      "\xc1\xbf",          //
      "\xe0\x80\x80",      //
      "\xe0\x9f\xbf",      //
      "\xf0\x80\x80\x80",  //
      "\xf0\x8f\xbf\xbf",  //
      "\xed\xa0\x80",      // surrogates
      "\xed\xbf\xbf",      //
      "\xf4\x90\x80\x80",  // beyond U+10FFFF
      "\xf5\x80\x80\x80",  //
      "\xfe",              // bytes that never occur
      "\xff",              //
      "\xc2",              // cut off
      "\xe2\x82",          //
      "\xf0\x9f\x98",      //
      "\xe2\x28\xa1",      // a continuation byte missing
  };
  for (const std::string& text : broken) {
    EXPECT_FALSE(valid(text)) << repaired(text);
    EXPECT_FALSE(valid("abc" + text));
    EXPECT_FALSE(valid(text + "abc"));
  }
  EXPECT_TRUE(valid(""));
  EXPECT_TRUE(valid("a\u00e9\u20ac\U0001F600"));
  EXPECT_TRUE(valid(std::string_view("\0", 1)));
}

TEST(Utf8, RepairsEachMaximalPartAsOneReplacement) {
  struct Case {
    std::string broken;
    std::string wanted;
  };
  // As the WHATWG decoder and Python's errors="replace".
  const std::vector<Case> cases = {
      {"", ""},
      {"plain \u20ac", "plain \u20ac"},
      {"a\x80z", "a" + replacements(1) + "z"},
      {"\xc0\x80", replacements(2)},
      {"\xe0\x80\x80", replacements(3)},
      {"\xed\xa0\x80", replacements(3)},
      {"\xf4\x90\x80\x80", replacements(4)},
      {"\xf5\x80\x80\x80", replacements(4)},
      {"\xe2\x82", replacements(1)},
      {"\xe2\x82(", replacements(1) + "("},
      {"\xf0\x9f\x98", replacements(1)},
      {"\xf0\x9f\x98\xe2\x82\xac", replacements(1) + "\u20ac"},
      {"\xf0\x9f\xf0\x9f\x98\x80", replacements(1) + "\U0001F600"},
      // The example of the Unicode standard, chapter 3, table 3-8.
      {"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64",
       "a" + replacements(3) + "b" + replacements(1) + "c" + replacements(2) + "d"},
  };
  for (const Case& c : cases) EXPECT_EQ(repaired(c.broken), c.wanted);
}

TEST(Utf8, RepairIsValidAndLeavesValidTextAlone) {
  std::mt19937 random(3);
  const std::string alphabet = "a\x80\xbf\xc2\xe0\xe2\x82\xac\xed\xa0\xf0\x90\x9f\xf4\x8f\xff";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += alphabet[random() % alphabet.size()];
    const std::string whole = repaired(text);
    ASSERT_TRUE(valid(whole));
    ASSERT_EQ(repaired(whole), whole);
    if (valid(text)) {
      ASSERT_EQ(whole, text);
    }
  }
}

TEST(Utf8, IncompleteTailIsWhatMayStillBecomeACharacter) {
  EXPECT_EQ(incomplete_tail(""), 0U);
  EXPECT_EQ(incomplete_tail("abc"), 0U);
  for (const std::string character : {"\u00e9", "\u20ac", "\U0001F600", "\U0010FFFF"}) {
    EXPECT_EQ(incomplete_tail("x" + character), 0U) << character;
    for (std::size_t length = 1; length < character.size(); ++length) {
      EXPECT_EQ(incomplete_tail(character.substr(0, length)), length) << character;
      EXPECT_EQ(incomplete_tail("x" + character.substr(0, length)), length) << character;
    }
  }
}

TEST(Utf8, WhatCanNoLongerBecomeACharacterIsNoTail) {
  for (const char* text : {"\x80", "\x80\x80\x80\x80", "\xc0", "\xff", "\xf5", "\xe0\x80",
                           "\xed\xa0", "\xf0\x80", "\xf4\x90", "\xe2\x82\xac\x80", "\xf0\x9f\x28"})
    EXPECT_EQ(incomplete_tail(text), 0U) << repaired(text);
}

TEST(Utf8, TextCutAnywhereJoinsAgain) {
  const std::string text = "a\u00e9\u20ac\U0001F600z\u00df\u65e5";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string first = text.substr(0, cut);
    const std::size_t tail = incomplete_tail(first);
    EXPECT_TRUE(valid(first.substr(0, first.size() - tail))) << cut;
    EXPECT_TRUE(valid(first.substr(first.size() - tail) + text.substr(cut))) << cut;
  }
}

}  // namespace
}  // namespace motley::utf8
