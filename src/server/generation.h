#pragma once

#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "engine/engine.h"
#include "server/api/generation_plan.h"
#include "server/http/limits/memory_budget.h"
#include "server/http/messages/exchange.h"
#include "server/requests_under_way.h"

namespace motley::server {

// Runs a plan on the engine and sends the answer, whole or as a stream. A client that disconnects
// cancels the work. `share` has taken the plan's charge; it grows with what is kept of the answer,
// and is released when that has been sent. `base`: the base model's id. `entry` gets the engine's
// requests. Returns the tokens of all that ran.
boost::asio::awaitable<engine::Usage> run_generation(Exchange& exchange, engine::Engine& engine,
                                                     GenerationPlan plan, std::string_view base,
                                                     RequestsUnderWay::Entry& entry,
                                                     MemoryBudget::Share share);

}  // namespace motley::server
