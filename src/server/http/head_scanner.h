#pragma once

#include <cstddef>
#include <string_view>

namespace motley::server {

// Finds the end of a request's head and holds its lines to what two HTTP implementations cannot
// read differently: lines end with CR LF, none is folded into the next, and no control character
// stands in them. What a proxy and a server read differently is how requests are smuggled.
class HeadScanner {
 public:
  enum class State { incomplete, complete, malformed };

  // `bytes` is all that has come so far, what earlier calls have seen included.
  State scan(std::string_view bytes);

  // Of a complete head, the empty line included.
  std::size_t bytes() const { return position_; }
  // Of a malformed one.
  std::string_view reason() const { return reason_; }
  bool first_line_complete() const { return lines_ > 0; }

 private:
  State refuse(std::string_view reason);

  std::size_t position_ = 0;
  std::size_t lines_ = 0;
  std::size_t line_bytes_ = 0;  // of the line at hand
  bool after_return_ = false;
  std::string_view reason_;
};

}  // namespace motley::server
