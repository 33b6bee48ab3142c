#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/bytes_by_address.h"

namespace motley::server {

// Limits the memory of all requests together, from acceptance until their answers have been sent,
// and that of one address to half of it. A sixteenth is reserved for small requests from addresses
// that hold nothing. Thread-safe.
class RequestBudget {
 public:
  enum class Refusal { none, all, address };

  // The memory of one request; released on destruction.
  class Share {
   public:
    Share(RequestBudget& budget, std::string_view address) : budget_(&budget), address_(address) {}
    Share(Share&& other) noexcept
        : budget_(other.budget_),
          address_(std::move(other.address_)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() { budget_->give_back(address_, bytes_); }

    std::size_t bytes() const { return bytes_; }

    // Takes this much more, or says which limit forbids that.
    Refusal grow(std::size_t bytes) {
      const Refusal refusal = budget_->take(address_, bytes);
      if (refusal == Refusal::none) bytes_ += bytes;
      return refusal;
    }

   private:
    RequestBudget* budget_;
    std::string address_;
    std::size_t bytes_ = 0;
  };

  static constexpr std::size_t small_bytes = std::size_t{1} << 20;

  explicit RequestBudget(std::size_t max_bytes) : max_(max_bytes) {}

  std::size_t max_bytes() const { return max_; }
  std::size_t max_address_bytes() const { return max_ / 2; }
  std::size_t used_bytes() const {
    const std::lock_guard lock(mutex_);
    return held_.all();
  }
  std::size_t used_bytes(const std::string& address) const {
    const std::lock_guard lock(mutex_);
    return held_.of(address);
  }

 private:
  Refusal take(const std::string& address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t before = held_.of(address);
    if (bytes > max_address_bytes() - before) return Refusal::address;
    const bool reserved = before == 0 && bytes <= small_bytes;
    const std::size_t limit = reserved ? max_ : max_ - max_ / 16;
    if (bytes > limit - std::min(limit, held_.all())) return Refusal::all;
    held_.add(address, bytes);
    return Refusal::none;
  }
  void give_back(const std::string& address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_.remove(address, bytes);
  }

  const std::size_t max_;
  mutable std::mutex mutex_;
  BytesByAddress held_;
};

}  // namespace motley::server
