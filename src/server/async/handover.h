#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/system/out_of_memory.h"

namespace motley::server {

// How soon a coroutine polls for its value if there was no memory to wake it.
inline constexpr std::chrono::seconds look_without_wake{1};

// A value that another thread makes once, for a waiting coroutine. It arrives even if memory runs
// out.
template <class T>
class Handover : public std::enable_shared_from_this<Handover<T>> {
 public:
  explicit Handover(const boost::asio::any_io_executor& executor) : wake_(executor) {}

  // Thread-safe.
  void give(T value) {
    {
      const std::lock_guard held(mutex_);
      value_ = std::move(value);
    }
    std::ignore = within_memory([this] {
      boost::asio::post(wake_.get_executor(),
                        [self = this->shared_from_this()] { self->wake_.cancel(); });
    });
  }

  // On the executor. Returns only once the value is there, because its maker may use what the
  // caller holds.
  boost::asio::awaitable<T> take() {
    while (true) {
      {
        const std::lock_guard held(mutex_);
        if (value_) co_return *std::move(value_);
      }
      try {
        wake_.expires_after(look_without_wake);
        co_await wake_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }

 private:
  std::mutex mutex_;
  std::optional<T> value_;
  boost::asio::steady_timer wake_;
};

}  // namespace motley::server
