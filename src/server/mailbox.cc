#include "server/mailbox.h"

#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/system/out_of_memory.h"
#include "server/handover.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

std::size_t bytes_of(const EngineNews& news) {
  std::size_t bytes = sizeof news;
  if (const auto* const token = std::get_if<ChoiceToken>(&news.what))
    bytes += token->token.top.size() * sizeof(engine::TopLogprob);
  if (const auto* const scores = std::get_if<PromptScores>(&news.what))
    bytes += scores->logprobs.size() * sizeof(float) + scores->ranks.size() * sizeof(std::int32_t) +
             scores->top.size() * sizeof(engine::TopLogprob);
  return bytes;
}

class Sink final : public engine::RequestSink {
 public:
  Sink(std::shared_ptr<Mailbox> mailbox, std::size_t prompt)
      : mailbox_(std::move(mailbox)), prompt_(prompt) {}

  void started(const engine::StartEvent& event) override {
    tell([&] { return event; });
  }
  void prompt_scored(const engine::PromptEvent& event) override {
    tell([&] {
      return PromptScores{.first = event.first,
                          .logprobs = {event.logprobs.begin(), event.logprobs.end()},
                          .ranks = {event.ranks.begin(), event.ranks.end()},
                          .top = {event.top.begin(), event.top.end()}};
    });
  }
  void token(const engine::TokenEvent& event) override {
    tell([&] {
      return ChoiceToken{.choice = event.choice,
                         .token = {.id = event.token,
                                   .logprob = event.logprob,
                                   .top = {event.top.begin(), event.top.end()}}};
    });
  }
  void choice_finished(const engine::ChoiceEvent& event) override {
    tell([&] { return event; });
  }
  void finished(const engine::Usage& usage) override {
    tell([&] { return usage; });
  }
  void failed(const Error& error) override {
    tell([&] { return error; });
  }

 private:
  // The engine does not learn that its message found no memory; the client does.
  template <class Make>
  void tell(Make make) {
    if (!within_memory([&] { mailbox_->post({prompt_, make()}); }).ok()) mailbox_->lose();
  }

  std::shared_ptr<Mailbox> mailbox_;
  std::size_t prompt_;
};

}  // namespace

std::shared_ptr<engine::RequestSink> Mailbox::sink_for(std::size_t prompt) {
  return std::make_shared<Sink>(shared_from_this(), prompt);
}

void Mailbox::limit_backlog(std::size_t max_bytes, std::function<void()> notice) {
  const std::lock_guard lock(mutex_);
  max_backlog_bytes_ = notice ? max_bytes : max_unlimited_bytes_;
  overflow_notice_ = std::move(notice);
}

void Mailbox::post(EngineNews news) {
  {
    const std::lock_guard lock(mutex_);
    if (overflowed_ || lost_) return;
    backlog_bytes_ += bytes_of(news);
    if (backlog_bytes_ > max_backlog_bytes_) {
      overflowed_ = true;
      news_ = {};
    } else {
      news_.push_back(std::move(news));
      if (std::exchange(notified_, true)) return;
    }
  }
  if (wake_executor()) return;
  const std::lock_guard lock(mutex_);
  notified_ = false;
}

void Mailbox::lose() {
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
    news_ = {};
  }
  std::ignore = wake_executor();
}

bool Mailbox::wake_executor() {
  return within_memory([this] {
           asio::post(wake_.get_executor(), [self = shared_from_this()] { self->tell(); });
         })
      .ok();
}

void Mailbox::tell() {
  std::function<void()> notice;
  {
    const std::lock_guard lock(mutex_);
    if (overflowed_) notice = std::exchange(overflow_notice_, nullptr);
  }
  if (notice) notice();
  wake_.cancel();
}

void Mailbox::wake() {
  woken_ = true;
  wake_.cancel();
}

asio::awaitable<Result<std::vector<EngineNews>>> Mailbox::next() {
  std::vector<EngineNews> news;
  while (true) {
    std::function<void()> notice;
    {
      const std::lock_guard lock(mutex_);
      if (lost_) co_return out_of_memory_error();
      // If memory was too short to wake this, the notice has not been given either.
      if (overflowed_) notice = std::exchange(overflow_notice_, nullptr);
      if (overflowed_ && !notice && max_backlog_bytes_ == max_unlimited_bytes_)
        co_return Error(ErrorCode::busy, "the answer came faster than it could be written", "",
                        "try again later, or ask for less at once");
      news.swap(news_);
      backlog_bytes_ = 0;
      notified_ = false;
    }
    if (notice) notice();
    if (!news.empty() || std::exchange(woken_, false)) co_return news;
    // A message that arrives from here on cancels the wait, because this runs on the executor.
    wake_.expires_after(look_without_wake);
    co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace motley::server
