#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

namespace motley::server {

// How much of a limited resource each address holds. Guarded by its owner's lock.
class BytesByAddress {
 public:
  std::size_t all() const { return all_; }
  std::size_t of(const std::string& address) const {
    const auto found = held_.find(address);
    return found == held_.end() ? 0 : found->second;
  }
  void add(const std::string& address, std::size_t bytes) {
    if (bytes == 0) return;
    held_[address] += bytes;
    all_ += bytes;
  }
  // Removes what was added. Allocates nothing.
  void remove(const std::string& address, std::size_t bytes) {
    if (bytes == 0) return;
    all_ -= bytes;
    const auto found = held_.find(address);
    found->second -= bytes;
    if (found->second == 0) held_.erase(found);
  }

 private:
  std::size_t all_ = 0;
  std::unordered_map<std::string, std::size_t> held_;  // only addresses that hold something
};

}  // namespace motley::server
