#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/scheduling/fair_order.h"

namespace motley::engine {

// A client, usually an address, whose requests take turns with those of others.
struct Client {
  std::uint64_t number = 0;   // in order of arrival
  FairOrder flows;            // among its own requests
  std::uint64_t next = 0;     // the turn of its next request, in tokens
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
};

// Start-time fair queueing over clients. A request is charged when it begins, so that a client's
// requests may be reordered while they wait; tokens that it was charged for and did not use are
// refunded at its end.
class ClientTurns {
 public:
  // The client of that name. The caller counts its requests.
  Client& of(const std::string& name) {
    if (clients_.size() >= sweep_at_) sweep();
    std::unique_ptr<Client>& client = clients_[name];
    if (client == nullptr) {
      client = std::make_unique<Client>();
      client->number = ++arrived_;
    }
    return *client;
  }

  // The turn of the client's next request.
  std::uint64_t turn_of(const Client& client) const { return std::max(now_, client.next); }

  // A request of the client begins to run; returns its turn. `cost` is in tokens.
  std::uint64_t begin(Client& client, std::uint64_t cost) {
    now_ = turn_of(client);
    client.next = now_ + cost;
    return now_;
  }

  // A request of the client has ended; it was charged for `unused` tokens too many.
  void end(Client& client, std::uint64_t unused) {
    client.next -= std::min(client.next, unused);
    --client.requests;
  }

  std::size_t clients() const { return clients_.size(); }
  const auto& all() const { return clients_; }

 private:
  // Removes clients without requests that are not ahead of the others.
  void sweep() {
    std::erase_if(clients_, [this](const auto& each) {
      return each.second->requests == 0 && each.second->next <= now_;
    });
    sweep_at_ = std::max<std::size_t>(least_swept, 2 * clients_.size());
  }

  static constexpr std::size_t least_swept = 1024;

  std::unordered_map<std::string, std::unique_ptr<Client>> clients_;
  std::uint64_t now_ = 0;
  std::uint64_t arrived_ = 0;
  std::size_t sweep_at_ = least_swept;
};

}  // namespace motley::engine
