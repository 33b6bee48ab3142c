#pragma once

#include <cstddef>
#include <filesystem>
#include <sys/un.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include "base/result.h"

namespace motley::net {

// The longest path of a Unix socket.
inline constexpr std::size_t max_socket_path_bytes = sizeof(sockaddr_un::sun_path) - 1;

// Accepts streams of any kind.
using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

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
