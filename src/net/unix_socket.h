#pragma once

#include <cstddef>
#include <filesystem>
#include <sys/un.h>

#include "base/result.h"
#include "net/byte_stream.h"

namespace motley::net {

// The longest path of a Unix socket.
inline constexpr std::size_t max_socket_path_bytes = sizeof(sockaddr_un::sun_path) - 1;

// The file of a Unix socket on which this process listens. Its end removes the file, unless another
// has taken its place.
class SocketFile {
 public:
  // Listens there. A socket file on which no process listens any more is replaced, by one of those
  // that start at the same moment; other files are not.
  static Result<SocketFile> listen(const std::filesystem::path& path, Acceptor& acceptor);

  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&& other) noexcept;
  ~SocketFile();

  const std::filesystem::path& path() const { return path_; }

 private:
  SocketFile(std::filesystem::path path, ino_t inode) : path_(std::move(path)), inode_(inode) {}

  std::filesystem::path path_;
  ino_t inode_ = 0;
};

}  // namespace motley::net
