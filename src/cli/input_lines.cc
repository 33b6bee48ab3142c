#include "cli/input_lines.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "base/cat.h"

namespace motley::cli {

Result<std::optional<std::string_view>> InputLines::next(FunctionRef<void()> before_waiting) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  while (true) {
    const std::size_t newline = buffer_.find('\n', scanned_);
    if (newline != std::string::npos) {
      const std::string_view line = std::string_view(buffer_).substr(begin_, newline - begin_);
      begin_ = scanned_ = newline + 1;
      return std::optional(line);
    }
    if (ended_) {
      const std::string_view rest = std::string_view(buffer_).substr(begin_);
      begin_ = scanned_ = buffer_.size();
      return rest.empty() ? std::nullopt : std::optional(rest);
    }
    buffer_.erase(0, std::exchange(begin_, 0));
    if (buffer_.size() > longest_)
      return Error(ErrorCode::too_long, cat("a line of more than ", longest_, " bytes"),
                   "standard input", "write shorter lines");
    const std::size_t held = scanned_ = buffer_.size();
    before_waiting();
    buffer_.resize(std::max(held + piece, held + held / 2));
    ssize_t got = 0;
    do got = ::read(descriptor_, buffer_.data() + held, buffer_.size() - held);
    while (got < 0 && errno == EINTR);
    buffer_.resize(held + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0)
      return Error(ErrorCode::io, cat("can't read: ", std::strerror(errno)), "standard input",
                   "check the pipe");
    ended_ = got == 0;
  }
}

}  // namespace motley::cli
