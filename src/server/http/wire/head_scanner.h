#pragma once

#include <cstddef>
#include <string_view>

namespace motley::server {

// Finds the end of a request's header, and refuses lines that two HTTP implementations could read
// differently: lines must end with CR LF, must not be folded, and must have no control characters.
// Such differences between a proxy and a server allow request smuggling.
class HeadScanner {
 public:
  enum class State { incomplete, complete, malformed };

  // `bytes` is everything received so far, including what earlier calls have seen.
  State scan(std::string_view bytes);

  // The length of a complete header, including the empty line.
  std::size_t bytes() const { return position_; }
  // Why the header is malformed.
  std::string_view reason() const { return reason_; }
  bool first_line_complete() const { return lines_ > 0; }

 private:
  State refuse(std::string_view reason);

  std::size_t position_ = 0;
  std::size_t lines_ = 0;
  std::size_t line_bytes_ = 0;  // of the current line
  bool after_return_ = false;
  std::string_view reason_;
};

}  // namespace motley::server
