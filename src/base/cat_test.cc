#include "base/cat.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace motley {
namespace {

TEST(Cat, JoinsTextCharactersAndBooleans) {
  EXPECT_EQ(cat(), "");
  EXPECT_EQ(cat("a", std::string("b"), std::string_view("c"), 'd', true, false), "abcdtruefalse");
  EXPECT_EQ(cat(std::string_view("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Cat, WritesEveryWidthOfIntegerAsANumber) {
  EXPECT_EQ(cat(std::int8_t{-128}, " ", std::uint8_t{65}), "-128 65");
  EXPECT_EQ(cat(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(cat(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(cat(0, std::uint16_t{7}, 8U, 9L, 10ULL), "078910");
}

TEST(Cat, WritesFloatsInTheShortestFormThatReadsBack) {
  EXPECT_EQ(cat(0.1), "0.1");
  EXPECT_EQ(cat(0.1F), "0.1");
  EXPECT_EQ(cat(2.0), "2");
  EXPECT_EQ(cat(-0.0), "-0");
  EXPECT_EQ(cat(1e300), "1e+300");
  EXPECT_EQ(cat(std::numeric_limits<double>::infinity()), "inf");
  const double longest = -std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(std::stod(cat(std::numeric_limits<double>::max())), std::numeric_limits<double>::max());
  EXPECT_EQ(cat(longest), "-5e-324");
}

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(join(std::vector<int>{}), "");
  EXPECT_EQ(join(std::vector<int>{1}), "1");
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}), "1, 2, 3");
  EXPECT_EQ(join(std::array<std::string_view, 2>{"a", "b"}, "|"), "a|b");
}

TEST(Printable, KeepsTextAndEscapesControlCharacters) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("caf\u00e9 \u65e5\u672c \U0001F600 \\ '\""),
            "caf\u00e9 \u65e5\u672c \U0001F600 \\ '\"");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(printable(std::string_view("\0\x1f\x7f", 3)), "\\x00\\x1f\\x7f");
  EXPECT_EQ(printable("\u0080\u009b\u00a0"), "\\xc2\\x80\\xc2\\x9b\u00a0");
}

TEST(Printable, EscapesWhatBreaksOrRearrangesALine) {
  EXPECT_EQ(printable("\u2028\u2029"), "\\xe2\\x80\\xa8\\xe2\\x80\\xa9");
  for (const char* each : {"\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e",
                           "\u2066", "\u2067", "\u2068", "\u2069"})
    EXPECT_EQ(printable(each).substr(0, 5), "\\xe2\\") << printable(each);
  for (const char* kept : {"\u200d", "\u2010", "\u2027", "\u202f", "\u2065", "\u206a"})
    EXPECT_EQ(printable(kept), kept);
}

TEST(Printable, EscapesEveryByteThatIsNotUtf8) {
  EXPECT_EQ(printable("a\x80z\xff"), "a\\x80z\\xff");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xe2\x82(\xe2\x82\xac"), "\\xe2\\x82(\u20ac");
}

TEST(Printable, AgainChangesNothing) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  EXPECT_EQ(printable(printable(every)), printable(every));
}

TEST(Quote, PutsSingleQuotesAround) {
  EXPECT_EQ(quote(""), "''");
  EXPECT_EQ(quote("a b"), "'a b'");
  EXPECT_EQ(quote("a\nb"), "'a\\nb'");
}

TEST(Quote, CutsWhatIsLongerThan200Bytes) {
  EXPECT_EQ(quote(std::string(200, 'x')), "'" + std::string(200, 'x') + "'");
  EXPECT_EQ(quote(std::string(201, 'x')), "'" + std::string(200, 'x') + "...' (201 bytes)");
}

TEST(Quote, DoesNotCutACharacter) {
  // Four bytes each, at every offset to the cut.
  for (std::size_t offset = 0; offset < 4; ++offset) {
    std::string text(offset, 'x');
    while (text.size() < 300) text += "\U0001F600";
    const std::string quoted = quote(text);
    EXPECT_TRUE(utf8::valid(quoted)) << quoted;
    EXPECT_EQ(quoted.find('\\'), std::string::npos) << quoted;
    EXPECT_TRUE(quoted.starts_with("'" + text.substr(0, 200 - (200 - offset) % 4) + "...'"))
        << quoted;
  }
}

TEST(Quote, ShowsTheBeginningOfWhatIsNotUtf8) {
  std::string escaped;
  for (int i = 0; i < 200; ++i) escaped += "\\x80";
  EXPECT_EQ(quote(std::string(300, '\x80')), "'" + escaped + "...' (300 bytes)");
}

}  // namespace
}  // namespace motley
