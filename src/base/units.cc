#include "base/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#define FMT_HEADER_ONLY
#include <fmt/format.h>

#include "base/cat.h"

namespace motley {
namespace {

// Of powers of 1024.
constexpr std::string_view unit_letters = "KMGT";

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto refuse = [&] {
    return Error(ErrorCode::invalid_argument, cat("not a size: ", quote(text)), "",
                 "give bytes, or a number with K, M, G or T (or KiB, KB, ...), e.g. 24G");
  };
  double unit = 1;
  const std::size_t letter = std::min(text.find_first_of(unit_letters), text.size());
  const std::string_view digits = text.substr(0, letter);
  if (letter < text.size()) {
    const std::string_view rest = text.substr(letter + 1);
    if (!rest.empty() && rest != "B" && rest != "iB") return refuse();
    unit = std::exp2(10.0 * static_cast<double>(unit_letters.find(text[letter]) + 1));
  }
  const char* const end = digits.data() + digits.size();
  if (unit == 1) {
    // Exact for every number of bytes, unlike a double.
    std::int64_t bytes = 0;
    const auto parsed = std::from_chars(digits.data(), end, bytes);
    if (parsed.ec != std::errc() || parsed.ptr != end || digits.front() == '-') return refuse();
    return static_cast<std::uint64_t>(bytes);
  }
  // strtod would accept "-0" and "inf".
  if (digits.find_first_not_of("0123456789.") != std::string_view::npos) return refuse();
  double number = 0;
  const auto parsed = std::from_chars(digits.data(), end, number, std::chars_format::fixed);
  if (parsed.ec != std::errc() || parsed.ptr != end) return refuse();
  const double bytes = std::floor(number * unit);
  if (!(bytes >= 0 && bytes < 0x1p63)) return refuse();
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return cat(bytes, " B");
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  // From 1023.95 on, one decimal would print 1024.0.
  while (number >= 1023.95 && unit + 1 < units.size()) {
    number /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", number, units[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

}  // namespace motley
