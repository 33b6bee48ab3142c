#include "grammar/helper_connection.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

namespace motley::grammar {

using wire::Kind;

HelperConnection::HelperConnection(Descriptor socket, std::size_t max_message_bytes)
    : socket_(std::move(socket)), max_message_bytes_(max_message_bytes) {}

void HelperConnection::close() {
  socket_ = {};
  unsent_.clear();
  received_.clear();
  unanswered_.clear();
  broken_ = false;
}

std::optional<HelperConnection::Request> HelperConnection::current() const {
  if (unanswered_.empty()) return std::nullopt;
  return unanswered_.front();
}

void HelperConnection::send(Kind kind, std::uint64_t session, std::string_view body) {
  const std::string frame = wire::frame(kind, session, body);
  unsent_.reserve(unsent_.size() + frame.size());
  if (unanswered_.empty()) since_ = std::chrono::steady_clock::now();
  if (kind != Kind::close) unanswered_.push_back({.kind = kind, .session = session});
  unsent_ += frame;
  flush();
}

void HelperConnection::flush() {
  while (!unsent_.empty()) {
    const ssize_t bytes =
        ::send(socket(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    // Errors are noticed when reading.
    if (bytes <= 0) return;
    unsent_.erase(0, static_cast<std::size_t>(bytes));
  }
}

std::optional<wire::Frame> HelperConnection::receive() {
  std::array<char, 65536> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  while (socket_ && !broken_) {
    if (auto frame = wire::take_frame(received_)) {
      if (frame->kind == Kind::exceeded) return frame;
      broken_ = !answers_current(*frame);
      if (broken_) break;
      unanswered_.pop_front();
      since_ = std::chrono::steady_clock::now();
      return frame;
    }
    const ssize_t bytes = ::recv(socket(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) break;
    broken_ = bytes <= 0 || received_.size() > sizeof(wire::Head) + max_message_bytes_;
    if (!broken_) received_.append(piece.data(), static_cast<std::size_t>(bytes));
  }
  return std::nullopt;
}

bool HelperConnection::answers_current(const wire::Frame& frame) const {
  const auto request = current();
  const bool compiles = frame.kind == Kind::compiled || frame.kind == Kind::refused;
  return request && request->session == frame.session &&
         (request->kind == Kind::compile) == compiles;
}

}  // namespace motley::grammar
