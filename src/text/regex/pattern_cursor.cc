#include "text/regex/pattern_cursor.h"

#include "base/utf8.h"

namespace motley::text::regex {
namespace {

constexpr std::size_t shown_length = 80;
constexpr char32_t last_code_point = 0x10FFFF;

// The pattern, shortened for messages.
std::string shown(std::string_view pattern) {
  if (pattern.size() <= shown_length) return std::string(pattern);
  std::string_view start = pattern.substr(0, shown_length);
  start.remove_suffix(utf8::incomplete_tail(start));
  return std::string(start) + "...";
}

unsigned digit_value(char32_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

}  // namespace

Result<PatternCursor> PatternCursor::open(std::string_view pattern, std::string_view where) {
  PatternCursor cursor(pattern, where);
  if (!utf8::valid(pattern)) return cursor.malformed("is not UTF-8", "write the file as UTF-8");
  while (!pattern.empty()) {
    const utf8::Decoded character = utf8::decode(pattern);
    cursor.points_ += character.code_point;
    pattern.remove_prefix(character.length);
  }
  return cursor;
}

bool PatternCursor::take_if(std::u32string_view text) {
  if (std::u32string_view(points_).substr(at_, text.size()) != text) return false;
  at_ += text.size();
  return true;
}

std::optional<std::string> PatternCursor::take_until(char32_t end) {
  const std::size_t found = points_.find(end, at_);
  if (found == std::u32string::npos) return std::nullopt;
  std::string text;
  for (; at_ < found; ++at_) utf8::append(text, points_[at_]);
  ++at_;
  return text;
}

std::optional<char32_t> PatternCursor::take_number(unsigned base, std::size_t most) {
  char32_t value = 0;
  std::size_t taken = 0;
  while (taken < most && digit_value(peek()) < base) {
    value = value * base + digit_value(take());
    if (value > last_code_point) return std::nullopt;
    ++taken;
  }
  if (taken == 0) return std::nullopt;
  return value;
}

Error PatternCursor::malformed(std::string_view what, std::string_view fix) const {
  return refused(ErrorCode::bad_file, what, fix);
}

Error PatternCursor::unsupported(std::string_view what, std::string_view fix) const {
  return refused(ErrorCode::unsupported, what, fix);
}

Error PatternCursor::refused(ErrorCode code, std::string_view what, std::string_view fix) const {
  std::string message = "the regular expression '" + shown(pattern_) + "' ";
  message += what;
  message += ", at character " + std::to_string(at_);
  return {code, std::move(message), std::string(where_), std::string(fix)};
}

}  // namespace motley::text::regex
