#include "server/http/accept_thread.h"

#include <new>
#include <tuple>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "base/log.h"
#include "server/http/run_context.h"

namespace motley::server {

namespace asio = boost::asio;

// Held by the accepting coroutine for its whole life.
class AcceptThread::Accepting {
 public:
  explicit Accepting(std::shared_ptr<std::atomic<bool>> flag) : flag_(std::move(flag)) {}
  ~Accepting() { *flag_ = false; }
  Accepting(const Accepting&) = delete;
  Accepting& operator=(const Accepting&) = delete;

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

AcceptThread::AcceptThread(asio::io_context& connections, Serve serve)
    : connections_(connections), serve_(std::move(serve)), work_(context_.get_executor()) {}

void AcceptThread::add(net::Acceptor acceptor, std::optional<net::SocketFile> file) {
  listeners_.emplace_back(std::move(acceptor)).file = std::move(file);
}

void AcceptThread::start() {
  thread_ = std::thread([this] {
    run_context(context_, [this] {
      for (Listener& listener : listeners_) spawn_accept(listener);
    });
  });
}

void AcceptThread::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  asio::post(context_, [this] {
    for (Listener& listener : listeners_) {
      boost::system::error_code ignored;
      listener.file.reset();
      std::ignore = listener.acceptor.close(ignored);
      listener.pause.cancel();
    }
    work_.reset();
  });
  thread_.join();
}

void AcceptThread::spawn_accept(Listener& listener) {
  if (stopping_ || listener.accepting->exchange(true)) return;
  std::shared_ptr<Accepting> held;
  try {
    held = std::make_shared<Accepting>(listener.accepting);
  } catch (const std::bad_alloc&) {
    *listener.accepting = false;
    throw;
  }
  asio::co_spawn(context_, accept(listener, std::move(held)), asio::detached);
}

asio::awaitable<void> AcceptThread::accept(Listener& listener,
                                           std::shared_ptr<Accepting> /*held*/) {
  bool out_of_memory = false;
  while (listener.acceptor.is_open()) {
    try {
      if (std::exchange(out_of_memory, false)) {
        listener.pause.expires_after(shortage_pause);
        co_await listener.pause.async_wait(net::no_throw);
      }
      co_await accept_one(listener);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  }
}

asio::awaitable<void> AcceptThread::accept_one(Listener& listener) {
  auto [failure, socket] =
      co_await listener.acceptor.async_accept(asio::make_strand(connections_), net::no_throw);
  if (!failure) {
    serve_(net::ByteStream(std::move(socket)));
  } else if (listener.acceptor.is_open()) {
    log::warning("http.accept_failed", {{"why", failure.message()}});
    listener.pause.expires_after(shortage_pause);
    co_await listener.pause.async_wait(net::no_throw);
  }
}

}  // namespace motley::server
