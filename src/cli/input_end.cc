#include "cli/input_end.h"

#include <array>
#include <cerrno>
#include <poll.h>
#include <unistd.h>

namespace motley::cli {

bool InputEnd::reached() {
  std::array<char, 4096> dropped{};
  // A writer that never stops must not keep the caller here: a few reads, and the rest next time.
  for (int reads = 0; !reached_ && reads < 16; ++reads) {
    pollfd input{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, 0) <= 0) break;
    const ssize_t read = ::read(descriptor_, dropped.data(), dropped.size());
    if (read < 0 && (errno == EINTR || errno == EAGAIN)) break;
    reached_ = read <= 0;
  }
  return reached_;
}

}  // namespace motley::cli
