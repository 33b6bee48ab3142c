#include "server/mailbox.h"

#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/system/out_of_memory.h"
#include "server/async/handover.h"

namespace motley::server {

namespace asio = boost::asio;

std::shared_ptr<Mailbox> Mailbox::make(const asio::any_io_executor& executor,
                                       std::size_t max_bytes) {
  const std::shared_ptr<Mailbox> mailbox(new Mailbox(executor, max_bytes));
  // What has been left needs no events.
  const auto wake = [reader = std::weak_ptr<Mailbox>(mailbox)] {
    const std::shared_ptr<Mailbox> here = reader.lock();
    return here == nullptr || here->wake_executor();
  };
  mailbox->queue_ = std::make_shared<engine::EventQueue>(wake, max_bytes);
  return mailbox;
}

bool Mailbox::wake_executor() {
  return within_memory([this] {
           asio::post(wake_.get_executor(), [self = shared_from_this()] {
             self->give_notice();
             self->wake_.cancel();
           });
         })
      .ok();
}

void Mailbox::limit_backlog(std::size_t max_bytes, std::function<void()> notice) {
  limited_ = notice != nullptr;
  queue_->limit(limited_ ? max_bytes : max_bytes_);
  overflow_notice_ = std::move(notice);
}

void Mailbox::give_notice() {
  if (!overflow_notice_ || !queue_->overflowed()) return;
  const auto notice = std::exchange(overflow_notice_, nullptr);
  notice();
}

void Mailbox::wake() {
  woken_ = true;
  wake_.cancel();
}

asio::awaitable<Result<Mailbox::Entries>> Mailbox::next() {
  while (true) {
    Result<Entries> taken = queue_->take();
    // If memory was too short to wake this, the notice has not been given either.
    if (limited_ && !taken.ok() && taken.error().code() == ErrorCode::busy) {
      give_notice();
      taken = Entries();
    }
    if (!taken.ok() || !taken->empty() || std::exchange(woken_, false)) co_return taken;
    // An event that arrives from here on cancels the wait, because this runs on the executor.
    wake_.expires_after(look_without_wake);
    co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace motley::server
