#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "server/async/handover.h"
#include "server/http/messages/message.h"

namespace motley::server {

// Answers of pushes by the ids that their clients gave them, so that a push that is sent again is
// not done again. Thread-safe.
class PushOperations {
 public:
  // Answers that are remembered; beyond that the oldest is forgotten.
  static constexpr std::size_t max_answers = 1024;
  // A longer one is not remembered.
  static constexpr std::size_t max_answer_bytes = 4 << 10;

  // The first push with an id, or the answer that it had.
  class Operation {
   public:
    Operation() = default;  // without an id
    Operation(Operation&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          key_(std::move(other.key_)),
          answer_(std::move(other.answer_)) {}
    Operation& operator=(Operation&&) = delete;
    // Without end() it has not happened: the next push with its id does it.
    ~Operation() {
      if (owner_ != nullptr) owner_->end(key_, nullptr);
    }

    // Null: this one does it.
    const HttpResponse* answer() const { return answer_.get(); }
    // Its answer, for those that repeat it. One that asks to try again later is not kept.
    void end(const HttpResponse& answer);

   private:
    friend class PushOperations;
    PushOperations* owner_ = nullptr;
    std::string key_;
    std::shared_ptr<const HttpResponse> answer_;
  };

  // Waits while another one with this id is under way.
  boost::asio::awaitable<Operation> begin(boost::asio::any_io_executor executor,
                                          std::string_view name, std::string_view id);
  std::size_t answers() const;

 private:
  using Answer = std::shared_ptr<const HttpResponse>;
  struct Entry {
    Answer answer;  // null while it is under way
    std::list<std::shared_ptr<Handover<Answer>>> waiting;
  };
  void end(const std::string& key, const Answer& answer);

  mutable std::mutex lock_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::list<std::string> answered_;  // keys, the oldest first
};

}  // namespace motley::server
