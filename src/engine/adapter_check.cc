#include "engine/adapter_check.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"

namespace motley::engine {
namespace {

// On a GPU smaller differences may come from the other rows of a step; the same again, perhaps
// alone in a step, may show none.
constexpr double noise_bound = 0.05;
constexpr int max_tries = 3;

using Scores = std::vector<float>;

class ScoreSink final : public EventSink {
 public:
  std::future<Result<Scores>> result() { return done_.get_future(); }

  void take(Event event) override {
    if (const auto* const scored = std::get_if<PromptEvent>(&event)) return keep(*scored);
    if (auto* const error = std::get_if<Error>(&event)) return done_.set_value(std::move(*error));
    const auto* const choice = std::get_if<ChoiceEvent>(&event);
    const bool cancelled = choice != nullptr && (choice->reason == FinishReason::cancelled ||
                                                 choice->reason == FinishReason::aborted);
    if (cancelled && !failure_) fail_cancelled();
    if (!is_last(event)) return;
    if (failure_)
      done_.set_value(*std::move(failure_));
    else
      done_.set_value(std::move(scores_));
  }

 private:
  void keep(const PromptEvent& event) {
    const Result<void> kept = within_memory(
        [&] { scores_.insert(scores_.end(), event.logprobs.begin(), event.logprobs.end()); });
    if (!kept.ok() && !failure_) failure_ = kept.error();
  }
  // A sink does not throw: where there is no memory for the error, that is the failure.
  void fail_cancelled() {
    failure_ = out_of_memory_error();
    std::ignore =
        within_memory([&] { failure_ = Error(ErrorCode::cancelled, "the request was cancelled"); });
  }

  Scores scores_;
  std::optional<Error> failure_;
  std::promise<Result<Scores>> done_;
};

Result<std::future<Result<Scores>>> ask(Engine& engine, const std::vector<std::int32_t>& tokens,
                                        std::vector<lora::ScaledAdapter> adapters) {
  Request request{.tokens = tokens,
                  .adapters = std::move(adapters),
                  .max_tokens = 0,
                  .client = "adapter check",
                  .internal = true,
                  .cache_salt = "adapter check",
                  .prompt_logprobs = true};
  const auto sink = std::make_shared<ScoreSink>();
  auto result = sink->result();
  MOTLEY_TRY_VOID(engine.submit(std::move(request), sink));
  return result;
}

double difference(const Scores& one, const Scores& other) {
  MOTLEY_CHECK(one.size() == other.size(), "scores of the same tokens");
  double largest = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    largest = std::max(largest, std::abs(double{one[i]} - double{other[i]}));
  return largest;
}

}  // namespace

Result<double> effect_of_adapter(Engine& engine, const std::vector<std::int32_t>& tokens,
                                 const std::string& adapter) {
  MOTLEY_CHECK(tokens.size() > 1, "tokens that have log-probabilities");
  double largest = 0;
  for (int i = 0; i < max_tries; ++i) {
    // Both at once, so that they are likely to be in one step.
    MOTLEY_TRY(auto base, ask(engine, tokens, {}));
    auto with = ask(engine, tokens, {{.name = adapter}});
    const Result<Scores> plain = base.get();
    if (!with.ok()) return std::move(with).error();
    const Result<Scores> changed = with->get();
    if (!plain.ok()) return plain.error();
    if (!changed.ok()) return changed.error();
    largest = difference(*plain, *changed);
    if (largest == 0 || largest > noise_bound) break;
  }
  return largest;
}

AdapterChecker::AdapterChecker(Engine& engine, std::vector<std::int32_t> tokens)
    : engine_(engine), tokens_(std::move(tokens)), thread_([this] { work(); }) {}

AdapterChecker::~AdapterChecker() {
  {
    const std::lock_guard held(lock_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AdapterChecker::add(std::string adapter) {
  {
    const std::lock_guard held(lock_);
    if (std::ranges::find(waiting_, adapter) != waiting_.end()) return;
    waiting_.push_back(std::move(adapter));
  }
  changed_.notify_all();
}

void AdapterChecker::wait() {
  std::unique_lock held(lock_);
  changed_.wait(held, [this] { return ending_ || (waiting_.empty() && !working_); });
}

void AdapterChecker::work() {
  std::unique_lock held(lock_);
  for (;;) {
    working_ = false;
    changed_.notify_all();
    changed_.wait(held, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const std::string adapter = std::move(waiting_.front());
    waiting_.pop_front();
    working_ = true;
    held.unlock();
    // Without memory for it there is no check.
    std::ignore = within_memory([&] { check(adapter); });
    held.lock();
  }
}

void AdapterChecker::check(const std::string& adapter) {
  const Result<double> effect = effect_of_adapter(engine_, tokens_, adapter);
  if (!effect.ok()) {
    log::debug("adapter.not_checked", {{"adapter", adapter}, {"reason", effect.error().message()}});
    return;
  }
  const auto known = engine_.adapter(adapter);
  const std::string modules = known ? join(known->modules, ",") : std::string();
  log::debug("adapter.checked", {{"adapter", adapter}, {"moves", *effect}});
  if (*effect > 0) return;
  log::warning("adapter.changes_nothing",
               {{"adapter", adapter},
                {"path", known ? known->path : std::string()},
                {"modules", modules},
                {"finding", "a short prompt has the same log-probabilities with it and without"},
                {"advice", "check that it was trained, and that its lora_B are not all zero"}});
}

}  // namespace motley::engine
