#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace motley::server {

// An engine without a model: gives the tokens that a test has set, one token a time, on a thread of
// its own as engines do.
class FakeEngine : public engine::Engine {
 public:
  // What is said, and what a token's log-probability is: -(position + 1) / 8.
  explicit FakeEngine(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    thread_ = std::thread([this] { work(); });
  }
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Every choice of every request says this, from its beginning.
  void say(std::vector<std::int32_t> ids) {
    const std::lock_guard lock(mutex_);
    said_ = std::move(ids);
  }
  void say(std::string_view text) {
    say(tokenizer_.encode(text, {.add_special_tokens = false}).value());
  }

  // Answers switch to new content of their adapter, NAME@2, after so many tokens.
  void switch_after(std::size_t tokens) {
    const std::lock_guard lock(mutex_);
    switch_after_ = tokens;
  }
  // Says this many tokens of each choice and then waits for release().
  void hold_after(std::size_t tokens) {
    const std::lock_guard lock(mutex_);
    hold_after_ = tokens;
  }
  void release() {
    {
      const std::lock_guard lock(mutex_);
      hold_after_ = static_cast<std::size_t>(-1);
    }
    changed_.notify_all();
  }
  // Pages of ten for adapters that old versions hold.
  void hold_old_versions(std::uint64_t pages) {
    const std::lock_guard lock(mutex_);
    old_pages_ = pages;
  }
  void refuse(Error error) {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(error);
  }
  void refuse_adapters(Error error) {
    const std::lock_guard lock(mutex_);
    adapter_refusal_ = std::move(error);
  }
  // Loads that begin from now on end at release_loads().
  void hold_loads() {
    const std::lock_guard lock(mutex_);
    hold_loads_ = true;
  }
  void release_loads() {
    const std::lock_guard lock(mutex_);
    hold_loads_ = false;
    for (HeldLoad& each : std::exchange(held_loads_, {})) {
      adapters_[each.spec.name] = each.spec.path.string();
      calls_.push_back([done = std::move(each.done)] { done({}); });
    }
    changed_.notify_all();
  }
  void wait_for_held_loads(std::size_t count) {
    wait_until([&] { return held_loads_.size() >= count; },
               "loads that have not begun within a minute");
  }
  void fail_running(Error error) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(error);
    changed_.notify_all();
  }

  engine::Request last_request() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  // Returns when so many requests have ended, cancelled or not.
  void wait_for_ended(std::size_t count) {
    wait_until([&] { return ended_ >= count; }, "requests that have not ended within a minute");
  }
  void wait_for_submitted(std::size_t count) {
    wait_until([&] { return last_id_ >= count; },
               "requests that were not submitted within a minute");
  }
  // Returns when so many requests have their first token.
  void wait_for_talking(std::size_t count) {
    wait_until([&] { return talking_ >= count; }, "requests without a token for a minute");
  }
  // Of the last choice that was cancelled alone.
  std::optional<std::int64_t> last_kept() const {
    const std::lock_guard lock(mutex_);
    return last_kept_;
  }
  std::size_t cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  Result<engine::RequestId> submit(engine::Request request,
                                   std::shared_ptr<engine::EventSink> sink) override {
    const std::lock_guard lock(mutex_);
    if (refusal_) return *refusal_;
    MOTLEY_TRY_VOID(pauses_.check(request));
    for (const lora::ScaledAdapter& each : request.adapters) {
      if (!adapters_.contains(each.name))
        return Error(ErrorCode::not_found, "no adapter '" + each.name + "'");
    }
    last_ = request;
    const engine::RequestId id = ++last_id_;
    running_.push_back({.id = id,
                        .request = std::move(request),
                        .sink = std::move(sink),
                        .said = said_,
                        .done = {},
                        .begun = false});
    running_.back().done.resize(static_cast<std::size_t>(running_.back().request.choices));
    changed_.notify_all();
    return id;
  }
  void cancel(engine::RequestId request) override {
    const std::lock_guard lock(mutex_);
    cancels_.insert({request, -1});
    changed_.notify_all();
  }
  void cancel(engine::RequestId request, int choice, std::optional<std::int64_t> kept) override {
    const std::lock_guard lock(mutex_);
    last_kept_ = kept;
    cancels_.insert({request, choice});
    changed_.notify_all();
  }
  void abort(engine::RequestId request) override {
    const std::lock_guard lock(mutex_);
    aborts_.insert(request);
    changed_.notify_all();
  }
  void pause(engine::Pause pause, Done done) override {
    const std::lock_guard lock(mutex_);
    pauses_.add(pause).value();
    last_pause_ = pause;
    for (const Running& each : running_)
      if (pauses_.of(each.request) == engine::PauseMode::abort) aborts_.insert(each.id);
    pausing_.emplace_back(std::move(pause), std::move(done));
    changed_.notify_all();
  }
  void resume(std::string adapter, Done done) override {
    const std::lock_guard lock(mutex_);
    pauses_.end(adapter);
    calls_.push_back([done = std::move(done)] { done({}); });
    changed_.notify_all();
  }
  engine::Pauses paused() const override {
    const std::lock_guard lock(mutex_);
    return pauses_;
  }
  void reset_prefix_cache(bool preempts, Done done) override {
    const std::lock_guard lock(mutex_);
    resets_.push_back(preempts);
    calls_.push_back([done = std::move(done)] { done({}); });
    changed_.notify_all();
  }
  std::optional<engine::Pause> last_pause() const {
    const std::lock_guard lock(mutex_);
    return last_pause_;
  }
  // Of each reset whether it preempts.
  std::vector<bool> resets() const {
    const std::lock_guard lock(mutex_);
    return resets_;
  }

  void load_adapter(engine::AdapterSpec spec, bool replace, Done done) override {
    const std::lock_guard lock(mutex_);
    Result<void> result;
    const bool is_under_way = std::ranges::any_of(
        held_loads_, [&](const HeldLoad& each) { return each.spec.name == spec.name; });
    if (hold_loads_ && !is_under_way) {
      held_loads_.push_back({std::move(spec), std::move(done)});
      changed_.notify_all();
      return;
    }
    if (is_under_way)
      result = Error(ErrorCode::busy, "adapter '" + spec.name + "' is being loaded");
    else if (adapter_refusal_)
      result = *adapter_refusal_;
    else if (adapters_.contains(spec.name) && !replace)
      result = Error(ErrorCode::invalid_argument, "adapter '" + spec.name + "' is already loaded");
    else
      adapters_[spec.name] = spec.path.string();
    calls_.push_back([done = std::move(done), result] { done(result); });
    changed_.notify_all();
  }
  void unload_adapter(std::string name, Done done) override {
    const std::lock_guard lock(mutex_);
    Result<void> result;
    if (adapters_.erase(name) == 0)
      result = Error(ErrorCode::not_found, "no adapter '" + name + "'", "lora_name");
    calls_.push_back([done = std::move(done), result] { done(result); });
    changed_.notify_all();
  }
  std::vector<engine::AdapterInfo> adapters() const override {
    const std::lock_guard lock(mutex_);
    std::vector<engine::AdapterInfo> list;
    for (const auto& [name, path] : adapters_) list.push_back({.name = name, .path = path});
    return list;
  }
  engine::Stats stats() const override {
    engine::Stats stats;
    stats.waiting = 3;
    stats.running = 2;
    stats.page_tokens = 16;
    stats.kv_pages = 100;
    stats.kv_pages_used = 25;
    stats.adapters = adapters();
    const std::lock_guard lock(mutex_);
    stats.adapter_pages = 10;
    stats.adapter_pages_replaced = old_pages_;
    return stats;
  }
  std::int64_t max_sequence_tokens() const override { return 1000; }
  engine::RoutedExpertsSizes routed_experts() const override { return routed_sizes; }
  static constexpr engine::RoutedExpertsSizes routed_sizes{.layers = 2, .top_k = 3, .experts = 64};
  // All of a token's experts have this number.
  static std::uint8_t routed_at(std::int64_t position) {
    return static_cast<std::uint8_t>(position % 61);
  }
  // The server never ends its engine.
  void shutdown(Drain) override {}
  Result<void> health() const override { return {}; }

 private:
  // Of the third of all tokens. One that the request names is less likely by 1 for each before it,
  // and has a rank of 40 for each.
  static engine::TokenEvent token_event(const engine::SamplingParams& sampling, int choice,
                                        const engine::TopLogprob& drawn) {
    engine::TokenEvent event{.choice = choice,
                             .id = drawn.token,
                             .logprob = drawn.logprob,
                             .rank = sampling.ranks ? 3 : 0};
    const std::vector<std::int32_t>& named = sampling.logprob_tokens;
    if (named.empty()) event.top.assign(static_cast<std::size_t>(sampling.top_logprobs), drawn);
    for (std::size_t i = 0; i < named.size(); ++i) {
      event.top.push_back(
          {.token = named[i], .logprob = drawn.logprob - static_cast<float>(i + 1)});
      if (sampling.ranks) event.top_ranks.push_back(40 * static_cast<std::int32_t>(i + 1));
    }
    return event;
  }
  struct HeldLoad {
    engine::AdapterSpec spec;
    Done done;
  };
  struct Choice {
    std::size_t said = 0;
    bool ended = false;
  };
  struct Running {
    engine::RequestId id;
    engine::Request request;
    std::shared_ptr<engine::EventSink> sink;
    std::vector<std::int32_t> said;
    std::vector<Choice> done;
    bool begun;
    bool switched = false;
  };

  template <class Condition>
  void wait_until(Condition condition, const char* what) {
    std::unique_lock lock(mutex_);
    MOTLEY_CHECK(changed_.wait_for(lock, std::chrono::seconds(60), condition), what);
  }

  static bool ends(const engine::Request& request, std::int32_t id) {
    const auto holds = [&](const std::vector<std::int32_t>& ids) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    return holds(request.stop_ids) || (!request.sampling.ignore_eos && holds(request.end_ids));
  }

  // Sinks are called without the lock, as they may cancel. True where something was done.
  bool advance(std::unique_lock<std::mutex>& lock, Running& running) {
    std::vector<std::function<void(engine::EventSink&)>> news;
    const engine::Request& request = running.request;
    if (pauses_.keeps(request) && !aborts_.contains(running.id) &&
        !cancels_.contains({running.id, -1}))
      return false;
    if (!running.begun) {
      running.begun = true;
      engine::StartEvent start{.prompt_tokens = static_cast<std::int64_t>(request.tokens.size())};
      for (const lora::ScaledAdapter& each : request.adapters)
        start.adapter_version += cat(start.adapter_version.empty() ? "" : ",", each.name, "@1");
      news.push_back([start](auto& sink) { sink.take(start); });
      if (request.prompt_logprobs)
        news.push_back([&request](auto& sink) { score_prompt(request, sink); });
      if (request.routed_experts_from)
        news.push_back([&request](auto& sink) {
          const std::int64_t end = std::ssize(request.tokens) - (request.max_tokens == 0 ? 1 : 0);
          route(sink, {}, *request.routed_experts_from, end);
        });
    }
    const auto has_come = [&](const Choice& each) { return each.said >= switch_after_; };
    if (switch_after_ > 0 && !running.switched && std::ranges::all_of(running.done, has_come)) {
      running.switched = true;
      news.push_back([name = request.adapters.at(0).name](auto& sink) {
        sink.take(engine::VersionEvent{.adapter_version = cat(name, "@2")});
      });
    }
    bool all_ended = true;
    for (std::size_t i = 0; i < running.done.size(); ++i) {
      Choice& choice = running.done[i];
      const int number = static_cast<int>(i);
      if (choice.ended) continue;
      const auto finish = [&](engine::FinishReason reason, std::optional<std::int32_t> token) {
        choice.ended = true;
        news.push_back([number, reason, token](auto& sink) {
          sink.take(engine::ChoiceEvent{.choice = number, .reason = reason, .stop_token = token});
        });
      };
      if (cancels_.contains({running.id, -1}) || cancels_.contains({running.id, number})) {
        finish(engine::FinishReason::cancelled, {});
      } else if (aborts_.contains(running.id)) {
        finish(engine::FinishReason::aborted, {});
      } else if (choice.said == running.said.size() ||
                 static_cast<std::int64_t>(choice.said) == request.max_tokens) {
        finish(engine::FinishReason::length, {});
      } else if (choice.said < hold_after_) {
        const std::int32_t id = running.said[choice.said];
        const float logprob = -static_cast<float>(choice.said + 1) / 8;
        const std::int64_t computed =
            std::ssize(request.tokens) + static_cast<std::int64_t>(choice.said);
        if (request.routed_experts_from && choice.said > 0)
          news.push_back(
              [number, computed](auto& sink) { route(sink, number, computed - 1, computed); });
        if (++choice.said == 1 && number == 0) {
          ++talking_;
          changed_.notify_all();
        }
        news.push_back([number, id, logprob, &request](auto& sink) {
          sink.take(token_event(request.sampling, number, {.token = id, .logprob = logprob}));
        });
        if (ends(request, id)) finish(engine::FinishReason::stop, id);
      }
      all_ended = all_ended && choice.ended;
    }
    if (failing_) {
      news.push_back([error = *failing_](auto& sink) { sink.take(error); });
      all_ended = true;
    } else if (all_ended) {
      engine::Usage usage{.prompt_tokens = static_cast<std::int64_t>(request.tokens.size())};
      news.push_back([usage](auto& sink) { sink.take(usage); });
    }
    if (news.empty()) return false;
    lock.unlock();
    for (const auto& each : news) each(*running.sink);
    lock.lock();
    if (all_ended) {
      if (cancels_.contains({running.id, -1})) ++cancelled_;
      running.sink.reset();
    }
    return true;
  }

  // The experts of the tokens at these positions.
  static void route(engine::EventSink& sink, std::optional<int> choice, std::int64_t first,
                    std::int64_t end) {
    engine::RoutedExpertsEvent event{.choice = choice, .first = first};
    for (; first < end; ++first)
      event.ids.insert(event.ids.end(), routed_sizes.bytes_of_token(), routed_at(first));
    sink.take(std::move(event));
  }

  static void score_prompt(const engine::Request& request, engine::EventSink& sink) {
    // In two pieces, as chunked prompts are scored.
    const auto width = static_cast<std::size_t>(request.prompt_top);
    const auto first = static_cast<std::size_t>(request.prompt_first);
    const std::size_t half = first + (request.tokens.size() - first) / 2;
    const engine::NamedTokens& named = request.prompt_named;
    const auto named_width = static_cast<std::size_t>(named.width);
    const auto piece = [&](std::size_t begin, std::size_t end) {
      std::vector<float> logprobs;
      std::vector<engine::TopLogprob> top;
      std::vector<float> of_named;
      for (std::size_t i = begin; i < end; ++i) {
        for (std::size_t k = 0; k < named_width; ++k) {
          const std::int32_t id = named.ids[(i - first) * named_width + k];
          of_named.push_back(id < 0 ? -std::numeric_limits<float>::infinity()
                                    : -static_cast<float>(id) / 4);
        }
        logprobs.push_back(-static_cast<float>(i));
        // The token itself stands at the place i % 4, among the next ids.
        const auto own = static_cast<int>(i % 4);
        for (int k = 0; k < static_cast<int>(width); ++k)
          top.push_back({.token = request.tokens[i] + k - own,
                         .logprob = -static_cast<float>(i) + static_cast<float>(own - k) / 8});
      }
      if (begin < end)
        sink.take(engine::PromptEvent{.first = static_cast<std::int64_t>(begin),
                                      .logprobs = logprobs,
                                      .top = top,
                                      .named = of_named});
    };
    piece(first, half);
    piece(half, request.tokens.size());
  }

  // Answers pauses whose requests have ended or stand still.
  bool settle_pauses() {
    const auto stands = [this](const std::pair<engine::Pause, Done>& each) {
      return each.first.mode == engine::PauseMode::keep ||
             std::ranges::none_of(running_, [&](const Running& one) {
               return each.first.adapter.empty() ||
                      std::ranges::find(one.request.adapters, each.first.adapter,
                                        &lora::ScaledAdapter::name) != one.request.adapters.end();
             });
    };
    bool some = false;
    std::erase_if(pausing_, [&](const auto& each) {
      if (!stands(each)) return false;
      calls_.push_back([done = each.second] { done({}); });
      return some = true;
    });
    return some;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      bool busy = false;
      // Taken before anything runs: one that comes while sinks are called is the next round's.
      failing_ = std::exchange(failure_, std::nullopt);
      while (!calls_.empty()) {
        const auto call = std::move(calls_.front());
        calls_.pop_front();
        lock.unlock();
        call();
        lock.lock();
        busy = true;
      }
      for (auto each = running_.begin(); each != running_.end();) {
        busy |= advance(lock, *each);
        if (each->sink == nullptr) {
          each = running_.erase(each);
          ++ended_;
          changed_.notify_all();
        } else {
          ++each;
        }
      }
      busy |= settle_pauses();
      if (busy) continue;
      if (ending_) return;
      changed_.wait(lock);
    }
  }

  const text::Tokenizer& tokenizer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::vector<std::int32_t> said_;
  std::size_t hold_after_ = static_cast<std::size_t>(-1);
  std::size_t talking_ = 0;       // requests that have had a token
  std::size_t switch_after_ = 0;  // tokens; 0: never
  std::uint64_t old_pages_ = 0;
  std::optional<Error> refusal_;
  std::optional<Error> adapter_refusal_;
  std::optional<Error> failure_;
  std::optional<Error> failing_;  // of the round at hand
  bool hold_loads_ = false;
  std::vector<HeldLoad> held_loads_;
  std::map<std::string, std::string> adapters_;
  std::optional<std::int64_t> last_kept_;
  engine::Request last_;
  engine::RequestId last_id_ = 0;
  std::deque<std::function<void()>> calls_;
  std::list<Running> running_;
  std::set<std::pair<engine::RequestId, int>> cancels_;
  std::set<engine::RequestId> aborts_;
  engine::Pauses pauses_;
  std::vector<std::pair<engine::Pause, Done>> pausing_;
  std::optional<engine::Pause> last_pause_;
  std::vector<bool> resets_;
  std::size_t ended_ = 0;
  std::size_t cancelled_ = 0;
  std::thread thread_;
};

}  // namespace motley::server
