#include "server/http/connection_table.h"

#include <algorithm>
#include <utility>

#include "base/system/out_of_memory.h"
#include "server/http/connection.h"

namespace motley::server {
namespace {

// The most evicted connections that still hold their descriptors.
constexpr std::size_t max_leaving = 64;

}  // namespace

ConnectionTable::Entry ConnectionTable::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Entry::closed;
  const std::string& address = connection->address();
  const auto from_address = by_address_.find(address);
  const bool address_full =
      from_address != by_address_.end() && from_address->second >= max_address_connections_;
  const bool full = open_.size() - leaving_ >= max_connections_;
  if ((full || address_full) && !make_room(address_full ? &address : nullptr)) {
    ++(address_full ? stats_.refused_address : stats_.refused_full);
    return address_full ? Entry::address_full : Entry::full;
  }
  // First what may run out of memory.
  std::list<Connection*> node{connection.get()};
  std::size_t& count = by_address_[address];
  open_[connection.get()] = {.connection = connection, .silent = node.begin()};
  ++count;
  silent_.splice(silent_.end(), node);
  return Entry::added;
}

// Closes the oldest connection that has sent nothing, of that address if one is given.
bool ConnectionTable::make_room(const std::string* address) {
  if (leaving_ >= max_leaving) return false;
  const auto oldest = std::ranges::find_if(silent_, [&](const Connection* each) {
    return address == nullptr || each->address() == *address;
  });
  if (oldest == silent_.end()) return false;
  Open& open = open_.at(*oldest);
  stop_counting(*open.connection);
  open.silent = silent_.end();
  silent_.erase(oldest);
  open.leaving = true;
  ++leaving_;
  ++stats_.evicted;
  open.connection->abort();
  return true;
}

void ConnectionTable::stop_counting(const Connection& connection) {
  const auto count = by_address_.find(connection.address());
  if (--count->second == 0) by_address_.erase(count);
}

void ConnectionTable::heard(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(&connection);
  if (found == open_.end() || found->second.silent == silent_.end()) return;
  silent_.erase(found->second.silent);
  found->second.silent = silent_.end();
}

void ConnectionTable::remove(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(&connection);
  if (found == open_.end()) return;
  if (found->second.silent != silent_.end()) silent_.erase(found->second.silent);
  if (found->second.leaving)
    --leaving_;
  else
    stop_counting(connection);
  open_.erase(found);
  removed_.notify_all();
}

HttpStats ConnectionTable::stats() const {
  const std::lock_guard lock(mutex_);
  HttpStats stats = stats_;
  stats.connections = open_.size();
  return stats;
}

bool ConnectionTable::drain(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  const bool begins = !std::exchange(draining_, true);
  for (auto& [key, open] : open_) {
    if (begins) open.draining = true;
    if (open.draining && !open.asked_to_finish)
      open.asked_to_finish = within_memory([&] { open.connection->finish(); }).ok();
  }
  const bool gone = removed_.wait_for(lock, wait, [this] {
    return std::ranges::none_of(open_, [](const auto& each) { return each.second.draining; });
  });
  draining_ = !gone;
  return gone;
}

void ConnectionTable::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [key, open] : open_) open.connection->abort();
}

}  // namespace motley::server
