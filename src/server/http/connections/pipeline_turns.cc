#include "server/http/connections/pipeline_turns.h"

#include <tuple>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/system/out_of_memory.h"

namespace motley::server {
namespace {

// Connections that go on in one turn.
constexpr std::size_t connections_per_turn = 8;

}  // namespace

void PipelineTurns::wait(std::function<void()> go_on) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(go_on));
    if (std::exchange(posted_, true)) return;
  }
  post_turn();
}

// Without memory for a turn, the connections go on at once.
void PipelineTurns::post_turn() {
  if (within_memory([this] { boost::asio::post(executor_, [this] { take_turn(); }); }).ok()) return;
  std::deque<std::function<void()>> all;
  {
    const std::lock_guard lock(mutex_);
    posted_ = false;
    all.swap(waiting_);
  }
  for (const auto& go_on : all) std::ignore = within_memory(go_on);
}

void PipelineTurns::take_turn() {
  for (std::size_t i = 0; i < connections_per_turn; ++i) {
    std::function<void()> go_on;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        posted_ = false;
        return;
      }
      go_on = std::move(waiting_.front());
      waiting_.pop_front();
    }
    std::ignore = within_memory(go_on);
  }
  post_turn();
}

}  // namespace motley::server
