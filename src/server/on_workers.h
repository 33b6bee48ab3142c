#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "base/system/out_of_memory.h"
#include "server/async/handover.h"
#include "server/fair_workers.h"
#include "server/http/messages/exchange.h"

namespace motley::server {

// Calls back when the client disconnects, during its lifetime.
class NoticeOfDeparture {
 public:
  NoticeOfDeparture(Exchange& exchange, std::function<void()> notice) : exchange_(exchange) {
    exchange_.on_gone(std::move(notice));
  }
  NoticeOfDeparture(const NoticeOfDeparture&) = delete;
  NoticeOfDeparture& operator=(const NoticeOfDeparture&) = delete;
  ~NoticeOfDeparture() { exchange_.on_gone(nullptr); }

 private:
  Exchange& exchange_;
};

inline Error client_went_away() { return {ErrorCode::cancelled, "the client went away"}; }

// Runs longer work on the workers, while the connection's executor is free. `cancelled` is set when
// the client disconnects; work that has not begun by then is not done.
template <class Work>
auto on_workers(FairWorkers& workers, Exchange& exchange, std::atomic<bool>& cancelled, Work work)
    -> boost::asio::awaitable<std::invoke_result_t<Work>> {
  using Made = std::invoke_result_t<Work>;
  const auto handover = std::make_shared<Handover<Made>>(exchange.executor());
  FairWorkers::Ticket ticket;
  // Created first: after the work is queued, which refers to this frame, nothing here may fail.
  auto taking = handover->take();
  cancelled = exchange.gone();
  const NoticeOfDeparture notice(exchange, [&] {
    cancelled = true;
    if (ticket != nullptr) workers.hurry(ticket);
  });
  const HttpRequest& request = exchange.request();
  const Result<void> posted = within_memory([&] {
    ticket = workers.submit(
        {request.client(), request.weight()}, request.body.size(), [handover, &work, &cancelled] {
          handover->give(cancelled ? Made(client_went_away()) : within_memory(work));
        });
  });
  std::optional<Made> made;
  if (posted.ok())
    made.emplace(co_await std::move(taking));
  else
    made.emplace(posted.error());
  co_return *std::move(made);
}

}  // namespace motley::server
