#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "server/http/connections/http_stats.h"

namespace motley::server {

class Connection;

// The open connections of a server, up to a limit, the last part of which is for addresses that
// have none. At the limit a connection that waits for its client's request is closed for a new
// one: of the address that has the most of them, and more than the new one's; one that never had a
// request also of an address with as many. Thread-safe.
class ConnectionTable {
 public:
  static constexpr std::size_t reserved_part = 16;
  // The most refused connections that wait for their clients to read the answer. As many again may
  // be closing.
  static constexpr std::size_t max_refused = 64;

  enum class Entry { added, full, address_full, closed };

  ConnectionTable(std::size_t max_connections, std::size_t max_address_connections)
      : max_connections_(max_connections), max_address_connections_(max_address_connections) {}

  // A connection that is refused for a limit stays in the table, without being counted, until its
  // answer is sent and it is removed; the oldest such one is closed for a new one.
  Entry add(const std::shared_ptr<Connection>& connection);
  // Call when the head of a request has arrived from it, and when it waits for the next.
  void works(const Connection& connection);
  void waits(const Connection& connection);
  void remove(const Connection& connection);

  // Without the bytes of bodies.
  HttpStats stats() const;
  // Lets every connection finish. Waits at most `wait`, and returns whether all connections of the
  // first call have gone; call again until they have. A connection that could not be notified for
  // lack of memory is notified by the next call.
  bool drain(std::chrono::milliseconds wait);
  // Closes every connection, and refuses new ones.
  void close();

 private:
  struct Open {
    std::shared_ptr<Connection> connection;
    std::list<Open*>::iterator place;  // in waiting_, working_ or refused_
    const std::size_t* of_address = nullptr;
    bool waiting = true;
    bool served = false;   // it has had a request
    bool leaving = false;  // evicted or refused: not counted
    bool draining = false;
    bool asked_to_finish = false;
  };

  bool make_room(const Connection& connection, bool of_its_address);
  Open* longest_waiting(const Connection& connection, bool of_its_address);
  Open& insert(const std::shared_ptr<Connection>& connection, std::list<Open*>& list);
  bool refuse(const std::shared_ptr<Connection>& connection);
  std::size_t count_of(const std::string& address) const;
  void stop_counting(const Connection& connection);

  const std::size_t max_connections_;
  const std::size_t max_address_connections_;

  mutable std::mutex mutex_;
  std::condition_variable removed_;
  bool closed_ = false;
  bool draining_ = false;
  std::unordered_map<const Connection*, Open> open_;
  std::unordered_map<std::string, std::size_t> by_address_;
  std::list<Open*> waiting_;  // for a request; the longest first
  std::list<Open*> working_;  // and those that were evicted
  std::list<Open*> refused_;  // oldest first
  std::size_t leaving_ = 0;
  HttpStats stats_;  // what is counted over time
};

}  // namespace motley::server
