#pragma once

#include <boost/asio/awaitable.hpp>

#include "server/api/generation_plan.h"
#include "server/backend.h"
#include "server/http/exchange.h"

namespace motley::server {

// Has the engine work on a plan and sends the answer, whole or as it comes. A client that goes away
// ends the work.
boost::asio::awaitable<void> run_generation(Exchange& exchange, Backend& backend,
                                            GenerationPlan plan);

}  // namespace motley::server
