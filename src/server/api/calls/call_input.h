#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace motley::server {

// The arguments of a call as the beginning of a JSON object, whatever the model writes: for clients
// that read them as such while they come. What can't go on such a beginning is dropped, with all
// behind it. Control characters in strings, which JSON has not, are escaped.
class CallInput {
 public:
  // What may be passed on of the next piece.
  std::string take(std::string_view piece);

  // An object of `text`, all that was passed on: where it is no whole one, of its complete members
  // and elements.
  std::string whole(std::string text) const;

 private:
  enum class At : std::uint8_t {
    start,
    key_or_end,
    key,
    colon,
    value_or_end,
    value,
    comma_or_end,
    text,
    escape,
    hex,
    word,
    minus,
    zero,
    digits,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
    end,
    broken,
  };

  At next(char c);
  At behind_value(char c);
  At begin_value(char c);
  At open(char closing);
  At close(char c);
  At in_text(char c);
  At in_number(char c);
  bool ends_number() const;

  At at_ = At::start;
  std::string closing_;    // of what is open, the innermost last
  bool in_key_ = false;    // the string
  int hex_digits_ = 0;     // that are missing
  std::string_view word_;  // what is missing of true, false or null
  std::size_t passed_ = 0;
  std::size_t whole_ = 0;  // of the passed bytes, an object if what is open is closed behind them
};

}  // namespace motley::server
