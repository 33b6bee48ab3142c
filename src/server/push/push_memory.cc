#include "server/push/push_memory.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/cat.h"
#include "base/units.h"

namespace motley::server {

struct PushMemory::State {
  explicit State(std::uint64_t limit) : limit_bytes(limit) {}

  const std::uint64_t limit_bytes;
  std::mutex lock;
  std::condition_variable changed;
  std::uint64_t used_bytes = 0;
  std::uint64_t contents = 0;
  Kept* released = nullptr;  // a list of those to free
  bool ending = false;
};

// A content with its bytes; its place in the list is its own, so that a release takes no memory.
struct PushMemory::Kept {
  std::unique_ptr<lora::AdapterContent> content;
  Share share;
  std::shared_ptr<State> state;
  Kept* next = nullptr;
};

PushMemory::PushMemory(Options options)
    : options_(std::move(options)),
      state_(std::make_shared<State>(options_.max_bytes)),
      freeing_([state = state_] { free_released(*state); }) {}

PushMemory::~PushMemory() {
  {
    const std::lock_guard held(state_->lock);
    state_->ending = true;
  }
  state_->changed.notify_all();
  freeing_.join();
}

PushMemory::Share::Share(Share&& other) noexcept
    : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}

PushMemory::Share::~Share() { shrink_to(0); }

void PushMemory::Share::shrink_to(std::uint64_t bytes) {
  if (bytes_ <= bytes) return;
  const std::lock_guard held(state_->lock);
  state_->used_bytes -= bytes_ - bytes;
  bytes_ = bytes;
}

Result<void> PushMemory::Share::grow(std::uint64_t more) {
  const std::uint64_t limit = state_->limit_bytes;
  if (more > limit || bytes_ > limit - more)
    return Error(ErrorCode::too_long,
                 cat("an adapter of more than the ", format_bytes(limit), " of --push-memory"), "",
                 "push a smaller one, or start the server with more");
  const std::lock_guard held(state_->lock);
  if (more > limit - state_->used_bytes)
    return Error(
        ErrorCode::busy,
        cat("other pushed adapters hold ", format_bytes(state_->used_bytes - bytes_), " of the ",
            format_bytes(limit), " of --push-memory, old versions that requests wait for included"),
        "", "try again later, unload some, or start the server with more");
  state_->used_bytes += more;
  bytes_ += more;
  return {};
}

std::shared_ptr<const lora::AdapterContent> PushMemory::keep(
    std::unique_ptr<lora::AdapterContent> content, Share share) {
  const lora::AdapterContent* const kept_content = content.get();
  auto* const kept =
      new Kept{.content = std::move(content), .share = std::move(share), .state = state_};
  {
    const std::lock_guard held(state_->lock);
    ++state_->contents;
  }
  // If there is no memory for it, it calls the function.
  return {kept_content, [kept](const lora::AdapterContent*) { release(kept); }};
}

PushMemory::Figures PushMemory::figures() const {
  const std::lock_guard held(state_->lock);
  return {.used_bytes = state_->used_bytes,
          .limit_bytes = state_->limit_bytes,
          .contents = state_->contents};
}

void PushMemory::release(Kept* kept) {
  const std::shared_ptr<State> state = kept->state;
  std::unique_ptr<Kept> freed_here;
  const std::lock_guard held(state->lock);
  if (state->ending) {
    --state->contents;
    state->used_bytes -= std::exchange(kept->share.bytes_, 0);
    freed_here.reset(kept);
    return;
  }
  kept->next = std::exchange(state->released, kept);
  state->changed.notify_all();
}

void PushMemory::free_released(State& state) {
  std::unique_lock held(state.lock);
  while (true) {
    state.changed.wait(held, [&] { return state.ending || state.released != nullptr; });
    Kept* kept = std::exchange(state.released, nullptr);
    if (kept == nullptr) return;
    std::uint64_t count = 0;
    held.unlock();
    while (kept != nullptr) {
      const std::unique_ptr<Kept> one(std::exchange(kept, kept->next));
      one->content.reset();  // before its bytes are given back
      ++count;
    }
    held.lock();
    state.contents -= count;
  }
}

}  // namespace motley::server
