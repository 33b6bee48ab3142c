#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace motley::server {

// Bounds the bytes that the bodies of all requests take together. From any thread.
class BodyBudget {
 public:
  // What one request has taken; given back when it goes.
  class Share {
   public:
    Share() = default;
    explicit Share(BodyBudget& budget) : budget_(&budget) {}
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->used_ -= bytes_;
    }

    // False where there is no room for that many more.
    bool grow(std::size_t bytes) {
      const std::size_t used = budget_->used_ += bytes;
      if (used > budget_->most_) {
        budget_->used_ -= bytes;
        return false;
      }
      bytes_ += bytes;
      return true;
    }

   private:
    BodyBudget* budget_ = nullptr;
    std::size_t bytes_ = 0;
  };

  explicit BodyBudget(std::size_t most) : most_(most) {}

 private:
  std::size_t most_;
  std::atomic<std::size_t> used_{0};
};

}  // namespace motley::server
