#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "server/http/http_stats.h"

namespace motley::server {

class Connection;

// The open connections of a server, and how many there may be. At the limit, a connection
// that has never sent anything is closed for one that comes; the oldest goes first. From any
// thread.
class ConnectionTable {
 public:
  enum class Entry { added, full, address_full, closed };

  ConnectionTable(std::size_t max_connections, std::size_t max_address_connections)
      : max_connections_(max_connections), max_address_connections_(max_address_connections) {}

  Entry add(const std::shared_ptr<Connection>& connection);
  // Something has come from it.
  void heard(const Connection& connection);
  void remove(const Connection& connection);

  // Without the bytes of bodies.
  HttpStats stats() const;
  // Lets every connection finish. Whether all that were there at the first call have gone, after
  // waiting at most so long; to be called until it is so. Where no memory is left to tell a
  // connection, the next call tells it.
  bool drain(std::chrono::milliseconds wait);
  // Closes every connection, and lets no other in.
  void close();

 private:
  struct Open {
    std::shared_ptr<Connection> connection;
    std::list<Connection*>::iterator silent;  // end(): it has sent something
    bool leaving = false;                     // evicted, and counts no more
    bool draining = false;
    bool asked_to_finish = false;
  };

  bool make_room(const std::string* address);
  void stop_counting(const Connection& connection);

  const std::size_t max_connections_;
  const std::size_t max_address_connections_;

  mutable std::mutex mutex_;
  std::condition_variable removed_;
  bool closed_ = false;
  bool draining_ = false;
  std::unordered_map<const Connection*, Open> open_;
  std::unordered_map<std::string, std::size_t> by_address_;
  std::list<Connection*> silent_;  // oldest first
  std::size_t leaving_ = 0;
  HttpStats stats_;  // what is counted over time
};

}  // namespace motley::server
