#include "net/unix_socket.h"

#include <optional>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include <boost/asio/local/stream_protocol.hpp>

#include "base/cat.h"
#include "net/path_lock.h"

namespace motley::net {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using Failure = boost::system::error_code;

std::optional<struct stat> look_at(const std::filesystem::path& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
  return found;
}

Error no_place(const std::filesystem::path& path, std::string_view why, std::string_view fix) {
  return {ErrorCode::io, cat("can't listen on ", quote(path.native()), ": ", why), "",
          std::string(fix)};
}

// 0, or why nothing listens there. Does not wait.
int connection_to(const std::filesystem::path& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  const stream_protocol::endpoint end(path.native());
  const int status = ::connect(socket, end.data(), static_cast<socklen_t>(end.size()));
  const int why = status == 0 ? 0 : errno;
  ::close(socket);
  return why;
}

// Makes place for a socket file: removes one that a process has left.
Result<void> clear(const std::filesystem::path& path) {
  const auto found = look_at(path);
  if (!found) return {};
  if (!S_ISSOCK(found->st_mode))
    return no_place(path, "a file that is no socket has this name", "choose another");
  const int why = connection_to(path);
  switch (why) {
    case 0:
    case EAGAIN:  // it has no place for another client
      return no_place(path, "another process listens there", "end it, or choose another path");
    case ECONNREFUSED:
      break;
    default:
      return no_place(path, std::generic_category().message(why),
                      "remove the file, or choose another path");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return no_place(path, std::generic_category().message(errno), "remove the old socket file");
  return {};
}

}  // namespace

Result<SocketFile> SocketFile::listen(const std::filesystem::path& path, Acceptor& acceptor) {
  if (path.empty() || path.native().size() > max_socket_path_bytes)
    return Error(ErrorCode::invalid_argument,
                 cat("the path of a Unix socket has 1 to ", max_socket_path_bytes, " bytes, not ",
                     path.native().size()),
                 "", "give a shorter one");
  constexpr std::string_view place = "give a path in a folder that this user may write in";
  // Until it listens: before that, what is bound looks like what an ended process has left.
  const Result<PathLock> lock = PathLock::take(path);
  if (!lock.ok()) return no_place(path, lock.error().what(), lock.error().fix());
  MOTLEY_TRY_VOID(clear(path));
  Failure failure;
  stream_protocol::acceptor socket(acceptor.get_executor());
  std::ignore = socket.open(stream_protocol(), failure);
  if (!failure) std::ignore = socket.bind(stream_protocol::endpoint(path.native()), failure);
  if (failure) return no_place(path, failure.message(), place);
  const auto made = look_at(path);
  SocketFile file(path, made ? made->st_ino : 0);
  std::ignore = socket.listen(asio::socket_base::max_listen_connections, failure);
  if (failure) return no_place(path, failure.message(), "choose another path");
  acceptor = Acceptor(std::move(socket));
  return file;
}

SocketFile::SocketFile(SocketFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), inode_(std::exchange(other.inode_, 0)) {}

SocketFile& SocketFile::operator=(SocketFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(inode_, other.inode_);
  return *this;
}

SocketFile::~SocketFile() {
  if (path_.empty()) return;
  const auto found = look_at(path_);
  if (found && S_ISSOCK(found->st_mode) && found->st_ino == inode_)
    std::ignore = ::unlink(path_.c_str());
}

}  // namespace motley::net
