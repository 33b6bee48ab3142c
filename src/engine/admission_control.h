#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/queue_share.h"
#include "base/result.h"
#include "engine/requests/request.h"
#include "engine/residency/adapter_directory.h"

namespace motley::engine {

// Whether a request is accepted: it names adapters that are known and fit a step together, and
// there is a place for it in the queue. Pure arithmetic on what it is told; not thread-safe.
//
// A request arrives when it is accepted, and waits once the engine's thread has taken it. What the
// scheduler publishes then replaces the count of those that wait.
class AdmissionControl {
 public:
  struct Limits {
    std::int64_t queue = 0;      // places for requests of all clients: EngineOptions::max_queue
    std::int64_t sequences = 0;  // in a step
    int ranks = 0;               // of a request's adapters together; 0: unlimited
  };
  explicit AdmissionControl(const Limits& limits) : limits_(limits) {}

  // Counts the request as arriving, or says why not. If memory runs out, it is not counted.
  Result<void> admit(const Request& request, const AdapterDirectory& adapters);
  // An accepted request that could not be prepared; nothing of it is left.
  void withdraw(const std::string& client);
  // The engine's thread has taken an accepted request: it waits. Does not fail; if memory is short,
  // it does not count among its client's until the next publish().
  void take(const std::string& client);

  // Sequences of the scheduler.
  struct Scheduled {
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    const std::unordered_map<std::string, std::int64_t>* waiting_by_client = nullptr;
    std::uint64_t changes = 0;  // grows whenever waiting_by_client changes
  };
  // Includes all requests that were taken. Does not fail, as take() does not.
  void publish(const Scheduled& scheduled);

  std::int64_t waiting() const { return waiting_; }
  // That run, wait, or are about to.
  std::int64_t sequences() const { return running_ + waiting_ + arriving_; }
  std::uint64_t refused() const { return refused_; }

 private:
  using Counts = std::unordered_map<std::string, std::int64_t>;

  Result<void> check_adapters(const Request& request, const AdapterDirectory& adapters) const;
  QueueAtArrival queue_for(const std::string& client) const;
  std::int64_t free_places() const;
  void leave_arriving(const std::string& client);

  Limits limits_;
  std::int64_t running_ = 0;   // sequences
  std::int64_t waiting_ = 0;   // sequences, and requests taken since publish()
  std::int64_t taken_ = 0;     // of these, the requests
  std::int64_t arriving_ = 0;  // requests that have not been taken
  Counts waiting_by_client_;
  Counts arriving_by_client_;
  // The count of changes to which waiting_by_client_ belongs.
  std::optional<std::uint64_t> changes_;
  std::uint64_t refused_ = 0;  // because the queue was full
};

}  // namespace motley::engine
