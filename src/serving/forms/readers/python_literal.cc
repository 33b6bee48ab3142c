#include "serving/forms/readers/python_literal.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/cat.h"
#include "base/json/json.h"
#include "base/utf8.h"

namespace motley::serving {
namespace {

constexpr int max_depth = 64;
constexpr std::string_view spaces = " \t\r\n\f";
constexpr char32_t replacement = 0xFFFD;

bool is_octal(char c) { return c >= '0' && c <= '7'; }
bool is_quote(char c) { return c == '\'' || c == '"'; }
bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }
bool is_high_surrogate(char32_t c) { return c >= 0xD800 && c < 0xDC00; }
bool is_low_surrogate(char32_t c) { return c >= 0xDC00 && c < 0xE000; }

// Reads one literal from the front of a text, part by part. Functions that return bool are false if
// the text is no literal; what they have written is then invalid.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : rest_(text) {}

  std::optional<std::string> read_all() {
    std::string json;
    if (!read_value(json, 0)) return std::nullopt;
    skip_space();
    if (!rest_.empty()) return std::nullopt;
    return json;
  }

 private:
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(spaces), rest_.size()));
  }

  // Skips white space first.
  bool take(char wanted) {
    skip_space();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool read_value(std::string& json, int depth) {
    const bool opens_list = take('[');
    if (!opens_list && !take('(')) return take('{') ? read_dict(json, depth) : read_scalar(json);
    const std::size_t begin = json.size();
    json += '[';
    bool comma = false;
    if (depth >= max_depth || !read_items(json, opens_list ? ']' : ')', depth, comma)) return false;
    const bool is_empty = json.size() == begin + 1;
    if (opens_list || comma || is_empty)
      json += ']';
    else
      json.erase(begin, 1);  // a value in parentheses
    return true;
  }

  bool read_items(std::string& json, char close, int depth, bool& comma) {
    while (!take(close)) {
      if (comma) json += ',';
      if (!read_value(json, depth + 1)) return false;
      if (!take(',')) return take(close);
      comma = true;
    }
    return true;
  }

  bool read_dict(std::string& json, int depth) {
    if (depth >= max_depth) return false;
    // JSON has each key once: at its first position, with its last value.
    std::map<std::string, std::size_t> places;
    std::vector<std::pair<const std::string*, std::string>> members;
    while (!take('}')) {
      std::string key;
      std::string value;
      if (!read_key(key) || !take(':') || !read_value(value, depth + 1)) return false;
      const auto [place, is_new] = places.try_emplace(std::move(key), members.size());
      if (is_new)
        members.emplace_back(&place->first, std::move(value));
      else
        members[place->second].second = std::move(value);
      if (take(',')) continue;
      if (!take('}')) return false;
      break;
    }
    json += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) json += ',';
      json += *members[i].first;
      json += ':';
      json += members[i].second;
    }
    json += '}';
    return true;
  }

  bool read_key(std::string& key) {
    if (!read_scalar(key)) return false;
    if (!key.starts_with('"')) key = cat('"', key, '"');
    return true;
  }

  bool read_scalar(std::string& json) {
    skip_space();
    if (rest_.empty()) return false;
    if (string_begins()) return read_strings(json);
    const char first = rest_.front();
    if (ascii::is_digit(first) || first == '.' || first == '+' || first == '-')
      return read_number(json);
    constexpr std::pair<std::string_view, std::string_view> words[] = {
        {"None", "null"}, {"True", "true"}, {"False", "false"},
        {"null", "null"}, {"true", "true"}, {"false", "false"}};
    for (const auto& [word, written] : words) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      json += written;
      return true;
    }
    return false;
  }

  // Digits with single underscores between them, which are removed.
  std::string take_digits() {
    std::string digits;
    while (!rest_.empty()) {
      const bool between = rest_[0] == '_' && !digits.empty() && rest_.size() > 1;
      const std::size_t at = between ? 1 : 0;
      if (!ascii::is_digit(rest_[at])) break;
      digits += rest_[at];
      rest_.remove_prefix(at + 1);
    }
    return digits;
  }

  bool read_number(std::string& json) {
    std::string number = rest_.front() == '-' ? "-" : "";
    if (rest_.front() == '-' || rest_.front() == '+') rest_.remove_prefix(1);
    if (rest_.size() > 1 && rest_[0] == '0' && !ascii::is_digit(rest_[1]))
      if (const int radix = radix_of(rest_[1])) return read_radix(number, radix, json);
    std::string whole = take_digits();
    std::string fraction;
    const bool has_point = rest_.starts_with('.');
    if (has_point) {
      rest_.remove_prefix(1);
      fraction = take_digits();
    }
    if (whole.empty() && fraction.empty()) return false;
    std::string exponent;
    if (!read_exponent(exponent)) return false;
    const bool is_integer = !has_point && exponent.empty();
    const std::size_t zeros = std::min(whole.find_first_not_of('0'), whole.size());
    // 007 is invalid; 0 and 00 are zero.
    if (is_integer && zeros > 0 && zeros < whole.size()) return false;
    whole.erase(0, zeros);
    number += whole.empty() ? "0" : whole;
    if (has_point) number += cat('.', fraction.empty() ? "0" : fraction);
    number += exponent;
    // Short numbers without an exponent are in range.
    constexpr std::size_t surely_in_range = 300;
    if ((!exponent.empty() || whole.size() > surely_in_range) &&
        !json::parse(number, "number").ok())
      return false;
    json += number;
    return true;
  }

  bool read_exponent(std::string& exponent) {
    if (!rest_.starts_with('e') && !rest_.starts_with('E')) return true;
    rest_.remove_prefix(1);
    exponent = "e";
    if (rest_.starts_with('-')) exponent += '-';
    if (rest_.starts_with('-') || rest_.starts_with('+')) rest_.remove_prefix(1);
    const std::string digits = take_digits();
    exponent += digits;
    return !digits.empty();
  }

  static int radix_of(char letter) {
    if (letter == 'x' || letter == 'X') return 16;
    if (letter == 'o' || letter == 'O') return 8;
    if (letter == 'b' || letter == 'B') return 2;
    return 0;
  }

  // Up to 64 bits.
  bool read_radix(std::string_view sign, int radix, std::string& json) {
    rest_.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, radix);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    json += cat(sign, value);
    return true;
  }

  // After white space.
  bool string_begins() const {
    if (rest_.empty()) return false;
    if (is_quote(rest_[0])) return true;
    constexpr std::string_view prefixes = "rRuU";
    return prefixes.find(rest_[0]) != std::string_view::npos && rest_.size() > 1 &&
           is_quote(rest_[1]);
  }

  // One string, or several adjacent ones, which Python joins.
  bool read_strings(std::string& json) {
    std::string text;
    while (string_begins()) {
      if (!read_string(text)) return false;
      skip_space();
    }
    json::append_string(json, text);
    return true;
  }

  bool read_string(std::string& text) {
    const bool raw = rest_[0] == 'r' || rest_[0] == 'R';
    if (!is_quote(rest_[0])) rest_.remove_prefix(1);
    const char quote = rest_[0];
    const std::string three(3, quote);
    const std::string_view close = std::string_view(three).substr(rest_.starts_with(three) ? 0 : 2);
    rest_.remove_prefix(close.size());
    while (!rest_.starts_with(close)) {
      if (rest_.empty()) return false;
      if (rest_[0] != '\\') {
        text += rest_[0];
        rest_.remove_prefix(1);
        continue;
      }
      if (rest_.size() == 1) return false;
      if (raw) {
        text += rest_.substr(0, 2);
        rest_.remove_prefix(2);
      } else if (!read_escape(text)) {
        return false;
      }
    }
    rest_.remove_prefix(close.size());
    return true;
  }

  // At a backslash that is followed by something.
  bool read_escape(std::string& text) {
    const char kind = rest_[1];
    constexpr std::string_view letters = "abfnrtv\\'\"";
    constexpr std::string_view meanings = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t at = letters.find(kind); at != std::string_view::npos) {
      text += meanings[at];
      rest_.remove_prefix(2);
    } else if (kind == '\n' || kind == '\r') {
      // A line continuation.
      rest_.remove_prefix(rest_.substr(1).starts_with("\r\n") ? 3 : 2);
    } else if (is_octal(kind)) {
      std::size_t length = 1;
      while (length < 3 && length + 1 < rest_.size() && is_octal(rest_[length + 1])) ++length;
      append_code(text, *number_at(1, length, 8));
      rest_.remove_prefix(1 + length);
    } else if (const std::size_t digits = hex_digits(kind); digits > 0) {
      return read_hex_escape(digits, text);
    } else if (kind == 'N') {
      return false;
    } else {
      // Python keeps the backslash of an unknown escape.
      text += '\\';
      rest_.remove_prefix(1);
    }
    return true;
  }

  static std::size_t hex_digits(char kind) {
    return kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  }

  bool read_hex_escape(std::size_t digits, std::string& text) {
    auto code = number_at(2, digits, 16);
    if (!code || *code > 0x10FFFF) return false;
    rest_.remove_prefix(2 + digits);
    // Surrogate pairs, as in JSON, are one character.
    if (is_high_surrogate(*code) && rest_.starts_with("\\u")) {
      if (const auto low = number_at(2, 4, 16); low && is_low_surrogate(*low)) {
        code = 0x10000 + ((*code - 0xD800) << 10U) + (*low - 0xDC00);
        rest_.remove_prefix(6);
      }
    }
    append_code(text, *code);
    return true;
  }

  static void append_code(std::string& text, char32_t code) {
    utf8::append(text, is_surrogate(code) ? replacement : code);
  }

  // A number of exactly this many digits.
  std::optional<char32_t> number_at(std::size_t at, std::size_t digits, int radix) const {
    if (rest_.size() < at + digits) return std::nullopt;
    const char* const begin = rest_.data() + at;
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(begin, begin + digits, value, radix);
    if (error != std::errc() || end != begin + digits) return std::nullopt;
    return value;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<std::string> python_literal_to_json(std::string_view text) {
  return LiteralReader(text).read_all();
}

std::size_t LiteralExtent::take(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (ended_) return at;
    const char byte = text[at];
    switch (at_) {
      case At::outside:
        take_outside(byte);
        break;
      case At::first_quote:
        at_ = byte == quote_ ? At::second_quote : At::string;
        if (at_ == At::string) take_inside(byte);
        break;
      case At::second_quote:
        at_ = byte == quote_ ? At::triple_string : At::outside;
        if (at_ == At::outside) take_outside(byte);
        break;
      case At::closed:
      case At::prefix:
        take_after_quote(byte);
        break;
      case At::string:
      case At::triple_string:
        take_inside(byte);
        break;
    }
    if (ended_) return at;
  }
  return text.size();
}

void LiteralExtent::take_outside(char byte) {
  if (is_quote(byte)) {
    at_ = At::first_quote;
    quote_ = byte;
    closing_ = 0;
    escaped_ = false;
  } else if (byte == '(' || byte == '[' || byte == '{') {
    ++depth_;
  } else if (byte == ')' || byte == ']' || byte == '}') {
    ended_ = depth_ == 0;
    depth_ -= ended_ ? 0 : 1;
  } else if (byte == ',') {
    ended_ = depth_ == 0;
  }
}

void LiteralExtent::take_inside(char byte) {
  const bool closes = !escaped_ && byte == quote_;
  closing_ = closes ? closing_ + 1 : 0;
  escaped_ = !escaped_ && byte == '\\';
  if (at_ == At::string && closing_ == 1) at_ = At::closed;
  if (at_ == At::triple_string && closing_ == 3) at_ = At::outside;
}

void LiteralExtent::take_after_quote(char byte) {
  if (at_ == At::closed && byte != '\n' && spaces.find(byte) != std::string_view::npos) return;
  constexpr std::string_view signs = ",)]}:\n\"'";
  constexpr std::string_view prefixes = "rRuU";
  closing_ = 0;
  if (at_ == At::closed && prefixes.find(byte) != std::string_view::npos) {
    at_ = At::prefix;
    return;
  }
  const bool is_string = at_ == At::prefix && !is_quote(byte);
  at_ = !is_string && signs.find(byte) != std::string_view::npos ? At::outside : At::string;
  if (at_ == At::outside)
    take_outside(byte);
  else
    take_inside(byte);
}

}  // namespace motley::serving
