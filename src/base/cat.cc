#include "base/cat.h"

#include "base/utf8.h"

namespace motley {
namespace {

constexpr std::size_t longest_quoted_name = 200;

// Characters that a terminal shows as a line break, or that change the order of others: line and
// paragraph separators, directional marks and overrides.
bool rearranges_text(char32_t c) {
  return c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void append_escape(std::string& text, unsigned char byte) {
  constexpr std::string_view hex = "0123456789abcdef";
  text += "\\x";
  text += hex[byte >> 4];
  text += hex[byte & 15];
}

}  // namespace

std::string printable(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Decoded next = utf8::decode(text.substr(at));
    const auto byte = static_cast<unsigned char>(text[at]);
    if (!next.valid) {
      append_escape(line, byte);
    } else if (next.code_point == '\n') {
      line += "\\n";
    } else if (next.code_point == '\t') {
      line += "\\t";
    } else if (next.code_point < 0x20 || next.code_point == 0x7f) {
      append_escape(line, byte);
    } else if ((next.code_point >= 0x80 && next.code_point < 0xa0) ||
               rearranges_text(next.code_point)) {
      for (const char each : text.substr(at, next.length))
        append_escape(line, static_cast<unsigned char>(each));
    } else {
      line += text.substr(at, next.length);
    }
    at += next.valid ? next.length : 1;
  }
  return line;
}

std::string quote(std::string_view name) {
  if (name.size() <= longest_quoted_name) return cat("'", printable(name), "'");
  // Cut so that no character is broken.
  std::string_view kept = name.substr(0, longest_quoted_name);
  kept.remove_suffix(utf8::incomplete_tail(kept));
  return cat("'", printable(kept), "...' (", name.size(), " bytes)");
}

}  // namespace motley
