#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/system/clock.h"
#include "engine/requests/event_queue.h"

namespace motley::engine {

// Reads the events of one request on a thread that waits for them.
class WaitingReader {
 public:
  std::shared_ptr<EventSink> sink() { return queue_->sink_for(0); }

  // The events so far; waits for the first one at most this long, and may return none.
  Result<std::vector<EventQueue::Entry>> take(Duration most) {
    {
      std::unique_lock held(bell_->mutex);
      bell_->rung.wait_for(held, most, [this] { return std::exchange(bell_->rings, false); });
    }
    return queue_->take();
  }

 private:
  // The engine may ring once more when the reader has gone.
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
    bool rings = false;

    bool ring() {
      const std::lock_guard held(mutex);
      rings = true;
      rung.notify_one();
      return true;
    }
  };

  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::shared_ptr<EventQueue> queue_ =
      std::make_shared<EventQueue>([bell = bell_] { return bell->ring(); });
};

}  // namespace motley::engine
