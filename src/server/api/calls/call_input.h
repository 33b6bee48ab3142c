#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace motley::server {

// Streams the arguments of a call as a valid prefix of a JSON object, whatever the model writes,
// for clients that parse them incrementally. What cannot continue such a prefix is dropped, with
// everything after it. Control characters in strings are escaped.
class CallInput {
 public:
  // The part of the next piece that can be passed on.
  std::string take(std::string_view piece);

  // Completes `text`, everything that was passed on, to an object: if it is incomplete, from its
  // complete members and elements.
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
  At after_value(char c);
  At begin_value(char c);
  At open(char closing);
  At close(char c);
  At in_text(char c);
  At in_number(char c);
  bool ends_number() const;

  At at_ = At::start;
  std::string closing_;    // closing brackets of what is open, the innermost last
  bool in_key_ = false;    // the string
  int hex_digits_ = 0;     // still missing
  std::string_view word_;  // the missing rest of true, false or null
  std::size_t passed_ = 0;
  // number of passed bytes that form an object once open brackets are closed
  std::size_t whole_ = 0;
};

}  // namespace motley::server
