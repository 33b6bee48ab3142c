#include "grammar/descriptor_message.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace motley::grammar {
namespace {

// A byte of text, and room for one descriptor beside it.
class Message {
 public:
  Message() {
    message_.msg_iov = &part_;
    message_.msg_iovlen = 1;
    message_.msg_control = extra_.data();
    message_.msg_controllen = extra_.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  msghdr* get() { return &message_; }
  cmsghdr* head() { return CMSG_FIRSTHDR(&message_); }

 private:
  char byte_ = 0;
  iovec part_{.iov_base = &byte_, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> extra_{};
  msghdr message_{};
};

}  // namespace

bool send_descriptor(int socket, int descriptor) {
  Message message;
  cmsghdr* const head = message.head();
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, message.get(), MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

std::optional<int> receive_descriptor(int socket) {
  Message message;
  ssize_t bytes = 0;
  do bytes = ::recvmsg(socket, message.get(), MSG_CMSG_CLOEXEC);
  while (bytes < 0 && errno == EINTR);
  const cmsghdr* const head = bytes > 0 ? message.head() : nullptr;
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS) return std::nullopt;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
  return descriptor;
}

}  // namespace motley::grammar
