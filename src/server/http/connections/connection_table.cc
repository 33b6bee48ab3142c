#include "server/http/connections/connection_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/system/out_of_memory.h"
#include "server/http/connections/connection.h"

namespace motley::server {
namespace {

// The most evicted connections that still hold their descriptors.
constexpr std::size_t max_evicted = 64;

}  // namespace

ConnectionTable::Entry ConnectionTable::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Entry::closed;
  const std::string& address = connection->address();
  const std::size_t own = count_of(address);
  // A proxy connects for many addresses.
  const bool address_full = own >= max_address_connections_ && !connection->is_proxy();
  const std::size_t reserve = own == 0 ? 0 : max_connections_ / reserved_part;
  const bool full = open_.size() - leaving_ >= max_connections_ - reserve;
  if ((full || address_full) && !make_room(*connection, address_full)) {
    ++(address_full ? stats_.refused_address : stats_.refused_full);
    if (!refuse(connection)) return Entry::closed;
    return address_full ? Entry::address_full : Entry::full;
  }
  // First what may run out of memory.
  std::size_t& count = by_address_[address];
  insert(connection, waiting_).of_address = &count;
  ++count;
  return Entry::added;
}

ConnectionTable::Open& ConnectionTable::insert(const std::shared_ptr<Connection>& connection,
                                               std::list<Open*>& list) {
  std::list<Open*> node{nullptr};
  Open& open = open_[connection.get()];
  open.connection = connection;
  open.place = node.begin();
  node.front() = &open;
  list.splice(list.end(), node);
  return open;
}

// Whether the connection may stay until its client has read why it is refused.
bool ConnectionTable::refuse(const std::shared_ptr<Connection>& connection) {
  if (refused_.size() >= 2 * max_refused) return false;
  if (refused_.size() >= max_refused) {
    const auto after = static_cast<std::ptrdiff_t>(refused_.size() - max_refused);
    (*std::next(refused_.begin(), after))->connection->abort();
  }
  Open& open = insert(connection, refused_);
  open.waiting = false;
  open.leaving = true;
  ++leaving_;
  return true;
}

// Closes one that waits for its client; false where none may be closed for the new one.
bool ConnectionTable::make_room(const Connection& connection, bool of_its_address) {
  if (leaving_ - refused_.size() >= max_evicted) return false;
  Open* const open = longest_waiting(connection, of_its_address);
  if (open == nullptr) return false;
  stop_counting(*open->connection);
  open->waiting = false;
  working_.splice(working_.end(), waiting_, open->place);
  open->leaving = true;
  ++leaving_;
  ++stats_.evicted;
  open->connection->abort();
  return true;
}

// Its own address' first that never had a request, or else as the class says. A proxy's connections
// are those of many clients.
ConnectionTable::Open* ConnectionTable::longest_waiting(const Connection& connection,
                                                        bool of_its_address) {
  const std::size_t own = count_of(connection.address());
  Open* best = nullptr;
  for (Open* const each : waiting_) {
    if (of_its_address) {
      if (!each->served && each->connection->address() == connection.address()) return each;
      continue;
    }
    const std::size_t count = *each->of_address;
    if (each->served ? count <= own || each->connection->is_proxy() : count < own) continue;
    if (best == nullptr || count > *best->of_address ||
        (count == *best->of_address && best->served && !each->served))
      best = each;
  }
  return best;
}

std::size_t ConnectionTable::count_of(const std::string& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? 0 : found->second;
}

void ConnectionTable::stop_counting(const Connection& connection) {
  const auto count = by_address_.find(connection.address());
  if (--count->second == 0) by_address_.erase(count);
}

void ConnectionTable::works(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(&connection);
  if (found == open_.end() || found->second.leaving || !found->second.waiting) return;
  found->second.served = true;
  found->second.waiting = false;
  working_.splice(working_.end(), waiting_, found->second.place);
}

void ConnectionTable::waits(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(&connection);
  if (found == open_.end() || found->second.leaving || found->second.waiting) return;
  found->second.waiting = true;
  waiting_.splice(waiting_.end(), working_, found->second.place);
}

void ConnectionTable::remove(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(&connection);
  if (found == open_.end()) return;
  Open& open = found->second;
  const bool refused = open.of_address == nullptr;
  (refused ? refused_ : open.waiting ? waiting_ : working_).erase(open.place);
  if (open.leaving)
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
  stats.waiting = waiting_.size();
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
