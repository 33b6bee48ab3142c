#include "server/http/connection_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/system/out_of_memory.h"
#include "server/http/connection.h"

namespace motley::server {
namespace {

// The most evicted connections that still hold their descriptors.
constexpr std::size_t max_evicted = 64;
// The most refused connections that wait for their clients to read the answer. As many again may be
// closing.
constexpr std::size_t max_refused = 64;

}  // namespace

ConnectionTable::Entry ConnectionTable::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Entry::closed;
  const std::string& address = connection->address();
  const std::size_t own = count_of(address);
  // A proxy connects for many addresses.
  const bool address_full = own >= max_address_connections_ && !connection->is_proxy();
  const std::size_t reserve = own == 0 ? 0 : max_connections_ / 16;
  const bool full = open_.size() - leaving_ >= max_connections_ - reserve;
  if ((full || address_full) && !make_room(*connection, address_full)) {
    ++(address_full ? stats_.refused_address : stats_.refused_full);
    if (!refuse(connection)) return Entry::closed;
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

// Whether the connection may stay until its client has read why it is refused.
bool ConnectionTable::refuse(const std::shared_ptr<Connection>& connection) {
  if (refused_.size() >= 2 * max_refused) return false;
  if (refused_.size() >= max_refused) {
    const auto after = static_cast<std::ptrdiff_t>(refused_.size() - max_refused);
    open_.at(*std::next(refused_.begin(), after)).connection->abort();
  }
  // First what may run out of memory.
  std::list<const Connection*> node{connection.get()};
  open_[connection.get()] = {.connection = connection, .silent = silent_.end(), .leaving = true};
  refused_.splice(refused_.end(), node);
  ++leaving_;
  return true;
}

// Closes the oldest connection that has sent nothing, of an address with no fewer than that of the
// new one, or of the same address.
bool ConnectionTable::make_room(const Connection& connection, bool of_its_address) {
  if (leaving_ - refused_.size() >= max_evicted) return false;
  const std::string& address = connection.address();
  const std::size_t own = count_of(address);
  const auto oldest = std::ranges::find_if(silent_, [&](const Connection* each) {
    return of_its_address ? each->address() == address : count_of(each->address()) >= own;
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

std::size_t ConnectionTable::count_of(const std::string& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? 0 : found->second;
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
  refused_.remove(&connection);
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
  stats.connections = open_.size() - refused_.size();
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
