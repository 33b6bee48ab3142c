#pragma once

#include <string>
#include <string_view>

#include "base/ascii.h"
#include "base/utf8.h"

namespace motley::server {

struct PercentDecoded {
  std::string text;
  bool well_formed = true;  // each % begins an escape
};

// Replaces %XX by the byte, once. A % that begins no escape stays as it is.
inline PercentDecoded percent_decoded(std::string_view text) {
  const auto digit = [&](std::size_t at) {
    return at < text.size() ? ascii::digit_value(text[at]) : 99;
  };
  PercentDecoded decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && digit(i + 1) < 16 && digit(i + 2) < 16;
    decoded.well_formed &= escape || text[i] != '%';
    decoded.text += escape ? static_cast<char>(digit(i + 1) * 16 + digit(i + 2)) : text[i];
    if (escape) i += 2;
  }
  return decoded;
}

// Whether what was decoded is text that names something: UTF-8 without NUL.
inline bool is_text(std::string_view decoded) {
  return utf8::valid(decoded) && decoded.find('\0') == decoded.npos;
}

}  // namespace motley::server
