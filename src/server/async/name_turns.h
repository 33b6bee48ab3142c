#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "server/async/handover.h"

namespace motley::server {

// Changes of one name, one at a time, in the order in which they ask. Thread-safe.
class NameTurns {
 public:
  // Ends when it is destroyed.
  class Turn {
   public:
    Turn(NameTurns& turns, std::string name) : turns_(&turns), name_(std::move(name)) {}
    Turn(Turn&& other) noexcept
        : turns_(std::exchange(other.turns_, nullptr)), name_(std::move(other.name_)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->end(name_);
    }

   private:
    NameTurns* turns_;
    std::string name_;
  };

  boost::asio::awaitable<Turn> take(boost::asio::any_io_executor executor, std::string name) {
    std::shared_ptr<Handover<bool>> wait;
    {
      const std::lock_guard held(lock_);
      const auto [found, first] = waiting_.try_emplace(name);
      if (!first) {
        wait = std::make_shared<Handover<bool>>(executor);
        found->second.push_back(wait);
      }
    }
    Turn turn(*this, std::move(name));
    if (wait != nullptr) co_await wait->take();
    co_return turn;
  }

 private:
  void end(const std::string& name) {
    std::shared_ptr<Handover<bool>> next;
    {
      const std::lock_guard held(lock_);
      const auto found = waiting_.find(name);
      if (found->second.empty()) {
        waiting_.erase(found);
        return;
      }
      next = std::move(found->second.front());
      found->second.pop_front();
    }
    next->give(true);
  }

  std::mutex lock_;
  // By name, while one has its turn.
  std::map<std::string, std::list<std::shared_ptr<Handover<bool>>>, std::less<>> waiting_;
};

}  // namespace motley::server
