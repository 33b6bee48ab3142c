#pragma once

#include <cstdint>

#include "base/fair_flows.h"

namespace motley::engine {

// A list of adapters, whose requests of one client take turns with its others. They are charged as
// they arrive, by which their order is known.
struct AdaptersState {
  bool idle() const { return true; }
};

// A client, usually an address, whose requests take turns with those of others. They are charged as
// they begin, so that those that wait may be reordered, and what they did not use is given back as
// they end. Costs are in tokens.
struct ClientState {
  FairFlows<AdaptersState> flows;
  std::int64_t requests = 0;  // that have not ended

  // The number of its running sequences, valid for the scheduler's ordering of this number.
  std::uint64_t ordering = 0;
  std::int64_t running = 0;

  // the admission in which it was refused a right of way for lack of pages
  std::uint64_t denied = 0;

  // Of the current pass over waiting sequences, or over prompts.
  std::uint64_t turn = 0;
  std::int64_t sequences = 0;
  std::int64_t rows_wanted = 0;
  std::int64_t rows = 0;

  bool idle() const { return requests == 0; }
};
using Clients = FairFlows<ClientState>;
using Client = Clients::Flow;

// A number of a client's that is compared with other clients', in parts of its weight.
inline std::int64_t by_weight(std::int64_t number, const Client& client) {
  constexpr std::int64_t parts = 1 << 16;
  return number * parts / client.weight;
}

}  // namespace motley::engine
