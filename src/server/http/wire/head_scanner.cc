#include "server/http/wire/head_scanner.h"

namespace motley::server {

HeadScanner::State HeadScanner::refuse(std::string_view reason) {
  reason_ = reason;
  return State::malformed;
}

HeadScanner::State HeadScanner::scan(std::string_view bytes) {
  while (position_ < bytes.size()) {
    const char byte = bytes[position_++];
    if (after_return_ != (byte == '\n')) return refuse("a line that does not end with CR LF");
    if (byte == '\n') {
      after_return_ = false;
      if (line_bytes_ == 0 && lines_ > 0) return State::complete;
      ++lines_;
      line_bytes_ = 0;
    } else if (byte == '\r') {
      after_return_ = true;
    } else {
      if (line_bytes_ == 0 && lines_ > 0 && (byte == ' ' || byte == '\t'))
        return refuse("a header field that is folded over two lines");
      const auto code = static_cast<unsigned char>(byte);
      if ((code < ' ' && byte != '\t') || code == 0x7F) return refuse("a control character");
      ++line_bytes_;
    }
  }
  return State::incomplete;
}

}  // namespace motley::server
