#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/scheduling/fair_order.h"

namespace motley::engine {

// Whose requests take turns with those of others: an address that sends requests.
struct Client {
  std::uint64_t number = 0;   // in order of arrival
  FairOrder flows;            // among its own requests
  std::uint64_t next = 0;     // the turn of its next request, in tokens
  std::int64_t requests = 0;  // that have not ended

  // Running sequences, as of the scheduler's ordering of that number.
  std::uint64_t ordering = 0;
  std::int64_t running = 0;

  std::uint64_t denied = 0;  // the admission in which it had no right of way for want of pages

  // Of the pass at hand over waiting sequences, or over prompts.
  std::uint64_t turn = 0;
  std::int64_t sequences = 0;
  std::int64_t rows_wanted = 0;
  std::int64_t rows = 0;
};

// Start-time fair queueing over clients. A request is charged when it begins, so that within a
// client the order may change as long as requests wait; what it was charged for and did not use is
// given back at its end.
class ClientTurns {
 public:
  // The client of that name. The caller counts the requests that it sends.
  Client& of(const std::string& name) {
    if (clients_.size() >= sweep_at_) sweep();
    std::unique_ptr<Client>& client = clients_[name];
    if (client == nullptr) {
      client = std::make_unique<Client>();
      client->number = ++arrived_;
    }
    return *client;
  }

  // When the client's next request stands in line.
  std::uint64_t turn_of(const Client& client) const { return std::max(now_, client.next); }

  // A request of the client begins to run: its turn. `cost` is in tokens.
  std::uint64_t begin(Client& client, std::uint64_t cost) {
    now_ = turn_of(client);
    client.next = now_ + cost;
    return now_;
  }

  // A request of the client has ended; it was charged for that many tokens too many.
  void end(Client& client, std::uint64_t unused) {
    client.next -= std::min(client.next, unused);
    --client.requests;
  }

  std::size_t clients() const { return clients_.size(); }
  const auto& all() const { return clients_; }

 private:
  // Clients that are not ahead of the others are as if they had never been.
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
