#include "server/api/calls/call_input.h"

#include "base/ascii.h"
#include "base/cat.h"

namespace motley::server {
namespace {

// Clients send calls back inside a message, and bodies have a limit of their own.
constexpr std::size_t max_depth = 50;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string escaped(char control) {
  constexpr std::string_view digits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(control);
  return cat("\\u00", digits[code >> 4], digits[code & 15]);
}

}  // namespace

std::string CallInput::take(std::string_view piece) {
  std::string passed;
  for (const char c : piece) {
    const bool ended = at_ == At::end;
    const bool control = at_ == At::text && static_cast<unsigned char>(c) < ' ';
    if (!control) at_ = next(c);
    if (at_ == At::broken) break;
    // White space around the object is dropped.
    if (ended || at_ == At::start) continue;
    const std::size_t before = passed.size();
    if (control)
      passed += escaped(c);
    else
      passed += c;
    passed_ += passed.size() - before;
    const bool is_whole = at_ == At::comma_or_end || at_ == At::end || at_ == At::key_or_end ||
                          at_ == At::value_or_end;
    if (is_whole && !is_space(c)) whole_ = passed_;
  }
  return passed;
}

std::string CallInput::whole(std::string text) const {
  if (whole_ == 0) return "{}";
  if (!ends_number()) text.resize(whole_);
  return text.append(closing_.rbegin(), closing_.rend());
}

CallInput::At CallInput::next(char c) {
  const bool between = at_ <= At::comma_or_end || at_ == At::end;
  if (between && is_space(c)) return at_;
  switch (at_) {
    case At::start:
      return c == '{' ? open('}') : At::broken;
    case At::key_or_end:
      if (c == '}') return close(c);
      [[fallthrough]];
    case At::key:
      in_key_ = true;
      return c == '"' ? At::text : At::broken;
    case At::colon:
      return c == ':' ? At::value : At::broken;
    case At::value_or_end:
      if (c == ']') return close(c);
      [[fallthrough]];
    case At::value:
      return begin_value(c);
    case At::comma_or_end:
      return after_value(c);
    case At::text:
    case At::escape:
    case At::hex:
      return in_text(c);
    case At::word:
      if (c != word_.front()) return At::broken;
      word_.remove_prefix(1);
      return word_.empty() ? At::comma_or_end : At::word;
    case At::end:
    case At::broken:
      return At::broken;
    default:
      return in_number(c);
  }
}

CallInput::At CallInput::after_value(char c) {
  if (is_space(c)) return At::comma_or_end;
  if (c != ',') return close(c);
  return closing_.back() == '}' ? At::key : At::value;
}

CallInput::At CallInput::begin_value(char c) {
  if (c == '{') return open('}');
  if (c == '[') return open(']');
  in_key_ = false;
  word_ = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : "";
  if (!word_.empty()) return At::word;
  if (c == '"') return At::text;
  if (c == '-') return At::minus;
  if (c == '0') return At::zero;
  return ascii::is_digit(c) ? At::digits : At::broken;
}

CallInput::At CallInput::open(char closing) {
  if (closing_.size() == max_depth) return At::broken;
  closing_ += closing;
  return closing == '}' ? At::key_or_end : At::value_or_end;
}

CallInput::At CallInput::close(char c) {
  if (closing_.back() != c) return At::broken;
  closing_.pop_back();
  return closing_.empty() ? At::end : At::comma_or_end;
}

CallInput::At CallInput::in_text(char c) {
  constexpr std::string_view escapes = "\"\\/bfnrt";
  if (at_ == At::hex) {
    if (ascii::digit_value(c) >= 16) return At::broken;
    return --hex_digits_ == 0 ? At::text : At::hex;
  }
  if (at_ == At::escape) {
    hex_digits_ = 4;
    if (c == 'u') return At::hex;
    return escapes.find(c) == std::string_view::npos ? At::broken : At::text;
  }
  if (c == '\\') return At::escape;
  if (c != '"') return At::text;
  return in_key_ ? At::colon : At::comma_or_end;
}

bool CallInput::ends_number() const {
  return at_ == At::zero || at_ == At::digits || at_ == At::fraction || at_ == At::exponent_digits;
}

CallInput::At CallInput::in_number(char c) {
  const bool exponent = c == 'e' || c == 'E';
  const bool whole = at_ == At::zero || at_ == At::digits;
  if (whole && c == '.') return At::point;
  if (exponent && (whole || at_ == At::fraction)) return At::exponent;
  if (at_ == At::exponent && (c == '+' || c == '-')) return At::exponent_sign;
  if (ascii::is_digit(c)) {
    if (at_ == At::minus) return c == '0' ? At::zero : At::digits;
    if (at_ == At::point) return At::fraction;
    if (at_ == At::exponent || at_ == At::exponent_sign) return At::exponent_digits;
    if (at_ != At::zero) return at_;
  }
  if (!ends_number()) return At::broken;
  // The next character shows that the number was complete.
  whole_ = passed_;
  return after_value(c);
}

}  // namespace motley::server
