#include "text/jinja/syntax/lexer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/ascii.h"
#include "base/cat.h"
#include "base/utf8.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/numbers.h"

namespace motley::text::jinja {
namespace {

// xe9, u20ac, U0001f600
void append_code(std::string& text, char32_t point) {
  const int digits = point < 0x100 ? 2 : point < 0x10000 ? 4 : 8;
  text += digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int digit = digits - 1; digit >= 0; --digit)
    text += "0123456789abcdef"[(point >> (4U * static_cast<unsigned>(digit))) & 0xFU];
}

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text()) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = find_tag();
      if (tag == text_.size()) {
        add_data(at_, text_.size());
        break;
      }
      MOTLEY_TRY_VOID(read_tag(tag));
    }
    add(TokenKind::end, text_.size());
    return std::move(tokens_);
  }

 private:
  char byte(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  bool here(std::size_t at, std::string_view expected) const {
    return text_.substr(at).starts_with(expected);
  }

  Token& add(TokenKind kind, std::size_t at) {
    tokens_.push_back({.kind = kind, .at = at, .text = {}});
    return tokens_.back();
  }

  void add_data(std::size_t begin, std::size_t end) {
    if (begin < end) add(TokenKind::data, begin).text = text_.substr(begin, end - begin);
  }

  std::size_t find_tag() const {
    for (std::size_t at = text_.find('{', at_); at != std::string_view::npos;
         at = text_.find('{', at + 1)) {
      const char next = byte(at + 1);
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return text_.size();
  }

  std::size_t skip_spaces(std::size_t at) const {
    while (at < text_.size()) {
      const Character character = character_at(text_, at);
      if (!is_space(character.code_point)) break;
      at += character.bytes;
    }
    return at;
  }

  bool all_spaces(std::size_t begin, std::size_t end) const { return skip_spaces(begin) >= end; }

  // The end of the data before a tag; `sign` is the character after the tag's opening braces.
  std::size_t data_end(std::size_t begin, std::size_t tag, char sign, bool is_variable) const {
    if (sign == '-') {
      std::size_t end = tag;
      while (end > begin) {
        const std::size_t last = character_before(text_, end);
        if (!is_space(character_at(text_, last).code_point)) break;
        end = last;
      }
      return end;
    }
    if (sign == '+' || is_variable) return tag;
    // lstrip_blocks: removes spaces between the begin of the line and the tag.
    const std::size_t line_end = text_.substr(begin, tag - begin).rfind('\n');
    const bool has_line = line_end != std::string_view::npos;
    if (!has_line && !at_line_start_) return tag;
    const std::size_t line = has_line ? begin + line_end + 1 : begin;
    return line < tag && all_spaces(line, tag) ? line : tag;
  }

  char sign_at(std::size_t at) const {
    return byte(at) == '-' || byte(at) == '+' ? byte(at) : '\0';
  }

  // Continues after a tag that ends before `at_`.
  void go_on(std::size_t at) {
    at_ = at;
    at_line_start_ = byte(at - 1) == '\n';
  }

  // The position after a closing tag: skips all white space after a minus, else one line end.
  std::size_t behind_close(std::size_t close, char sign) const {
    const std::size_t end = close + 2;
    if (sign == '-') return skip_spaces(end);
    return sign != '+' && byte(end) == '\n' ? end + 1 : end;
  }

  Result<void> read_tag(std::size_t tag) {
    const char type = byte(tag + 1);
    const char sign = sign_at(tag + 2);
    const std::size_t begin = tag + 2 + (sign == '\0' ? 0 : 1);
    if (type == '%') {
      const std::size_t raw = raw_begin(begin);
      if (raw != 0) {
        add_data(at_, data_end(at_, tag, sign, false));
        return read_raw(tag, raw);
      }
    }
    add_data(at_, data_end(at_, tag, sign, type == '{'));
    if (type == '#') return read_comment(tag, begin);
    add(type == '{' ? TokenKind::variable_begin : TokenKind::block_begin, tag);
    return read_code(begin, type == '{');
  }

  // ---------------------------------------------------------------------------- comments and raw

  Result<void> read_comment(std::size_t tag, std::size_t begin) {
    const std::size_t close = text_.find("#}", begin);
    if (close == std::string_view::npos)
      return source_.malformed("Missing end of comment tag", tag);
    const char sign = close > begin ? sign_at(close - 1) : '\0';
    go_on(behind_close(close, sign));
    return {};
  }

  // The begin of a raw block's body, if the tag that continues at `at` is `raw`; else 0.
  std::size_t raw_begin(std::size_t at) const {
    at = skip_spaces(at);
    if (!here(at, "raw")) return 0;
    at = skip_spaces(at + 3);
    if (here(at, "-%}")) return skip_spaces(at + 3);
    return here(at, "%}") ? at + 2 : 0;
  }

  Result<void> read_raw(std::size_t tag, std::size_t begin) {
    at_line_start_ = byte(begin - 1) == '\n';
    for (std::size_t at = text_.find("{%", begin); at != std::string_view::npos;
         at = text_.find("{%", at + 1)) {
      const char sign = sign_at(at + 2);
      std::size_t end = skip_spaces(at + 2 + (sign == '\0' ? 0 : 1));
      if (!here(end, "endraw")) continue;
      end = skip_spaces(end + 6);
      const char close_sign = sign_at(end);
      if (close_sign != '\0') ++end;
      if (!here(end, "%}")) continue;
      add_data(begin, data_end(begin, at, sign, false));
      go_on(behind_close(end, close_sign));
      return {};
    }
    return source_.malformed("Missing end of raw directive", tag);
  }

  // ------------------------------------------------------------------------------------- code

  // The end of the tag at `at`, or 0 if the code continues.
  std::size_t code_end(std::size_t at, bool is_variable) const {
    if (is_variable) {
      if (here(at, "-}}")) return skip_spaces(at + 3);
      return here(at, "}}") ? at + 2 : 0;
    }
    if (here(at, "-%}") || here(at, "+%}")) return behind_close(at + 1, byte(at));
    return here(at, "%}") ? behind_close(at, '\0') : 0;
  }

  Result<void> read_code(std::size_t at, bool is_variable) {
    std::vector<char> open;
    while (at < text_.size()) {
      const std::size_t end = open.empty() ? code_end(at, is_variable) : 0;
      if (end != 0) {
        add(is_variable ? TokenKind::variable_end : TokenKind::block_end, at);
        go_on(end);
        return {};
      }
      const Character character = character_at(text_, at);
      if (is_space(character.code_point)) {
        at += character.bytes;
      } else if (ascii::is_digit(byte(at))) {
        MOTLEY_TRY(at, read_number(at));
      } else if (is_word(character.code_point)) {
        at = read_name(at);
      } else if (byte(at) == '\'' || byte(at) == '"') {
        MOTLEY_TRY(at, read_string(at));
      } else {
        MOTLEY_TRY(at, read_symbol(at, open));
      }
    }
    // The parser reports what is missing.
    at_ = at;
    return {};
  }

  std::size_t read_name(std::size_t at) {
    std::size_t end = at;
    while (end < text_.size()) {
      const Character character = character_at(text_, end);
      if (!is_word(character.code_point)) break;
      end += character.bytes;
    }
    add(TokenKind::name, at).text = text_.substr(at, end - at);
    return end;
  }

  // The position after digits with single underscores between them; `at` if there are none.
  std::size_t skip_digits(std::size_t at) const {
    while (ascii::is_digit(byte(at)) ||
           (byte(at) == '_' && ascii::is_digit(byte(at + 1)) && ascii::is_digit(byte(at - 1))))
      ++at;
    return at;
  }

  // The end of a float at `at`, or 0 if there is none.
  std::size_t float_end(std::size_t at) const {
    if (at > 0 && byte(at - 1) == '.') return 0;
    std::size_t end = skip_digits(at);
    const bool fraction = byte(end) == '.' && ascii::is_digit(byte(end + 1));
    if (fraction) end = skip_digits(end + 1);
    if (byte(end) == 'e' || byte(end) == 'E') {
      const std::size_t digits = end + 1 + (sign_at(end + 1) == '\0' ? 0 : 1);
      if (ascii::is_digit(byte(digits))) return skip_digits(digits);
    }
    return fraction ? end : 0;
  }

  std::size_t integer_end(std::size_t at) const {
    if (byte(at) != '0') return skip_digits(at);
    const auto digits = [&](auto&& fits) -> std::size_t {
      std::size_t end = at + 2;
      while (fits(byte(end)) || (byte(end) == '_' && fits(byte(end + 1)))) ++end;
      return end == at + 2 ? 0 : end;
    };
    std::size_t end = 0;
    switch (byte(at + 1)) {
      case 'b':
      case 'B':
        end = digits([](char digit) { return digit == '0' || digit == '1'; });
        break;
      case 'o':
      case 'O':
        end = digits([](char digit) { return digit >= '0' && digit <= '7'; });
        break;
      case 'x':
      case 'X':
        end = digits([](char digit) { return ascii::digit_value(digit) < 16; });
        break;
      default:
        break;
    }
    if (end != 0) return end;
    // Only zeros: what follows is another token.
    end = at + 1;
    while (byte(end) == '0' || (byte(end) == '_' && byte(end + 1) == '0')) ++end;
    return end;
  }

  Result<std::size_t> read_number(std::size_t at) {
    if (const std::size_t end = float_end(at)) {
      add(TokenKind::number, at).number = read_float(text_.substr(at, end - at)).value_or(0);
      return end;
    }
    const std::size_t end = integer_end(at);
    const auto value = read_integer(text_.substr(at, end - at), 0);
    if (!value.ok() || !value->has_value())
      return source_.refused(
          cat("the integer ", text_.substr(at, std::min<std::size_t>(end - at, 40)),
              " is beyond 64 bits"),
          at);
    add(TokenKind::integer, at).integer = **value;
    return end;
  }

  Result<std::size_t> read_string(std::size_t at) {
    const char quote = byte(at);
    std::size_t end = at + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2U : 1U;
    if (end >= text_.size()) return source_.malformed("a string without its closing quote", at);
    std::string value;
    for (std::size_t i = at + 1; i < end;) {
      if (text_[i] != '\\') {
        value += text_[i++];
        continue;
      }
      MOTLEY_TRY(i, read_escape(value, i, end));
    }
    add(TokenKind::string, at).text = std::move(value);
    return end + 1;
  }

  // Reads the escape at `at`; returns the position after it.
  Result<std::size_t> read_escape(std::string& value, std::size_t at, std::size_t end) {
    const char type = text_[at + 1];
    constexpr std::string_view simple = "\\'\"abfnrtv";
    constexpr std::string_view meaning = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t known = simple.find(type); known != std::string_view::npos) {
      value += meaning[known];
      return at + 2;
    }
    if (type == '\n') return at + 2;
    if (type >= '0' && type <= '7') {
      char32_t point = 0;
      std::size_t digit = at + 1;
      for (; digit < at + 4 && digit < end && text_[digit] >= '0' && text_[digit] <= '7'; ++digit)
        point = (point * 8) + static_cast<char32_t>(text_[digit] - '0');
      utf8::append(value, point);
      return digit;
    }
    const std::size_t digits = type == 'x' ? 2 : type == 'u' ? 4 : type == 'U' ? 8 : 0;
    if (digits > 0) return read_hex_escape(value, at, end, digits);
    if (type == 'N') return source_.refused("the escape \\N{...} in a string", at);
    // Python keeps the backslash of an unknown escape. Jinja escapes characters beyond ASCII before
    // that, so their backslash is removed.
    value += '\\';
    const Character next = character_at(text_, at + 1);
    if (next.code_point < 0x80) return at + 1;
    append_code(value, next.code_point);
    return at + 1 + next.bytes;
  }

  Result<std::size_t> read_hex_escape(std::string& value, std::size_t at, std::size_t end,
                                      std::size_t digits) {
    std::uint64_t point = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const std::size_t digit = at + 2 + i;
      if (digit >= end || ascii::digit_value(text_[digit]) >= 16)
        return source_.malformed("a truncated escape in a string", at);
      point = (point * 16) + static_cast<std::uint64_t>(ascii::digit_value(text_[digit]));
    }
    if (point > 0x10FFFF) return source_.malformed("an escape beyond the last character", at);
    if (point >= 0xD800 && point <= 0xDFFF)
      return source_.refused("half a surrogate pair in a string", at);
    utf8::append(value, static_cast<char32_t>(point));
    return at + 2 + digits;
  }

  Result<std::size_t> read_symbol(std::size_t at, std::vector<char>& open) {
    constexpr std::array<std::string_view, 6> pairs = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view singles = "+-/*%~[](){}><=.:|,;";
    std::size_t size = 0;
    if (singles.find(text_[at]) != std::string_view::npos) size = 1;
    if (std::ranges::find(pairs, text_.substr(at, 2)) != pairs.end()) size = 2;
    if (size == 0)
      return source_.malformed(
          cat("unexpected character ", quote(text_.substr(at, character_at(text_, at).bytes))), at);
    const char symbol = text_[at];
    if (symbol == '(' || symbol == '[' || symbol == '{') open.push_back(symbol);
    if (symbol == ')' || symbol == ']' || symbol == '}') {
      const char opening = symbol == ')' ? '(' : symbol == ']' ? '[' : '{';
      if (open.empty() || open.back() != opening)
        return source_.malformed(cat("unexpected '", std::string_view(&symbol, 1), "'"), at);
      open.pop_back();
    }
    add(TokenKind::symbol, at).text = text_.substr(at, size);
    return at + size;
  }

  const Source& source_;
  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  bool at_line_start_ = true;
};

}  // namespace

Result<std::vector<Token>> tokenize(const Source& source) { return Lexer(source).run(); }

}  // namespace motley::text::jinja
