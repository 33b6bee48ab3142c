#include "server/mailbox.h"

#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace motley::server {
namespace {

namespace asio = boost::asio;

class Sink final : public engine::RequestSink {
 public:
  Sink(std::shared_ptr<Mailbox> mailbox, std::size_t prompt)
      : mailbox_(std::move(mailbox)), prompt_(prompt) {}

  void started(const engine::StartEvent& event) override { mailbox_->post({prompt_, event}); }
  void prompt_scored(const engine::PromptEvent& event) override {
    mailbox_->post(
        {prompt_, PromptScores{.first = event.first,
                               .logprobs = {event.logprobs.begin(), event.logprobs.end()},
                               .top = {event.top.begin(), event.top.end()}}});
  }
  void token(const engine::TokenEvent& event) override {
    mailbox_->post({prompt_, ChoiceToken{.choice = event.choice,
                                         .token = {.id = event.token,
                                                   .logprob = event.logprob,
                                                   .top = {event.top.begin(), event.top.end()}}}});
  }
  void choice_finished(const engine::ChoiceEvent& event) override {
    mailbox_->post({prompt_, event});
  }
  void finished(const engine::Usage& usage) override { mailbox_->post({prompt_, usage}); }
  void failed(const Error& error) override { mailbox_->post({prompt_, error}); }

 private:
  std::shared_ptr<Mailbox> mailbox_;
  std::size_t prompt_;
};

}  // namespace

std::shared_ptr<engine::RequestSink> Mailbox::sink_for(std::size_t prompt) {
  return std::make_shared<Sink>(shared_from_this(), prompt);
}

void Mailbox::post(EngineNews news) {
  {
    const std::lock_guard lock(mutex_);
    news_.push_back(std::move(news));
    if (std::exchange(told_, true)) return;
  }
  asio::post(wake_.get_executor(), [self = shared_from_this()] { self->wake_.cancel(); });
}

void Mailbox::wake() {
  woken_ = true;
  wake_.cancel();
}

asio::awaitable<std::vector<EngineNews>> Mailbox::next() {
  std::vector<EngineNews> news;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      news.swap(news_);
      told_ = false;
    }
    if (!news.empty() || std::exchange(woken_, false)) co_return news;
    // What comes from here on cancels the wait, because it is told on this very executor.
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace motley::server
