// How a connection notices, while a request is answered, that its client goes.

#include <utility>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "server/http/connections/connection.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// They ask the system of a client whether the client is still there: every client of HTTP/1.1 drops
// an interim answer, and every reader of events a comment (in a chunk of the stream).
constexpr std::string_view interim_answer = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view comment_of_events = "3\r\n:\n\n\r\n";

}  // namespace

// A body that is still to be read is watched by its reader.
void Connection::watch() {
  if (gone_ || phase_ != Phase::answering || watch_.running || !exchange_->incoming().finished())
    return;
  if (watch_.ended) return watch_for_reset();
  if (buffer_.size() >= context_.limits.pipelined_bytes) {
    // A request that is answered at once needs no watch.
    if (exchange_->wants_notice()) drop_and_watch();
    return;
  }
  watch_.running = true;
  const auto taken = [self = shared_from_this()](Failure failure, std::size_t bytes) {
    self->buffer_.commit(bytes);
    self->received_meanwhile(failure);
  };
  stream_.start_reading(buffer_.prepare(piece_bytes),
                        asio::bind_cancellation_slot(watch_.stop.slot(), taken));
}

// Reads on, to notice that the client goes, without keeping what it sends. So later requests can't
// be read: the connection ends after this answer.
void Connection::drop_and_watch() {
  exchange_->close_after();
  watch_.dropped.resize(piece_bytes);
  watch_.running = true;
  const auto taken = [self = shared_from_this()](Failure failure, std::size_t bytes) {
    self->watch_.dropped_bytes += bytes;
    if (self->watch_.dropped_bytes > linger_bytes)
      self->exchange_->cut("sends without end during an answer");
    self->received_meanwhile(failure);
  };
  stream_.start_reading(asio::buffer(watch_.dropped),
                        asio::bind_cancellation_slot(watch_.stop.slot(), taken));
}

// A reset is an error of the socket; so is a hang-up.
void Connection::watch_for_reset() {
  watch_.running = true;
  const auto noticed = [self = shared_from_this()](Failure failure) {
    self->watch_.running = false;
    self->wake_.cancel();
    if (failure != asio::error::operation_aborted) self->client_has_gone();
  };
  stream_.start_waiting_for_reset(asio::bind_cancellation_slot(watch_.stop.slot(), noticed));
}

void Connection::received_meanwhile(Failure failure) {
  watch_.running = false;
  wake_.cancel();
  if (failure == asio::error::operation_aborted) return;
  watch_.ended = failure == asio::error::eof;
  if (watch_.ended)
    probe_client();
  else if (failure)
    client_has_gone();
  watch();
}

asio::awaitable<void> Connection::stop_watching() {
  phase_.reset();
  watch_.stop.emit(asio::cancellation_type::all);
  while (watch_.running) {
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(net::no_throw);
  }
}

void Connection::watch_for_end() {
  watch();
  if (watch_.ended) asio::post(executor(), [self = shared_from_this()] { self->probe_client(); });
}

// The client may have closed only its sending half, and wait for its answer. Whether it has closed
// the socket shows when something is sent to it: then its system answers with a reset.
void Connection::probe_client() {
  if (phase_ != Phase::answering) return;
  std::string_view bytes;
  switch (exchange_->probe(write_.running)) {
    case RequestExchange::Probe::later:
    case RequestExchange::Probe::none:
      return;
    case RequestExchange::Probe::counts_as_gone:
      return client_has_gone();
    case RequestExchange::Probe::interim_answer:
      bytes = interim_answer;
      break;
    case RequestExchange::Probe::comment_of_events:
      bytes = comment_of_events;
      break;
  }
  // What is on its way shows it as well.
  if (!stream_.all_taken()) return;
  if (stream_.write_now(bytes)) client_has_gone();
}

}  // namespace motley::server
