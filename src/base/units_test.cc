#include "base/units.h"

#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(ParseSize, ReadsBytesAndPowersOf1024) {
  EXPECT_EQ(parse_size("0").value(), 0U);
  EXPECT_EQ(parse_size("1").value(), 1U);
  EXPECT_EQ(parse_size("1K").value(), 1024U);
  EXPECT_EQ(parse_size("3M").value(), 3ULL << 20);
  EXPECT_EQ(parse_size("24G").value(), 24ULL << 30);
  EXPECT_EQ(parse_size("2T").value(), 2ULL << 40);
}

TEST(ParseSize, ReadsUnitsWrittenOutAsTheirLetters) {
  EXPECT_EQ(parse_size("1KiB").value(), 1024U);
  EXPECT_EQ(parse_size("1KB").value(), 1024U);
  EXPECT_EQ(parse_size("256MiB").value(), 256ULL << 20);
  EXPECT_EQ(parse_size("256MB").value(), 256ULL << 20);
  EXPECT_EQ(parse_size("24GiB").value(), 24ULL << 30);
  EXPECT_EQ(parse_size("1.5GB").value(), 3ULL << 29);
  EXPECT_EQ(parse_size("2TiB").value(), 2ULL << 40);
  EXPECT_EQ(parse_size("0.5TB").value(), 1ULL << 39);
}

TEST(ParseSize, ReadsFractionsDownToWholeBytes) {
  EXPECT_EQ(parse_size("1.5G").value(), 3ULL << 29);
  EXPECT_EQ(parse_size("0.5K").value(), 512U);
  EXPECT_EQ(parse_size("0.1K").value(), 102U);
  EXPECT_EQ(parse_size("0K").value(), 0U);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"",
                           " ",
                           "K",
                           "G",
                           ".",
                           ".K",
                           "1k",
                           "1kB",
                           "1kib",
                           "1Ki",
                           "1KIB",
                           "1KiBB",
                           "1KBi",
                           "1KK",
                           "1B",
                           "1 KiB",
                           "KiB",
                           "1KiB ",
                           "1 K",
                           " 1",
                           "1 ",
                           "+1",
                           "-1",
                           "-1K",
                           "-0K",
                           "-0",
                           "1.5",
                           "1e3",
                           "1e3K",
                           "0x10",
                           "0x1K",
                           "infK",
                           "nanK",
                           "1.2.3G",
                           "1,5G",
                           "24GG",
                           "9223372036854775808",
                           "18446744073709551615",
                           "18446744073709551616",
                           "8388608T",
                           "99999999999999999999999G",
                           "1\n"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.ok()) << text << " gives " << size.value();
    EXPECT_EQ(size.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(size.error().message().find("not a size: '"), std::string::npos);
  }
}

TEST(ParseSize, TakesTheLargestThatFits63Bits) {
  EXPECT_EQ(parse_size("8388607T").value(), 8388607ULL << 40);
  EXPECT_EQ(parse_size("9223372036854775807").value(), (1ULL << 63) - 1);
}

TEST(FormatBytes, HasOneDecimalFromOneKibibyteOn) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(4096), "4.0 KiB");
  EXPECT_EQ(format_bytes(1ULL << 20), "1.0 MiB");
  EXPECT_EQ(format_bytes(61'418'017'127), "57.2 GiB");
  EXPECT_EQ(format_bytes(1ULL << 40), "1.0 TiB");
  EXPECT_EQ(format_bytes(1ULL << 50), "1024.0 TiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16777216.0 TiB");
}

TEST(FormatBytes, GoesToTheNextUnitBeforePrinting1024) {
  for (int unit = 2; unit <= 4; ++unit) {
    const std::uint64_t next = 1ULL << (10 * unit);
    EXPECT_EQ(format_bytes(next - 1).substr(0, 4), "1.0 ") << unit;
    for (std::uint64_t bytes = next - next / 10; bytes < next; bytes += next / 5000 + 1)
      ASSERT_FALSE(format_bytes(bytes).starts_with("1024")) << bytes;
  }
}

TEST(FormatSeconds, ChoosesTheUnitBySize) {
  EXPECT_EQ(format_seconds(0), "0 us");
  EXPECT_EQ(format_seconds(830e-6), "830 us");
  EXPECT_EQ(format_seconds(999.4e-6), "999 us");
  EXPECT_EQ(format_seconds(0.9996e-3), "1 ms");
  EXPECT_EQ(format_seconds(12.4e-3), "12.4 ms");
  EXPECT_EQ(format_seconds(999.4e-3), "999 ms");
  EXPECT_EQ(format_seconds(0.9996), "1 s");
  EXPECT_EQ(format_seconds(3.21), "3.21 s");
  EXPECT_EQ(format_seconds(59.94), "59.9 s");
  EXPECT_EQ(format_seconds(59.96), "1 min 00 s");
  EXPECT_EQ(format_seconds(125), "2 min 05 s");
  EXPECT_EQ(format_seconds(119.7), "2 min 00 s");
  EXPECT_EQ(format_seconds(7200), "120 min 00 s");
}

TEST(FormatSeconds, NeverPrintsAThousandOfAUnit) {
  for (double time = 1e-6; time < 100; time *= 1.0007) {
    const std::string text = format_seconds(time);
    ASSERT_FALSE(text.starts_with("1000") || text.starts_with("1e+") || text == "60 s")
        << time << " gives " << text;
  }
}

}  // namespace
}  // namespace motley
