// Whose work a queue takes.
#pragma once

#include <cstdint>

namespace motley {

// The queue at the arrival of a request. Requests wait in it until they begin.
struct QueueAtArrival {
  std::int64_t places = 0;   // for requests of all clients: --max-queue
  std::int64_t free = 0;     // places in the batch for requests that need not wait
  std::int64_t waiting = 0;  // requests
  std::int64_t own = 0;      // of these, the client's
  std::int64_t clients = 0;  // with waiting requests, including this one
};

// Whether the request gets a place. A single client may take all places. If several wait, each has
// a share that the others cannot take: its requests are accepted up to that share even if the queue
// is full. k clients hold at most places * (1 + 1/2 + ... + 1/k) places, or one each.
constexpr bool has_place(const QueueAtArrival& queue) {
  if (queue.waiting < queue.places + queue.free) return true;
  if (queue.places == 0) return false;
  const std::int64_t share = queue.places / queue.clients;
  return queue.own < (share > 1 ? share : 1);
}

}  // namespace motley
