#pragma once

#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "engine/engine.h"
#include "server/adapter_loads.h"
#include "server/api/parameters.h"
#include "server/api/server_info.h"
#include "server/fair_workers.h"
#include "server/http/messages/exchange.h"
#include "server/requests_under_way.h"

namespace motley::server {

// Answers what trainers ask a server between their steps: loads in place, pauses, aborts, resets of
// the prefix cache, and what the server is.
class TrainerRoutes {
 public:
  struct Parts {
    engine::Engine* engine = nullptr;
    AdapterLoads* loads = nullptr;
    RequestsUnderWay* requests = nullptr;
    FairWorkers* workers = nullptr;
  };
  struct Options {
    ServerInfo info = {};
    bool takes_adapters = false;  // from clients
  };
  // The parts must outlive it.
  TrainerRoutes(const Parts& parts, Options options)
      : parts_(parts), options_(std::move(options)) {}

  using Answer = boost::asio::awaitable<void>;
  Answer load(Exchange& exchange);
  Answer unload(Exchange& exchange);
  Answer pause(Exchange& exchange);
  Answer resume(Exchange& exchange);
  Answer is_paused(Exchange& exchange);
  Answer abort_requests(Exchange& exchange);
  Answer reset_prefix_cache(Exchange& exchange);
  // Caches that this server does not have.
  Answer reset_nothing(Exchange& exchange);
  Answer server_info(Exchange& exchange);
  Answer world_size(Exchange& exchange);
  // This server frees nothing while it sleeps.
  Answer sleep(Exchange& exchange);
  Answer is_sleeping(Exchange& exchange);
  // Of the base's weights.
  Answer refuse_weights(Exchange& exchange);

 private:
  Answer answer_loads(Exchange& exchange, Result<std::string> name);
  boost::asio::awaitable<Result<Parameters>> parameters(Exchange& exchange);
  boost::asio::awaitable<Result<void>> try_pause(Exchange& exchange);
  boost::asio::awaitable<Result<void>> try_resume(Exchange& exchange);
  boost::asio::awaitable<Result<std::size_t>> try_abort(Exchange& exchange);
  boost::asio::awaitable<Result<void>> try_reset(Exchange& exchange);

  Parts parts_;
  Options options_;
};

}  // namespace motley::server
