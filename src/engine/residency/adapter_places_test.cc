// Many adapters in memory for few, in scripted time: how full batches stay, and how long requests
// wait.

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Times of a GPU: a step takes longer with each expert that its rows read, and a little longer with
// each row; adapters are copied one after the other, concurrently with steps.
constexpr double empty_step_ms = 1.3;
constexpr double all_experts_ms = 5.8;
constexpr double rows_of_experts = 22;
constexpr double row_ms = 0.01;
constexpr Duration copy_time = milliseconds(14);

class TimedExecutor final : public Executor {
 public:
  TimedExecutor(std::int64_t sequences, ScriptedClock& clock)
      : sequences_(sequences), clock_(&clock) {}

  Limits limits() const override {
    return {.rows = 8192,
            .sequences = sequences_,
            .sequence_tokens = 1024,
            .pages = sequences_ * 64,
            .page_tokens = 16,
            .vocabulary = 1000};
  }
  Result<void> takes(const lora::Mix&) const override { return {}; }
  Result<void> copy_page(std::int32_t, std::int32_t) override { return {}; }
  Result<void> copy_state(std::int32_t, std::int32_t) override { return {}; }
  Result<void> save_state(std::int32_t, std::int32_t) override { return {}; }
  Result<void> restore_state(std::int32_t, std::int32_t) override { return {}; }
  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    meanwhile();
    double rows = 0;
    for (const runner::Chunk& chunk : chunks) rows += static_cast<double>(chunk.tokens.size());
    for (const ChunkOutput& output : outputs) {
      for (Draw& draw : output.draws) draw.token = 1;
    }
    const double ms =
        empty_step_ms + all_experts_ms * (1 - std::exp(-rows / rows_of_experts)) + row_ms * rows;
    clock_->advance(microseconds(static_cast<std::int64_t>(1000 * ms)));
    return {};
  }
  Result<void> release_adapters() override { return {}; }

 private:
  std::int64_t sequences_;
  ScriptedClock* clock_;
};

// A store whose copies take time.
class TimedStore final : public AdapterStore {
 public:
  TimedStore(std::uint64_t pages, ScriptedClock& clock) : store_(pages), clock_(&clock) {
    store_.automatic = false;
  }

  FakeStore& disk() { return store_; }
  void set_wake(std::function<void()>) override {}
  void begin(Job job) override {
    const Duration time = job.task == Task::place ? copy_time : Duration{};
    free_at_ = std::max(free_at_, clock_->now()) + time;
    due_.push_back(free_at_);
    store_.begin(std::move(job));
  }
  std::optional<Done> take_done() override {
    if (!due_.empty() && due_.front() <= clock_->now()) {
      due_.pop_front();
      store_.run_one();
    }
    return store_.take_done();
  }
  lora::Handle acquire(const std::string& name, lora::ContentVersion version) override {
    return store_.acquire(name, version);
  }
  Usage usage() const override { return store_.usage(); }

 private:
  FakeStore store_;
  ScriptedClock* clock_;
  TimePoint free_at_;
  std::deque<TimePoint> due_;
};

struct Load {
  int adapters = 64;
  std::uint64_t in_memory = 64;
  double zipf = 1;
  int under_way = 64;
  int sequences = 256;
  int requests = 2000;
};

struct Figures {
  double tokens_a_second = 0;
  double mean_wait = 0;     // seconds until a request begins
  double longest_wait = 0;  // s
};

// Keeps a constant number of requests running, with adapters chosen by Zipf's law.
class ClosedLoop {
 public:
  explicit ClosedLoop(const Load& load)
      : load_(load),
        executor_(load.sequences, clock_),
        store_(load.in_memory, clock_),
        scheduler_(&executor_, &store_, &clock_,
                   {.adapter_patience = milliseconds(1000), .prefix_cache = false}) {
    double sum = 0;
    for (int i = 0; i < load.adapters; ++i) {
      until_.push_back(sum += std::pow(i + 1, -load.zipf));
      const std::string name = cat(i);
      store_.disk().put(name, 1, static_cast<std::uint32_t>(i));
      scheduler_.residency().load({.name = name, .path = name}, false,
                                  [](const Result<void>& done) { done.value(); });
      scheduler_.residency().collect();
    }
    for (double& share : until_) share /= sum;
  }

  Figures run() {
    while (sent_ < load_.under_way) send();
    while (ended_ < load_.requests) {
      if (scheduler_.step().value() == Scheduler::Step::idle) clock_.advance(milliseconds(1));
      for (; unsent_ > 0 && sent_ < load_.requests; --unsent_) send();
    }
    Figures figures{.tokens_a_second =
                        static_cast<double>(tokens_) / seconds(clock_.now() - TimePoint{})};
    for (const double wait : waits_) {
      figures.longest_wait = std::max(figures.longest_wait, wait);
      figures.mean_wait += wait / static_cast<double>(waits_.size());
    }
    return figures;
  }

 private:
  class Sink final : public EventSink {
   public:
    explicit Sink(ClosedLoop& loop) : loop_(&loop), sent_(loop.clock_.now()) {}
    void take(Event event) override {
      if (std::holds_alternative<StartEvent>(event))
        loop_->waits_.push_back(seconds(loop_->clock_.now() - sent_));
      if (std::holds_alternative<TokenEvent>(event)) ++loop_->tokens_;
      if (const auto* const error = std::get_if<Error>(&event)) ADD_FAILURE() << error->message();
      if (!std::holds_alternative<Usage>(event)) return;
      ++loop_->ended_;
      ++loop_->unsent_;
    }

   private:
    ClosedLoop* loop_;
    TimePoint sent_;
  };

  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15U;
    return stir(stir(3, state_), state_ >> 7);
  }

  void send() {
    const double share = static_cast<double>(bits() >> 11) * 0x1p-53;
    const auto adapter =
        static_cast<std::size_t>(std::ranges::upper_bound(until_, share) - until_.begin());
    Request request{.tokens = prompt(128 + static_cast<std::int64_t>(bits() % 385)),
                    .adapters = {{cat(adapter), 1}},
                    .max_tokens = 64 + static_cast<std::int64_t>(bits() % 193)};
    scheduler_.submit({.id = static_cast<RequestId>(++sent_),
                       .request = std::move(request),
                       .sink = std::make_shared<Sink>(*this),
                       .sampler = std::make_unique<FakeSampler>(0),
                       .accepted = clock_.now()});
  }

  Load load_;
  ScriptedClock clock_;
  TimedExecutor executor_;
  TimedStore store_;
  std::vector<double> until_;
  std::vector<double> waits_;
  std::uint64_t state_ = 1;
  int sent_ = 0;
  int ended_ = 0;
  int unsent_ = 0;
  std::int64_t tokens_ = 0;
  Scheduler scheduler_;  // destroyed first, because its requests call the sinks
};

// Four times as many requests as fit in a batch; 43 % of them are for adapters that do not stay
// resident.
TEST(AdapterPlaces, AQueueKeepsBatchesFull) {
  Load load{.zipf = 1, .under_way = 256, .sequences = 64, .requests = 1000};
  const Figures all = ClosedLoop(load).run();
  load.in_memory = 8;
  const Figures few = ClosedLoop(load).run();
  EXPECT_GE(few.tokens_a_second, 0.8 * all.tokens_a_second) << all.tokens_a_second;
  EXPECT_LE(few.longest_wait, 1.5 * all.longest_wait);
  EXPECT_LE(few.mean_wait, 1.5 * all.mean_wait);
}

// No more requests than fit in the batch, so each waiting request leaves a place empty.
TEST(AdapterPlaces, WhatIsAskedForMostStays) {
  Load load{.zipf = 2, .under_way = 64, .sequences = 256, .requests = 1000};
  const Figures all = ClosedLoop(load).run();
  load.in_memory = 8;
  const Figures few = ClosedLoop(load).run();
  EXPECT_GE(few.tokens_a_second, 0.85 * all.tokens_a_second) << all.tokens_a_second;
  EXPECT_LE(few.longest_wait, 4);
}

}  // namespace
}  // namespace motley::engine::test
