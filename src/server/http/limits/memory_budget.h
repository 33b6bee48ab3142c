#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace motley::server {

// Limits memory that requests hold together, and the part of it that one address holds. A part is
// reserved for addresses that hold little. Thread-safe.
class MemoryBudget {
 public:
  enum class Refusal { none, all, address };

  // An address that holds at most this much, including what it asks for, may use the reserve.
  static constexpr std::size_t small_bytes = std::size_t{1} << 20;
  static constexpr std::size_t reserved_part = 16;
  // What one client may hold of it, where no lower limit is set.
  static constexpr std::size_t client_part = 2;

  // The memory of one request; released on destruction.
  class Share {
   public:
    Share() = default;
    Share(MemoryBudget& budget, std::string_view address)
        : Share(budget, address, budget.max_address_bytes_) {}
    // With another limit for its address, such as that of requests with a key.
    Share(MemoryBudget& budget, std::string_view address, std::size_t max_address_bytes)
        : budget_(&budget), address_(address), max_address_bytes_(max_address_bytes) {}
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          address_(std::move(other.address_)),
          max_address_bytes_(other.max_address_bytes_),
          bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(address_, other.address_);
      std::swap(max_address_bytes_, other.max_address_bytes_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->give_back(address_, bytes_);
    }

    std::size_t bytes() const { return bytes_; }
    std::size_t max_address_bytes() const { return max_address_bytes_; }

    // Takes this much more, or says which limit forbids that.
    Refusal grow(std::size_t more) {
      const Refusal refusal = budget_->take(address_, max_address_bytes_, more);
      if (refusal == Refusal::none) bytes_ += more;
      return refusal;
    }

   private:
    MemoryBudget* budget_ = nullptr;
    std::string address_;
    std::size_t max_address_bytes_ = 0;
    std::size_t bytes_ = 0;
  };

  MemoryBudget(std::size_t max_bytes, std::size_t max_address_bytes)
      : max_bytes_(max_bytes), max_address_bytes_(max_address_bytes) {}

  std::size_t max_bytes() const { return max_bytes_; }
  std::size_t max_address_bytes() const { return max_address_bytes_; }
  std::size_t used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  std::size_t used_bytes(const std::string& address) const {
    const std::lock_guard lock(mutex_);
    return held_by_locked(address);
  }

 private:
  std::size_t held_by_locked(const std::string& address) const {
    const auto found = held_.find(address);
    return found == held_.end() ? 0 : found->second;
  }
  Refusal take(const std::string& address, std::size_t max_address_bytes, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t before = held_by_locked(address);
    // Other requests of the address may have a higher limit, and hold more than this one may.
    if (bytes > max_address_bytes - std::min(max_address_bytes, before)) return Refusal::address;
    const std::size_t reserve = before + bytes <= small_bytes ? 0 : max_bytes_ / reserved_part;
    const std::size_t limit = max_bytes_ - reserve;
    if (bytes > limit - std::min(limit, used_)) return Refusal::all;
    if (bytes == 0) return Refusal::none;
    held_[address] += bytes;
    used_ += bytes;
    return Refusal::none;
  }
  // Allocates nothing.
  void give_back(const std::string& address, std::size_t bytes) {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    const auto found = held_.find(address);
    found->second -= bytes;
    if (found->second == 0) held_.erase(found);
  }

  const std::size_t max_bytes_;
  const std::size_t max_address_bytes_;
  mutable std::mutex mutex_;
  std::size_t used_ = 0;
  std::unordered_map<std::string, std::size_t> held_;  // only addresses that hold something
};

}  // namespace motley::server
