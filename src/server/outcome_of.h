#pragma once

#include <memory>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "server/handover.h"

namespace motley::server {

// Starts an operation that reports once, from any thread, and waits for it on this executor.
template <class Start>
boost::asio::awaitable<Result<void>> outcome_of(boost::asio::any_io_executor executor,
                                                Start start) {
  const auto handover = std::make_shared<Handover<Result<void>>>(executor);
  start([handover](Result<void> result) { handover->give(std::move(result)); });
  co_return co_await handover->take();
}

}  // namespace motley::server
