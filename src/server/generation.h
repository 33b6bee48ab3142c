#pragma once

#include <boost/asio/awaitable.hpp>

#include "engine/engine.h"
#include "server/api/generation_plan.h"
#include "server/http/exchange.h"
#include "server/request_budget.h"

namespace motley::server {

// Has the engine work on a plan and sends the answer, whole or as it comes. A client that goes away
// ends the work. `share` is what the plan's charge has taken; it grows with what is kept of the
// answer, and goes when that has been sent.
boost::asio::awaitable<void> run_generation(Exchange& exchange, engine::Engine& engine,
                                            GenerationPlan plan, RequestBudget::Share share);

}  // namespace motley::server
