// What a connection does meanwhile: it watches its client, and its deadlines.

#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/http/connection.h"
#include "server/http/connection_constants.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// They ask the system of a client whether the client is still there: every client of HTTP/1.1 drops
// an interim answer, and every reader of events a comment (in a chunk of the stream).
constexpr std::string_view interim_answer = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view comment_of_events = "3\r\n:\n\n\r\n";

}  // namespace

void Connection::watch() {
  if (gone_ || !may_watch_ || watching_) return;
  if (ended_) return watch_for_reset();
  if (buffer_.size() >= context_.limits.pipelined_bytes) {
    // A request that is answered at once needs no watch.
    if (gone_notice_) drop_and_watch();
    return;
  }
  watching_ = true;
  const auto taken = [self = shared_from_this()](Failure failure, std::size_t bytes) {
    self->buffer_.commit(bytes);
    self->received_meanwhile(failure);
  };
  stream_.start_reading(buffer_.prepare(piece_bytes),
                        asio::bind_cancellation_slot(stop_watch_.slot(), taken));
}

// Reads on, to notice that the client goes, without keeping what it sends. So later requests can't
// be read: the connection ends after this answer.
void Connection::drop_and_watch() {
  keep_alive_ = false;
  dropped_.resize(piece_bytes);
  watching_ = true;
  const auto taken = [self = shared_from_this()](Failure failure, std::size_t bytes) {
    self->dropped_bytes_ += bytes;
    if (self->dropped_bytes_ > linger_bytes) self->cut("sends without end during an answer");
    self->received_meanwhile(failure);
  };
  stream_.start_reading(asio::buffer(dropped_),
                        asio::bind_cancellation_slot(stop_watch_.slot(), taken));
}

// A reset is an error of the socket; so is a hang-up.
void Connection::watch_for_reset() {
  watching_ = true;
  const auto noticed = [self = shared_from_this()](Failure failure) {
    self->watching_ = false;
    self->wake_.cancel();
    if (failure != asio::error::operation_aborted) self->client_has_gone();
  };
  stream_.start_waiting_for_reset(asio::bind_cancellation_slot(stop_watch_.slot(), noticed));
}

void Connection::received_meanwhile(Failure failure) {
  watching_ = false;
  wake_.cancel();
  if (failure == asio::error::operation_aborted) return;
  ended_ = failure == asio::error::eof;
  if (ended_)
    probe_client();
  else if (failure)
    client_has_gone();
  watch();
}

asio::awaitable<void> Connection::stop_watching() {
  may_watch_ = false;
  stop_watch_.emit(asio::cancellation_type::all);
  while (watching_) {
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(no_throw);
  }
}

void Connection::on_gone(std::function<void()> notice) {
  gone_notice_ = std::move(notice);
  if (!gone_notice_) return;
  watch();
  // Not during this call.
  if (ended_) asio::post(executor(), [self = shared_from_this()] { self->probe_client(); });
}

// The client may have closed only its sending half, and wait for its answer. Whether it has closed
// the socket shows when something is sent to it: then its system answers with a reset. An answer
// that is made at once needs no probe.
void Connection::probe_client() {
  if (!may_watch_ || !gone_notice_ || probed_) return;
  // The client may have all of a write whose end is not known here yet: that end asks again.
  if (writing_ && !http_1_0_) return;
  probed_ = true;
  // Interim answers are not for HTTP/1.0.
  if (http_1_0_) return client_has_gone();
  // What is on its way shows it as well.
  if (complete_ || !stream_.all_taken()) return;
  if (status_ != 0 && !streams_events_) return;
  const std::string_view probe = status_ == 0 ? interim_answer : comment_of_events;
  if (stream_.write_now(probe)) client_has_gone();
}

void Connection::client_has_gone() {
  if (std::exchange(gone_, true)) return;
  if (gone_notice_) gone_notice_();
}

void Connection::set_deadline(std::chrono::nanoseconds after) {
  expired_ = false;
  deadline_ = context_.timers->now() + after;
  timer_->set(*deadline_);
}

void Connection::shorten_deadline(std::chrono::nanoseconds after) {
  if (deadline_ && *deadline_ - context_.timers->now() > after) set_deadline(after);
}

void Connection::clear_deadline() {
  deadline_.reset();
  if (timer_ != nullptr) timer_->clear();
}

// An operation that has just ended, and the next of which has not begun yet, is not cancelled: so
// each looks at expired_ before it begins.
void Connection::deadline_passed() {
  if (!deadline_ || context_.timers->now() < *deadline_) return;
  if (writing_ && client_takes()) return set_deadline(context_.limits.write_time);
  deadline_.reset();
  expired_ = true;
  stream_.cancel();
}

}  // namespace motley::server
