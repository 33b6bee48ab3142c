#include "server/generation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "base/units.h"
#include "server/api/suggestions.h"
#include "server/mailbox.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// The engine's `not_found` is about an adapter, which requests name as a model. An error after
// acceptance is about the grammar.
Error as_clients_see(const Error& error, std::string_view grammar_field) {
  if (error.code() == ErrorCode::not_found)
    return {ErrorCode::not_found, error.what(), "model", "GET /v1/models lists those there are"};
  const bool refused =
      error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::too_long;
  if (refused && !grammar_field.empty())
    return {error.code(), error.what(), std::string(grammar_field), error.fix()};
  return error;
}

// Events are sent once there are this many bytes, even if more follow.
constexpr std::size_t max_events_bytes = std::size_t{256} << 10;
// The minimum step by which a share grows.
constexpr std::size_t share_step_bytes = std::size_t{1} << 20;

// The engine's part of an HTTP request: one engine request for each prompt.
class Generation {
 public:
  Generation(Exchange& exchange, engine::Engine& engine, GenerationPlan& plan,
             std::string_view base, RequestsUnderWay::Entry& entry, serving::Transcript transcript,
             MemoryBudget::Share& share)
      : exchange_(exchange),
        engine_(engine),
        plan_(plan),
        base_(base),
        entry_(entry),
        transcript_(std::move(transcript)),
        share_(share),
        mailbox_(Mailbox::make(exchange.executor())) {}
  ~Generation() {
    exchange_.on_gone(nullptr);
    mailbox_->limit_backlog(0, nullptr);
    // Memory has run out.
    if (!transcript_.done()) cancel_all();
  }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Of all prompts that began, whether they came to their end or not.
  engine::Usage usage() const {
    engine::Usage usage = transcript_.usage_at_start();
    usage.completion_tokens = transcript_.usage().completion_tokens;
    return usage;
  }

  asio::awaitable<void> run() {
    if (const Result<void> submitted = submit(); !submitted.ok()) {
      cancel_all();
      co_await exchange_.send(written(submitted.error()));
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
    log_counts();
  }

 private:
  Result<void> submit() {
    ids_.reserve(plan_.requests.size());
    // All of them name the same.
    const std::vector<lora::ScaledAdapter> named = plan_.requests.front().adapters;
    for (std::size_t i = 0; i < plan_.requests.size(); ++i) {
      auto id = engine_.submit(std::move(plan_.requests[i]), mailbox_->sink_for(i));
      if (!id.ok()) return refused(id.error(), named);
      ids_.push_back(*id);
      entry_.add(*id);
    }
    return {};
  }

  // An unknown adapter is an unknown model to clients.
  Error refused(const Error& error, std::span<const lora::ScaledAdapter> named) const {
    Error seen = as_clients_see(error, {});
    if (error.code() != ErrorCode::not_found) return seen;
    auto known = engine_.adapters();
    std::erase_if(known, [&](const auto& each) { return !exchange_.request().may_use(each.name); });
    const auto unknown = std::ranges::find_if(named, [&](const lora::ScaledAdapter& each) {
      return std::ranges::find(known, each.name, &engine::AdapterInfo::name) == known.end();
    });
    if (unknown == named.end()) return seen;
    return {seen.code(), seen.what(), seen.where(), model_advice(unknown->name, base_, known)};
  }

  void cancel_all() {
    if (std::exchange(cancelled_, true)) return;
    for (const engine::RequestId id : ids_) engine_.cancel(id);
  }

  void cancel_stopped() {
    for (const auto& [prompt, choice, kept] : transcript_.take_stopped())
      engine_.cancel(ids_[prompt], choice, kept);
  }

  // Ends the request with an error of this server.
  void cut(Error why) {
    if (cut_) return;
    cut_ = std::move(why);
    cancel_all();
  }

  HttpResponse written(const Error& error) const {
    return plan_.write_error(error, exchange_.request().id);
  }

  void log_counts() {
    const engine::Usage all = usage();
    exchange_.log_field({"prompt_tokens", all.prompt_tokens});
    exchange_.log_field({"cached_tokens", all.cached_tokens});
    exchange_.log_field({"completion_tokens", all.completion_tokens});
    if (exchange_.gone()) return exchange_.log_field({"end", "cancelled"});
    if (failure()) return exchange_.log_field({"end", "error"});
    std::vector<std::string_view> ends;
    if (ended_stop_) ends.emplace_back("stop");
    if (ended_length_) ends.emplace_back("length");
    if (ended_abort_) ends.emplace_back("abort");
    exchange_.log_field({"end", ends.empty() ? "stop" : join(ends, ",")});
  }

  void note_end(engine::FinishReason end) {
    ended_stop_ = ended_stop_ || end == engine::FinishReason::stop;
    ended_length_ = ended_length_ || end == engine::FinishReason::length;
    ended_abort_ = ended_abort_ || end == engine::FinishReason::aborted;
  }

  std::optional<serving::ChoiceUpdate> take(engine::EventQueue::Entry arrived) {
    if (std::holds_alternative<engine::TokenEvent>(arrived.event)) exchange_.log_first_token();
    auto update = transcript_.take(std::move(arrived));
    if (update && update->end) note_end(*update->end);
    return update;
  }

  bool goes_on() const { return !transcript_.done() && !exchange_.gone() && !cut_; }

  std::optional<Error> failure() const {
    if (cut_) return cut_;
    if (transcript_.failure()) return as_clients_see(*transcript_.failure(), plan_.grammar_field);
    return std::nullopt;
  }

  // Charges what is kept of the answer beyond the charge at acceptance.
  void charge_kept() {
    const std::size_t kept = plan_.reply->kept_bytes() + transcript_.routed().kept_bytes();
    if (kept <= charged_) return;
    const std::size_t more = std::max(kept - charged_, share_step_bytes);
    if (const auto fits = check_kept(more); !fits.ok()) return cut(fits.error());
    charged_ += more;
  }

  Result<void> check_kept(std::size_t more) {
    const std::size_t bytes = share_.bytes() + more;
    if (bytes > plan_.limits.memory_bytes)
      return Error(ErrorCode::too_long,
                   cat("the answer has grown to ", format_bytes(bytes), ", and a request may take ",
                       format_bytes(plan_.limits.memory_bytes)),
                   "", "stream it, or set max_tokens");
    const MemoryBudget::Refusal refusal = share_.grow(more);
    if (refusal != MemoryBudget::Refusal::none)
      return Error(ErrorCode::busy,
                   refusal == MemoryBudget::Refusal::all ? "the memory for requests is used up"
                   : exchange_.request().holder
                       ? "the memory for requests of one client is used up"
                       : "the memory for requests from one address is used up",
                   "", "try again later, stream the answer, or set max_tokens");
    return {};
  }

  asio::awaitable<Mailbox::Entries> next_events() {
    Result<Mailbox::Entries> arrived = co_await mailbox_->next();
    if (arrived.ok()) co_return *std::move(arrived);
    cancel_all();
    transcript_.fail(std::move(arrived).error());
    co_return Mailbox::Entries();
  }

  asio::awaitable<void> collect() {
    while (goes_on()) {
      Mailbox::Entries arrived = co_await next_events();
      for (auto& each : arrived) {
        if (const auto update = take(std::move(each))) plan_.reply->keep(*update);
      }
      cancel_stopped();
      charge_kept();
    }
    if (exchange_.gone()) co_return;
    if (const auto why = failure())
      co_await exchange_.send(written(*why));
    else
      co_await send_body();
  }

  asio::awaitable<void> send_body() {
    PieceSource next = [this] { return plan_.reply->next_piece(transcript_); };
    return exchange_.send_pieces(json_response({}), std::move(next));
  }

  asio::awaitable<void> stream() {
    mailbox_->limit_backlog(exchange_.max_backlog_bytes(), [this] {
      exchange_.cut("takes its stream slower than the engine makes it");
    });
    while (goes_on()) {
      std::string events;
      Mailbox::Entries arrived = co_await next_events();
      for (auto& each : arrived) {
        const auto update = take(std::move(each));
        if (!update) continue;
        std::string more = plan_.reply->events(*update, transcript_);
        if (more.empty()) more = plan_.reply->more_events(transcript_);
        for (; !more.empty(); more = plan_.reply->more_events(transcript_)) {
          events += more;
          if (events.size() <= max_events_bytes) continue;
          co_await say(std::move(events));
          events.clear();
        }
      }
      cancel_stopped();
      charge_kept();
      if (!events.empty()) co_await say(std::move(events));
    }
    if (exchange_.gone()) co_return;
    const auto why = failure();
    if (why && !begun_) {
      co_await exchange_.send(written(*why));
      co_return;
    }
    // A named variable, because g++ 12 destroys temporaries of a conditional inside co_await twice.
    std::string last = plan_.reply->last_events(transcript_);
    if (why) {
      exchange_.log_error(written(*why));
      last = plan_.reply->failure_events(*why);
    }
    while (!last.empty() && !exchange_.gone()) {
      co_await say(std::move(last));
      last = plan_.reply->more_events(transcript_);
    }
    if (!std::exchange(begun_, true)) co_await begin();
    co_await exchange_.end_stream();
  }

  asio::awaitable<void> say(std::string events) {
    if (!std::exchange(begun_, true)) co_await begin();
    co_await exchange_.write(std::move(events));
  }

  asio::awaitable<void> begin() {
    exchange_.add_header("Cache-Control", "no-cache");
    exchange_.add_header("X-Accel-Buffering", "no");  // makes proxies pass on each event at once
    return exchange_.begin_stream(text_response("event-stream", ""));
  }

  Exchange& exchange_;
  engine::Engine& engine_;
  GenerationPlan& plan_;
  std::string_view base_;
  RequestsUnderWay::Entry& entry_;
  serving::Transcript transcript_;
  MemoryBudget::Share& share_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<engine::RequestId> ids_;
  std::size_t charged_ = plan_.charge.kept_bytes;  // for what is kept of the answer
  std::optional<Error> cut_;
  bool begun_ = false;  // the stream
  bool ended_stop_ = false;
  bool ended_length_ = false;
  bool ended_abort_ = false;
  bool cancelled_ = false;  // all of them
};

}  // namespace

asio::awaitable<engine::Usage> run_generation(Exchange& exchange, engine::Engine& engine,
                                              GenerationPlan plan, std::string_view base,
                                              RequestsUnderWay::Entry& entry,
                                              MemoryBudget::Share share) {
  auto transcript =
      serving::Transcript::make(std::move(plan.rules), plan.requests.size(), plan.choices);
  if (!transcript.ok()) {
    co_await exchange.send(plan.write_error(transcript.error(), exchange.request().id));
    co_return engine::Usage();
  }
  Generation generation(exchange, engine, plan, base, entry, *std::move(transcript), share);
  co_await generation.run();
  co_return generation.usage();
}

}  // namespace motley::server
