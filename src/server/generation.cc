#include "server/generation.h"

#include <utility>

#include "base/cat.h"
#include "server/api/api_error.h"
#include "server/mailbox.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// What the engine does not find is an adapter, and requests name those as models. What it refuses
// after it has accepted a request is the grammar.
Error as_clients_see(const Error& error, std::string_view grammar_field) {
  if (error.code() == ErrorCode::not_found)
    return {ErrorCode::not_found, error.what(), "model", "GET /v1/models lists those there are"};
  const bool refused =
      error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::too_long;
  if (refused && !grammar_field.empty())
    return {error.code(), error.what(), std::string(grammar_field), error.fix()};
  return error;
}

// The engine's part of an HTTP request: one request of the engine's for each prompt.
class Generation {
 public:
  Generation(Exchange& exchange, Backend& backend, GenerationPlan& plan, Transcript transcript)
      : exchange_(exchange),
        backend_(backend),
        plan_(plan),
        transcript_(std::move(transcript)),
        mailbox_(std::make_shared<Mailbox>(exchange.executor())) {}

  asio::awaitable<void> run() {
    if (const Result<void> submitted = submit(); !submitted.ok()) {
      cancel_all();
      co_await exchange_.send(error_response(submitted.error()));
      co_return;
    }
    exchange_.on_gone([this] {
      cancel_all();
      mailbox_->wake();
    });
    if (plan_.stream)
      co_await stream();
    else
      co_await collect();
    exchange_.on_gone(nullptr);
  }

 private:
  Result<void> submit() {
    for (std::size_t i = 0; i < plan_.requests.size(); ++i) {
      auto id = backend_.submit(std::move(plan_.requests[i]), mailbox_->sink_for(i));
      if (!id.ok()) return as_clients_see(id.error(), {});
      ids_.push_back(*id);
    }
    return {};
  }

  void cancel_all() {
    for (const engine::RequestId id : ids_) backend_.cancel(id);
  }

  void cancel_stopped() {
    for (const auto& [prompt, choice] : transcript_.take_stopped())
      backend_.cancel(ids_[prompt], choice);
  }

  asio::awaitable<void> collect() {
    while (!transcript_.done() && !exchange_.gone()) {
      std::vector<EngineNews> arrived = co_await mailbox_->next();
      for (EngineNews& news : arrived) {
        if (const auto update = transcript_.take(std::move(news))) plan_.reply->keep(*update);
      }
      cancel_stopped();
    }
    if (exchange_.gone()) co_return;
    if (transcript_.failure())
      co_await exchange_.send(
          error_response(as_clients_see(*transcript_.failure(), plan_.grammar_field)));
    else
      co_await exchange_.send(json_response(plan_.reply->whole(transcript_)));
  }

  asio::awaitable<void> stream() {
    bool begun = false;
    while (!transcript_.done() && !exchange_.gone()) {
      std::string events;
      std::vector<EngineNews> arrived = co_await mailbox_->next();
      for (EngineNews& news : arrived) {
        if (const auto update = transcript_.take(std::move(news)))
          events += plan_.reply->events(*update, transcript_);
      }
      cancel_stopped();
      if (events.empty()) continue;
      if (!begun) co_await begin();
      begun = true;
      co_await exchange_.write(std::move(events));
    }
    if (exchange_.gone()) co_return;
    if (transcript_.failure() && !begun) {
      co_await exchange_.send(
          error_response(as_clients_see(*transcript_.failure(), plan_.grammar_field)));
      co_return;
    }
    if (!begun) co_await begin();
    if (transcript_.failure())
      co_await exchange_.write(
          cat("data: ", error_body(as_clients_see(*transcript_.failure(), plan_.grammar_field)),
              "\n\n"));
    else
      co_await exchange_.write(plan_.reply->last_events(transcript_));
    co_await exchange_.end_stream();
  }

  asio::awaitable<void> begin() {
    exchange_.add_header("Cache-Control", "no-cache");
    exchange_.add_header("X-Accel-Buffering", "no");  // proxies pass each event on at once
    return exchange_.begin_stream(text_response("event-stream", ""));
  }

  Exchange& exchange_;
  Backend& backend_;
  GenerationPlan& plan_;
  Transcript transcript_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<engine::RequestId> ids_;
};

}  // namespace

asio::awaitable<void> run_generation(Exchange& exchange, Backend& backend, GenerationPlan plan) {
  auto transcript = Transcript::make(std::move(plan.rules), plan.requests.size(), plan.choices);
  if (!transcript.ok()) {
    co_await exchange.send(error_response(transcript.error()));
    co_return;
  }
  Generation generation(exchange, backend, plan, *std::move(transcript));
  co_await generation.run();
}

}  // namespace motley::server
