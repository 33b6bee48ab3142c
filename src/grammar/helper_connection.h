#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/system/clock.h"
#include "grammar/helper_process.h"
#include "grammar/wire.h"

namespace motley::grammar {

// The service's side of one helper: its socket, and the requests that it has not answered.
class HelperConnection {
 public:
  struct Request {
    wire::Kind kind = wire::Kind::compile;
    std::uint64_t session = 0;
  };

  HelperConnection() = default;  // closed
  HelperConnection(Descriptor socket, std::size_t max_message_bytes);

  // Allocates nothing, as a new one would.
  void close();
  explicit operator bool() const { return static_cast<bool>(socket_); }
  int socket() const { return socket_.get(); }
  // The request that the helper works on.
  std::optional<Request> current() const;
  // When the helper began with it, or gave its last answer.
  TimePoint since() const { return since_; }

  // If memory runs out, nothing is sent.
  void send(wire::Kind kind, std::uint64_t session, std::string_view body);
  // Sends as much as the socket takes.
  void flush();
  bool has_unsent() const { return !unsent_.empty(); }

  // The next message, if one has arrived: the answer to current(), or `exceeded`.
  std::optional<wire::Frame> receive();
  // Whether the helper has ended, or sent something else.
  bool broken() const { return broken_; }

 private:
  bool answers_current(const wire::Frame& frame) const;

  Descriptor socket_;
  std::size_t max_message_bytes_ = 0;
  std::string unsent_;
  std::string received_;  // a part of a frame
  std::deque<Request> unanswered_;
  TimePoint since_ = {};
  bool broken_ = false;
};

}  // namespace motley::grammar
