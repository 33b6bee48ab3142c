// Random requests, cancels, aborts, pauses, loads, replacements and unloads in memory that is too
// small. Every step is validated, and every answer equals that of the request alone.

#include <random>

#include <gtest/gtest.h>

#include "engine/scheduling/scheduler.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

#ifdef MOTLEY_SANITIZED
constexpr int requests_in_all = 1'000;
#else
constexpr int requests_in_all = 10'000;
#endif

class Soak {
 public:
  // With places for snapshots the model keeps states.
  Soak(std::uint32_t seed, std::int64_t snapshots, std::int64_t host_snapshots = 0)
      : world_(options(snapshots, host_snapshots)), random_(seed) {
    world_.executor.copies_take = 3;
    for (int i = 0; i < adapters; ++i)
      world_.add_adapter(cat("a", i), 1 + i % 2, static_cast<std::uint32_t>(i), i == 0);
    world_.store.automatic = false;
    world_.executor.waits_of = 5;
  }

  void run() {
    while (submitted_ < requests_in_all || !world_.scheduler.empty()) {
      if (submitted_ < requests_in_all && world_.scheduler.waiting() < 40 && chance(70)) submit();
      if (chance(5)) cancel();
      if (chance(2)) load_or_unload();
      if (chance(1)) pause();
      if (chance(4)) resume();
      if (submitted_ == requests_in_all) world_.scheduler.resume_all();
      if (chance(60) && world_.store.jobs() > 0) world_.store.run_one();
      ASSERT_TRUE(world_.scheduler.step().ok());
      world_.clock.advance(std::chrono::milliseconds(5));
      check_finished();
      if (testing::Test::HasFailure()) return;
    }
    world_.store.automatic = true;
    world_.run();
    EXPECT_EQ(finished_ + cancelled_ + failed_, requests_in_all);
    EXPECT_GT(finished_, requests_in_all / 3);
    EXPECT_GT(pauses_, requests_in_all / 200);
    EXPECT_EQ(world_.scheduler.pages().used(), 0);
    // Only its own content is left of the pinned adapter.
    EXPECT_EQ(world_.store.usage().pinned_pages, 1);
    Stats stats;
    world_.scheduler.fill(stats);
    EXPECT_GT(world_.executor.waited, 0);
    EXPECT_GT(stats.preemptions, 0);
    EXPECT_GT(stats.prefix_hit_tokens, 0);
    EXPECT_GT(stats.adapter_evictions, 0);
    if (world_.executor.limits().state_slots == 0) return;
    EXPECT_GT(world_.executor.state_copies, 0);
    EXPECT_GT(world_.executor.saves, 0);
    EXPECT_GT(world_.executor.restores, 0);
    EXPECT_GT(stats.prefix_state_missed_tokens, 0);
    if (world_.executor.limits().host_snapshots == 0) return;
    EXPECT_GT(world_.executor.offloads, 0);
    EXPECT_GT(world_.executor.loads, 0);
  }

 private:
  static constexpr int adapters = 8;
  struct Live {
    RequestId id;
    Request request;
    std::shared_ptr<MemorySink> sink;
    // By adapter: the content when the request was submitted, and later contents on disk.
    std::vector<std::vector<lora::ContentVersion>> versions;
  };

  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  bool chance(int percent) { return below(100) < percent; }

  void submit() {
    ++submitted_;
    Request request{.tokens = prompt(1 + below(chance(10) ? 60 : 16), below(3)),
                    .max_tokens = below(12),
                    .choices = chance(80) ? 1 : 1 + below(9),
                    .priority = chance(90) ? 0 : below(3),
                    .client = cat("client ", below(4) * below(3)),
                    .prompt_logprobs = chance(10)};
    if (chance(15))
      request.routed_experts_from = below(static_cast<int>(request.tokens.size()) + 1);
    std::set<int> chosen;
    for (int i = below(3); i > 0; --i) chosen.insert(below(adapters));
    for (const int i : chosen) request.adapters.push_back({cat("a", i), chance(70) ? 1.0F : 0.5F});
    if (chance(30)) request.stop_ids = {below(97), below(97)};
    Live live{.request = request};
    for (const lora::ScaledAdapter& each : request.adapters) {
      live.versions.push_back({world_.store.on_disk(each.name).version});
      if (const AdapterEntry* const entry = world_.scheduler.residency().find(each.name))
        live.versions.back().push_back(entry->version);
    }
    live.sink = world_.submit(std::move(request), std::make_unique<FakeSampler>(0, chance(50)));
    live.id = world_.last_id;
    live_.push_back(std::move(live));
  }

  void cancel() {
    if (live_.empty()) return;
    const Live& live = live_[static_cast<std::size_t>(below(static_cast<int>(live_.size())))];
    if (chance(30)) {
      world_.scheduler.abort(live.id);
    } else if (chance(50)) {
      world_.scheduler.cancel(live.id);
    } else {
      world_.scheduler.cancel(live.id, below(live.request.choices));
    }
  }

  // Of all requests or of one adapter.
  void pause() {
    ++pauses_;
    const std::string adapter = chance(50) ? "" : cat("a", below(adapters));
    const auto mode = chance(70)   ? PauseMode::keep
                      : chance(50) ? PauseMode::wait
                                   : PauseMode::abort;
    world_.scheduler.pause({.mode = mode, .adapter = adapter}).value();
    const bool runs = world_.scheduler.has_requests(adapter, ~RequestId{0});
    EXPECT_FALSE(runs && mode == PauseMode::abort && adapter.empty());
    if (chance(20)) world_.scheduler.reset_prefix_cache(chance(50));
  }
  void resume() {
    world_.scheduler.resume("");
    world_.scheduler.resume(cat("a", below(adapters)));
  }

  void load_or_unload() {
    const std::string name = cat("a", 1 + below(adapters - 1));
    if (chance(50)) {
      world_.scheduler.residency().unload(name, [](const Result<void>&) {});
      return;
    }
    world_.store.put(name, 1 + below(2), static_cast<std::uint32_t>(random_() % 1000));
    world_.scheduler.residency().load({.name = name, .path = name}, chance(80),
                                      [](const Result<void>&) {});
    for (Live& live : live_) {
      for (std::size_t i = 0; i < live.versions.size(); ++i) {
        if (live.request.adapters[i].name == name)
          live.versions[i].push_back(world_.store.on_disk(name).version);
      }
    }
  }

  void check_finished() {
    std::erase_if(live_, [this](const Live& live) {
      if (!live.sink->closed()) return false;
      if (live.sink->error) {
        // Its adapter was unloaded or changed on disk, or its adapters do not fit together.
        ++failed_;
        return true;
      }
      bool whole = true;
      for (int choice = 0; choice < live.request.choices; ++choice) {
        const auto at = static_cast<std::size_t>(choice);
        const bool cancelled = live.sink->reasons[at] == FinishReason::cancelled ||
                               live.sink->reasons[at] == FinishReason::aborted;
        whole = whole && !cancelled;
        check_choice(live, choice, cancelled);
      }
      ++(whole ? finished_ : cancelled_);
      return true;
    });
  }

  // Every key that the request may have had.
  static std::vector<std::vector<lora::Mix::KeyPart>> keys_of(const Live& live) {
    std::vector<std::vector<lora::Mix::KeyPart>> keys = {{}};
    for (std::size_t i = 0; i < live.versions.size(); ++i) {
      std::vector<std::vector<lora::Mix::KeyPart>> longer;
      for (const auto& key : keys) {
        for (const lora::ContentVersion version : live.versions[i]) {
          longer.push_back(key);
          longer.back().push_back({version, live.request.adapters[i].scale});
        }
      }
      keys = std::move(longer);
    }
    for (auto& key : keys) std::ranges::sort(key);
    return keys;
  }

  // A cancelled choice is a prefix of the expected one.
  void check_choice(const Live& live, int choice, bool cancelled) {
    const std::vector<std::int32_t>& tokens = live.sink->tokens[static_cast<std::size_t>(choice)];
    const Executor::Limits limits = world_.executor.limits();
    const bool right = std::ranges::any_of(keys_of(live), [&](const auto& key) {
      std::vector<std::int32_t> expected = expected_choice(
          live.request, key, choice, limits.vocabulary,
          longest_sequence(limits.sequence_tokens, limits.pages, limits.page_tokens));
      if (cancelled) expected.resize(std::min(expected.size(), tokens.size()));
      return expected == tokens && has_experts(live, hash_of(key), choice, cancelled);
    });
    EXPECT_TRUE(right) << "request " << live.id << ", choice " << choice;
  }

  // Of all tokens but the last one of the answer; of a cancelled request, of those it has come to.
  static bool has_experts(const Live& live, std::uint64_t mix, int choice, bool cancelled) {
    const MemorySink& sink = *live.sink;
    const auto at = static_cast<std::size_t>(choice);
    if (!live.request.routed_experts_from)
      return sink.routed_prompt.empty() && sink.routed[at].empty();
    std::vector<std::int32_t> tokens = live.request.tokens;
    tokens.insert(tokens.end(), sink.tokens[at].begin(), sink.tokens[at].end());
    tokens.pop_back();
    std::vector<std::uint8_t> expected =
        expected_routed(mix, tokens, *live.request.routed_experts_from);
    std::vector<std::uint8_t> all = sink.routed_prompt;
    all.insert(all.end(), sink.routed[at].begin(), sink.routed[at].end());
    if (cancelled && sink.tokens[at].empty() && all.size() != expected.size())
      expected = expected_routed(mix, live.request.tokens, *live.request.routed_experts_from);
    if (cancelled && sink.tokens[at].empty())
      expected.resize(std::min(expected.size(), all.size()));
    return all == expected;
  }

  static WorldOptions options(std::int64_t snapshots, std::int64_t host_snapshots) {
    return {.limits = {.rows = 24,
                       .sequences = snapshots > 0 ? 5 : 6,
                       .sequence_tokens = 80,
                       .pages = 30,
                       .page_tokens = 4,
                       .vocabulary = 97,
                       .state_slots = snapshots > 0 ? 5 : 0,
                       .snapshots = snapshots,
                       .host_snapshots = host_snapshots,
                       .routed_experts = fake_routing},
            .adapter_pages = 4};
  }

  World world_;
  std::mt19937 random_;
  std::vector<Live> live_;
  int submitted_ = 0;
  int finished_ = 0;
  int cancelled_ = 0;
  int failed_ = 0;
  int pauses_ = 0;
};

TEST(SchedulerSoak, EveryAnswerIsItsOwn) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) Soak(seed, 0).run();
}

TEST(SchedulerSoak, EveryStateIsItsOwn) { Soak(4, 7).run(); }

TEST(SchedulerSoak, EveryStateFromTheHostIsItsOwn) { Soak(5, 3, 5).run(); }

}  // namespace
}  // namespace motley::engine::test
