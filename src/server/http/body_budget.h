#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/bytes_by_address.h"

namespace motley::server {

// Limits the memory of all requests' bodies together, and of the bodies from one address: half of
// it for requests with a key, less without. Thread-safe.
class BodyBudget {
 public:
  enum class Refusal { none, all, address };

  // The memory of one request; released on destruction.
  class Share {
   public:
    Share() = default;
    Share(BodyBudget& budget, std::string_view address, bool authorized)
        : budget_(&budget),
          address_(address),
          max_address_bytes_(authorized ? budget.max_bytes_ / 2 : budget.max_address_bytes_) {}
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

    // Grows the share to `bytes`, or says which limit forbids that.
    Refusal grow_to(std::size_t bytes) {
      const Refusal refusal = budget_->take(address_, max_address_bytes_, bytes - bytes_);
      if (refusal == Refusal::none) bytes_ = bytes;
      return refusal;
    }
    std::size_t bytes() const { return bytes_; }
    std::size_t max_address_bytes() const { return max_address_bytes_; }

   private:
    BodyBudget* budget_ = nullptr;
    std::string address_;
    std::size_t max_address_bytes_ = 0;
    std::size_t bytes_ = 0;
  };

  BodyBudget(std::size_t max_bytes, std::size_t max_address_bytes)
      : max_bytes_(max_bytes), max_address_bytes_(max_address_bytes) {}

  std::size_t used() const {
    const std::lock_guard lock(mutex_);
    return held_.all();
  }

 private:
  Refusal take(const std::string& address, std::size_t max_address_bytes, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > max_bytes_ - held_.all()) return Refusal::all;
    // Requests with a key may hold more than the limit without a key.
    const std::size_t own = held_.of(address);
    if (own > max_address_bytes || bytes > max_address_bytes - own) return Refusal::address;
    held_.add(address, bytes);
    return Refusal::none;
  }
  void give_back(const std::string& address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_.remove(address, bytes);
  }

  const std::size_t max_bytes_;
  const std::size_t max_address_bytes_;
  mutable std::mutex mutex_;
  BytesByAddress held_;
};

}  // namespace motley::server
