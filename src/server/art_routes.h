#pragma once

#include <string>

#include <boost/asio/awaitable.hpp>

#include "engine/engine.h"
#include "server/adapter_loads.h"
#include "server/api/policy_update.h"
#include "server/fair_workers.h"
#include "server/http/messages/exchange.h"
#include "server/push/push_operations.h"

namespace motley::server {

// Answers OpenPipe ART's serving protocol, version 5: what the server can do, and updates of an
// adapter with which running requests go on.
class ArtRoutes {
 public:
  struct Parts {
    engine::Engine* engine = nullptr;
    AdapterLoads* loads = nullptr;
    FairWorkers* workers = nullptr;
  };
  // The parts must outlive it.
  explicit ArtRoutes(const Parts& parts);

  using Answer = boost::asio::awaitable<void>;
  Answer capabilities(Exchange& exchange);
  Answer state(Exchange& exchange);
  Answer update(Exchange& exchange);

 private:
  boost::asio::awaitable<HttpResponse> answer_update(Exchange& exchange);
  boost::asio::awaitable<Result<std::string>> try_update(Exchange& exchange,
                                                         const PolicyUpdate& update);

  Parts parts_;
  std::string process_;  // an id of this process
  PushOperations operations_;
};

}  // namespace motley::server
