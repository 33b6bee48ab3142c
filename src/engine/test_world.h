#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/out_of_memory.h"
#include "base/test_clock.h"
#include "engine/execution/executor.h"
#include "engine/residency/adapter_store.h"
#include "engine/scheduling/scheduler.h"
#include "engine/test_sinks.h"
#include "kernels/sampling.h"
#include "lora/pages/pool.h"
#include "tensor/device/cpu_device.h"

// Fixtures for scheduling tests: a clock that is set, an executor without a model, and a
// store that runs its jobs on request.
namespace motley::engine::test {

using motley::test::ScriptedClock;

inline std::uint64_t stir(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

inline std::uint64_t hash_of(std::span<const lora::Mix::KeyPart> key) {
  std::uint64_t hash = 17;
  for (const auto& part : key)
    hash = stir(stir(stir(hash, part.version.high), part.version.low),
                static_cast<std::uint64_t>(part.scale * 1024));
  return hash;
}

// The model: the next token depends on every token, on the mix with which each was computed, and on
// earlier draws.
inline constexpr std::uint64_t no_tokens = 17;
inline std::uint64_t hash_after(std::uint64_t hash, std::int32_t token, std::uint64_t mix) {
  return stir(stir(hash, static_cast<std::uint32_t>(token)), mix);
}
inline std::uint64_t hash_of(std::uint64_t mix, std::span<const std::int32_t> tokens) {
  std::uint64_t hash = no_tokens;
  for (const std::int32_t token : tokens) hash = hash_after(hash, token, mix);
  return hash;
}
inline std::int32_t drawn(std::uint64_t hash, int choice, std::int64_t draws,
                          std::int64_t vocabulary) {
  const std::uint64_t all =
      stir(stir(hash, static_cast<std::uint64_t>(choice)), static_cast<std::uint64_t>(draws));
  return static_cast<std::int32_t>(all % static_cast<std::uint64_t>(vocabulary));
}
// The experts of a token after which this is the hash.
inline constexpr RoutedExpertsSizes fake_routing{.layers = 3, .top_k = 2, .experts = 200};
inline std::int32_t routed_id(std::uint64_t hash, int layer, int at) {
  return static_cast<std::int32_t>(
      stir(stir(hash, static_cast<std::uint32_t>(layer)), static_cast<std::uint32_t>(at)) % 200);
}
inline float logprob_of(std::uint64_t hash, std::int32_t token) {
  return -static_cast<float>(stir(hash, static_cast<std::uint32_t>(token)) % 4096) / 512;
}

class FakeSampler final : public Sampler {
 public:
  explicit FakeSampler(int of_choice, bool has_grammar = false)
      : choice(of_choice), grammar(has_grammar) {}
  std::unique_ptr<Sampler> fork(int other) const override {
    return std::make_unique<FakeSampler>(other, grammar);
  }
  bool may_wait() const override { return grammar; }
  bool ready() const override {
    unready = std::max(unready - 1, 0);
    return unready == 0;
  }
  std::optional<Error> failure() const override { return broken; }

  mutable int unready = 0;  // how many times it is not ready
  std::optional<Error> broken;
  int choice;
  bool grammar;
  std::int64_t draws = 0;
};

class FakeSamplers : public SamplerFactory {
 public:
  Abandon prepare(const Request&, Prepared done) override {
    done(std::unique_ptr<Sampler>(std::make_unique<FakeSampler>(0)));
    return {};
  }
};

// Computes from the contents of pages, so that a page that is owned twice, written too early or
// reused too early changes the answer.
class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(const Limits& limits)
      : limits_(limits),
        cells_(static_cast<std::size_t>(limits.pages * limits.page_tokens)),
        slots_(static_cast<std::size_t>(limits.state_slots)),
        snapshots_(static_cast<std::size_t>(limits.snapshots)),
        host_snapshots_(static_cast<std::size_t>(limits.host_snapshots)) {}

  Limits limits() const override { return limits_; }
  Result<void> takes(const lora::Mix& mix) const override {
    int ranks = 0;
    for (const lora::Mix::Part& part : mix.parts()) ranks += part.adapter->largest_rank();
    if (limits_.mix_rank == 0 || ranks <= limits_.mix_rank) return {};
    return Error(ErrorCode::invalid_argument, cat("no room for ranks of ", ranks));
  }
  Result<void> copy_page(std::int32_t from, std::int32_t to) override {
    for (std::int64_t i = 0; i < limits_.page_tokens; ++i) cell(to, i) = cell(from, i);
    ++copies;
    return {};
  }

  Result<void> copy_state(std::int32_t from, std::int32_t to) override {
    slot(to) = slot(from);
    ++state_copies;
    return {};
  }
  Result<void> save_state(std::int32_t from, std::int32_t place) override {
    MOTLEY_CHECK(slot(from).anchor.position > 0, "a state that is there");
    snapshot(place) = slot(from).anchor;
    ++saves;
    return {};
  }
  Result<void> restore_state(std::int32_t place, std::int32_t to) override {
    slot(to) = {.anchor = snapshot(place), .log = {}};
    ++restores;
    return {};
  }
  Result<void> offload_state(std::int32_t place, std::int32_t host_place) override {
    begin_copy({.from = place, .to = host_place, .state = snapshot(place)});
    host_snapshot(host_place) = {.position = under_way};
    ++offloads;
    return {};
  }
  Result<void> load_state(std::int32_t host_place, std::int32_t to) override {
    begin_copy({.loads = true, .from = host_place, .to = to, .state = host_snapshot(host_place)});
    slot(to) = {.anchor = {.position = under_way}, .log = {}};
    ++loads;
    return {};
  }
  // One ends at every so many calls.
  Result<std::uint64_t> state_copies_ended() override {
    if (++copies_asked_ >= copies_take) {
      copies_asked_ = 0;
      if (copies_take == 0) return finish_state_copies().ok() ? copies_ended_ : 0;
      if (!under_way_.empty()) end_copy();
    }
    return copies_ended_;
  }
  Result<void> finish_state_copies() override {
    while (!under_way_.empty()) end_copy();
    return {};
  }

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    meanwhile();
    ++steps;
    if (broken) return Error(ErrorCode::internal, "the device is lost");
    std::int64_t rows = 0;
    std::set<std::int32_t> written;
    routed_.clear();
    scores_.clear();
    scores_.reserve(static_cast<std::size_t>(limits_.rows));
    named_.clear();
    named_.reserve(static_cast<std::size_t>(limits_.rows * max_named_tokens));
    for (const runner::Chunk& chunk : chunks) {
      const auto count = static_cast<std::int64_t>(chunk.tokens.size());
      rows += count;
      MOTLEY_CHECK(count > 0, "a chunk has tokens");
      MOTLEY_CHECK(takes(chunk.mix).ok(), "a mix within the limits");
      for (std::int64_t at = chunk.length; at < chunk.length + count; ++at)
        written.insert(page_at(chunk, at));
    }
    MOTLEY_CHECK(
        rows <= limits_.rows && static_cast<std::int64_t>(chunks.size()) <= limits_.sequences,
        "a step within its limits");
    largest_step = std::max(largest_step, rows);
    std::map<std::int32_t, int> lists;
    for (const runner::Chunk& chunk : chunks)
      for (const std::int32_t page : chunk.pages) ++lists[page];
    for (const std::int32_t page : written)
      MOTLEY_CHECK(lists[page] == 1, "a page that is written has one owner");
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      MOTLEY_CHECK(chunks[i].logits == outputs[i].logits() &&
                       chunks[i].first_logits == outputs[i].first_logits(),
                   "logits for the outputs");
      compute(chunks[i], outputs[i]);
    }
    return {};
  }

  Result<void> release_adapters() override { return {}; }

  bool broken = false;
  // Of draws with a grammar one of this many waits for its sampler; 0: none does.
  int waits_of = 0;
  std::int64_t waited = 0;
  std::int64_t none_left_after = std::int64_t{1} << 40;  // draws of a choice
  std::int64_t copies = 0;
  std::int64_t state_copies = 0;
  std::int64_t saves = 0;
  std::int64_t restores = 0;
  std::int64_t offloads = 0;
  std::int64_t loads = 0;
  // How often the scheduler asks until a copy from or to the host has ended; 0: all end at once.
  std::int64_t copies_take = 0;
  std::int64_t steps = 0;
  std::int64_t scored_rows = 0;
  std::int64_t largest_step = 0;

 private:
  struct Cell {
    std::int32_t token = -1;
    std::uint64_t mix = 0;
  };

  // A state that stands at a page's border, and the tokens since, with the mix of each. The hash is
  // that of all tokens before.
  struct Anchor {
    std::int64_t position = 0;
    std::uint64_t hash = 0;

    bool operator==(const Anchor&) const = default;
  };
  struct Slot {
    Anchor anchor;
    std::map<std::int64_t, Cell> log;  // by position
  };
  Slot& slot(std::int32_t number) { return slots_[static_cast<std::size_t>(number)]; }
  Anchor& snapshot(std::int32_t place) { return snapshots_[static_cast<std::size_t>(place)]; }
  Anchor& host_snapshot(std::int32_t place) {
    return host_snapshots_[static_cast<std::size_t>(place)];
  }

  // A copy from or to the host. What it reads stays as it is until it ends, and what it writes is
  // not touched.
  struct StateCopy {
    bool loads = false;
    std::int32_t from = 0;
    std::int32_t to = 0;
    Anchor state;
  };
  static constexpr std::int64_t under_way = -1;
  void begin_copy(const StateCopy& copy) {
    MOTLEY_CHECK(copy.state.position > 0, "a snapshot that is there");
    under_way_.push_back(copy);
  }
  void end_copy() {
    const StateCopy copy = under_way_.front();
    under_way_.pop_front();
    MOTLEY_CHECK((copy.loads ? host_snapshot(copy.from) : snapshot(copy.from)) == copy.state,
                 "what a copy reads stays");
    Anchor& to = copy.loads ? slot(copy.to).anchor : host_snapshot(copy.to);
    MOTLEY_CHECK(to.position == under_way, "what a copy writes is not touched");
    to = copy.state;
    ++copies_ended_;
  }

  // Appends the hash after each of the chunk's tokens, as its slot has it.
  void advance(const runner::Chunk& chunk, std::uint64_t mix, std::vector<std::uint64_t>& hashes) {
    const auto& [number, anchor, certain] = chunk.state;
    Slot& own = slot(number);
    const auto rows = static_cast<std::int64_t>(chunk.tokens.size());
    if (anchor == 0) own.anchor = {.position = 0, .hash = no_tokens};
    MOTLEY_CHECK(own.anchor.position == anchor && anchor <= chunk.length, "where the state stands");
    MOTLEY_CHECK(certain <= rows && rows - certain <= 8, "rows that are certain");
    for (std::int64_t row = 0; row < rows; ++row)
      own.log[chunk.length + row] = {.token = chunk.tokens[static_cast<std::size_t>(row)],
                                     .mix = mix};
    std::uint64_t hash = own.anchor.hash;
    const std::int64_t after = (chunk.length + certain) / limits_.page_tokens * limits_.page_tokens;
    for (std::int64_t at = anchor; at < chunk.length + rows; ++at) {
      if (at == after) own.anchor = {.position = at, .hash = hash};
      hash = hash_after(hash, own.log.at(at).token, own.log.at(at).mix);
      if (at >= chunk.length) hashes.push_back(hash);
    }
    if (after == chunk.length + rows) own.anchor = {.position = after, .hash = hash};
    std::erase_if(own.log, [&](const auto& each) { return each.first < own.anchor.position; });
  }

  std::int32_t page_at(const runner::Chunk& chunk, std::int64_t at) const {
    return chunk.pages[static_cast<std::size_t>(at / limits_.page_tokens)];
  }
  Cell& cell(std::int32_t page, std::int64_t place) {
    return cells_[static_cast<std::size_t>(page * limits_.page_tokens + place)];
  }

  void compute(const runner::Chunk& chunk, ChunkOutput& output) {
    const std::uint64_t mix = hash_of(chunk.mix.key());
    std::vector<std::uint64_t> states;
    if (!slots_.empty()) advance(chunk, mix, states);
    std::uint64_t hash = no_tokens;
    const std::size_t first = scores_.size();
    const std::size_t first_named = named_.size();
    const auto rows = static_cast<std::int64_t>(chunk.tokens.size());
    if (output.asks_routed) output.routed = routed_rows(rows);
    for (std::int64_t at = 0; at < chunk.length + static_cast<std::int64_t>(chunk.tokens.size());
         ++at) {
      Cell& here = cell(page_at(chunk, at), at % limits_.page_tokens);
      if (at >= chunk.length)
        here = {.token = chunk.tokens[static_cast<std::size_t>(at - chunk.length)], .mix = mix};
      hash = hash_after(hash, here.token, here.mix);
      if (at >= chunk.length && !states.empty())
        MOTLEY_CHECK(states[static_cast<std::size_t>(at - chunk.length)] == hash,
                     "a state of the tokens that the pages have");
      const auto row = static_cast<std::size_t>(at - chunk.length);
      if (at >= chunk.length && output.asks_routed) route(hash, at - chunk.length);
      if (at < chunk.length || !output.scores(row)) continue;
      const std::size_t scored = row - output.first_scored;
      ++scored_rows;
      scores_.push_back(logprob_of(hash, output.scored[scored]));
      const std::size_t width = output.named_width();
      for (const std::int32_t id : output.named.subspan(scored * width, width))
        named_.push_back(id < 0 ? -infinity : logprob_of(hash, id));
    }
    output.logprobs = std::span(scores_).subspan(first);
    output.logprobs_named = std::span(named_).subspan(first_named);
    for (Draw& draw : output.draws) {
      auto& sampler = dynamic_cast<FakeSampler&>(*draw.sampler);
      draw.waits = sampler.grammar && waits_of > 0 && ++asked_ % waits_of == 0;
      if (draw.waits) {
        ++waited;
        sampler.unready = static_cast<int>(asked_ % 4);
        continue;
      }
      draw.token = kernels::no_token_left;
      if (sampler.draws >= none_left_after) continue;
      draw.token = drawn(hash, sampler.choice, sampler.draws++, limits_.vocabulary);
      draw.logprob = logprob_of(hash, draw.token);
      draw.rank = 1 + draw.token % 7;
    }
  }

  // Room for the experts of a chunk's rows, as the model has them.
  RoutedRows routed_rows(std::int64_t rows) {
    const RoutedExpertsSizes& sizes = fake_routing;
    auto& ids = routed_.emplace_back(static_cast<std::size_t>(sizes.layers * rows * sizes.top_k));
    return {.ids = ids.data(), .layer_stride = rows * sizes.top_k, .sizes = sizes};
  }
  void route(std::uint64_t hash, std::int64_t row) {
    std::vector<std::int32_t>& ids = routed_.back();
    const auto rows =
        static_cast<std::int64_t>(ids.size()) / (fake_routing.layers * fake_routing.top_k);
    for (int layer = 0; layer < fake_routing.layers; ++layer) {
      for (int at = 0; at < fake_routing.top_k; ++at)
        ids[static_cast<std::size_t>((layer * rows + row) * fake_routing.top_k + at)] =
            routed_id(hash, layer, at);
    }
  }

  Limits limits_;
  std::deque<std::vector<std::int32_t>> routed_;  // by chunk
  std::int64_t asked_ = 0;
  std::vector<Cell> cells_;
  std::vector<Slot> slots_;
  std::vector<Anchor> snapshots_;
  std::vector<Anchor> host_snapshots_;
  std::deque<StateCopy> under_way_;
  std::int64_t copies_asked_ = 0;
  std::uint64_t copies_ended_ = 0;
  static constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> scores_;
  std::vector<float> named_;
};

// The expected result of one choice alone.
inline std::vector<std::int32_t> expected_choice(const Request& request,
                                                 std::span<const lora::Mix::KeyPart> key,
                                                 int choice, std::int64_t vocabulary,
                                                 std::int64_t longest) {
  std::vector<std::int32_t> tokens = request.tokens;
  std::vector<std::int32_t> output;
  while (static_cast<std::int64_t>(output.size()) < request.max_tokens) {
    const auto draws = static_cast<std::int64_t>(output.size());
    output.push_back(drawn(hash_of(hash_of(key), tokens), choice, draws, vocabulary));
    tokens.push_back(output.back());
    if (static_cast<std::int64_t>(tokens.size()) >= longest) break;
    if (std::ranges::find(request.stop_ids, output.back()) != request.stop_ids.end()) break;
  }
  return output;
}

// The experts of these tokens from `first` on, if they are computed with this mix.
inline std::vector<std::uint8_t> expected_routed(std::uint64_t mix,
                                                 std::span<const std::int32_t> tokens,
                                                 std::int64_t first) {
  std::vector<std::uint8_t> routed;
  std::uint64_t hash = no_tokens;
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    hash = hash_after(hash, tokens[at], mix);
    if (static_cast<std::int64_t>(at) < first) continue;
    for (int layer = 0; layer < fake_routing.layers; ++layer) {
      for (int k = 0; k < fake_routing.top_k; ++k)
        routed.push_back(static_cast<std::uint8_t>(routed_id(hash, layer, k)));
    }
  }
  return routed;
}

// Adapters by path, in a real pool of small pages. Each has one page for every 8 ranks.
class FakeStore final : public AdapterStore {
 public:
  static constexpr std::int64_t width = 64;  // 8 rows of A and B fill a page

  explicit FakeStore(std::uint64_t pages)
      : pool_(lora::Pool::create(device_, {.bytes = pages * page_bytes, .page_bytes = page_bytes})
                  .value()) {}

  // What lies on disk.
  void put(const std::string& path, int ranks_of_8, std::uint32_t seed) {
    lora::Adapter adapter;
    const int rank = 8 * ranks_of_8;
    const auto numbers = static_cast<std::size_t>(rank * width);
    adapter.matrices.push_back(
        {rank, width, std::vector<float>(numbers, static_cast<float>(seed))});
    adapter.matrices.push_back({width, rank, std::vector<float>(numbers, 1)});
    adapter.sites.push_back({{0, lora::Projection::q}, width, width, {{0, 1, rank, 0.5F}}});
    adapter.largest_rank = rank;
    adapter.version = lora::hash_content(adapter);
    disk_[path] = std::move(adapter);
  }
  void remove(const std::string& path) { disk_.erase(path); }
  const lora::Adapter& on_disk(const std::string& path) const { return disk_.at(path); }

  void set_wake(std::function<void()> wake) override { wake_ = std::move(wake); }
  void begin(Job job) override { jobs_.emplace_back(std::move(job), Done{}); }
  std::optional<Done> take_done() override {
    if (automatic) run();
    if (done_.empty()) return std::nullopt;
    Done done = std::move(done_.front().second);
    done_.pop_front();
    return done;
  }
  lora::Handle acquire(const std::string& name, lora::ContentVersion version) override {
    auto handle = pool_->acquire(name);
    if (!handle.ok() || (*handle)->version() != version) return {};
    return *std::move(handle);
  }
  Usage usage() const override {
    const lora::Pool::Usage usage = pool_->usage();
    return {.pages = usage.pages,
            .free_pages = usage.free_pages,
            .pinned_pages = usage.pinned_pages,
            .replaced_pages = usage.replaced_pages,
            .page_bytes = usage.page_bytes,
            .evictions = usage.evictions};
  }

  // Runs the jobs that have begun, or the first of them.
  void run() {
    while (!jobs_.empty()) run_one();
  }
  void run_one() {
    const Job& job = jobs_.front().first;
    Done& done = jobs_.front().second;
    auto worked = within_memory([&] { return work(job); });
    if (worked.ok()) {
      done = *std::move(worked);
    } else {
      done = {.id = job.id, .error = worked.error()};
    }
    done_.splice(done_.end(), jobs_, jobs_.begin());
    if (wake_) wake_();
  }
  std::size_t jobs() const { return jobs_.size(); }
  lora::Pool& pool() { return *pool_; }

  std::atomic<bool> automatic = true;

 private:
  static constexpr std::uint64_t page_bytes = 8 * 2 * width * sizeof(float);

  Done work(const Job& job) {
    Done done{.id = job.id};
    const auto found = disk_.find(job.spec.path.string());
    if (found == disk_.end()) {
      done.error = Error(ErrorCode::not_found, "no such folder", job.spec.path.string());
      return done;
    }
    done.version = found->second.version;
    done.pages = lora::Pool::pages_of(found->second, pool_->options());
    done.rank = found->second.largest_rank;
    done.sites = lora::SiteSet(found->second);
    if (job.task == Task::read) return done;
    if (done.version != job.version) {
      done.error = Error(ErrorCode::bad_file, "its content has changed", job.spec.path.string());
      return done;
    }
    auto handle = pool_->load(job.spec.name, found->second);
    if (handle.ok()) {
      done.handle = *std::move(handle);
    } else {
      done.error = handle.error();
    }
    return done;
  }

  tensor::CpuDevice device_{{.threads = 1}};
  std::unique_ptr<lora::Pool> pool_;
  std::map<std::string, lora::Adapter> disk_;
  std::list<std::pair<Job, Done>> jobs_;
  std::list<std::pair<Job, Done>> done_;
  std::function<void()> wake_;
};

struct WorldOptions {
  Executor::Limits limits = {.rows = 64,
                             .sequences = 8,
                             .sequence_tokens = 256,
                             .pages = 128,
                             .page_tokens = 4,
                             .vocabulary = 97,
                             .routed_experts = fake_routing};
  std::uint64_t adapter_pages = 8;
  bool prefix_cache = true;
  std::int64_t snapshot_interval = 4096;
  std::size_t max_adapters = 0;  // unlimited
  bool validate = true;          // every step
};

// A scheduler on fakes.
class World {
 public:
  explicit World(const WorldOptions& options = {})
      : executor(options.limits),
        store(options.adapter_pages),
        scheduler(&executor, &store, &clock,
                  {.adapter_patience = std::chrono::milliseconds(500),
                   .max_adapters = options.max_adapters,
                   .prefix_cache = options.prefix_cache,
                   .snapshot_interval = options.snapshot_interval,
                   .validate = options.validate}) {}

  // Loads an adapter with this many pages.
  void add_adapter(const std::string& name, int pages, std::uint32_t seed, bool pinned = false) {
    store.put(name, pages, seed);
    Result<void> answer = Error(ErrorCode::internal, "no answer");
    load(name, pinned, false, &answer);
    answer.value();
  }
  // Replaces it by content with so many pages.
  void replace_adapter(const std::string& name, int pages, std::uint32_t seed, bool switches) {
    store.put(name, pages, seed);
    Result<void> answer = Error(ErrorCode::internal, "no answer");
    scheduler.residency().load({.name = name, .path = name, .switches = switches}, true,
                               [&answer](Result<void> result) { answer = std::move(result); });
    scheduler.residency().collect();
    answer.value();
  }
  void load(const std::string& name, bool pinned, bool replace, Result<void>* answer) {
    scheduler.residency().load({.name = name, .path = name, .pinned = pinned}, replace,
                               [answer](Result<void> result) { *answer = std::move(result); });
    scheduler.residency().collect();
  }

  std::shared_ptr<MemorySink> submit(
      Request request, std::unique_ptr<Sampler> sampler = std::make_unique<FakeSampler>(0)) {
    auto sink = std::make_shared<MemorySink>(request.choices);
    scheduler.submit({.id = ++last_id,
                      .request = std::move(request),
                      .sink = sink,
                      .sampler = std::move(sampler),
                      .accepted = clock.now()});
    return sink;
  }

  // Runs steps until nothing runs and no adapter is loading; returns their number.
  int run(int most = 10'000) {
    int steps = 0;
    while (steps < most) {
      if (scheduler.step().value() == Scheduler::Step::ran) {
        ++steps;
      } else if (scheduler.running() == 0 &&
                 (!store.automatic || scheduler.residency().jobs() == 0)) {
        break;
      }
    }
    scheduler.deliver();
    return steps;
  }

  std::vector<lora::Mix::KeyPart> key_of(const std::vector<lora::ScaledAdapter>& adapters) const {
    std::vector<lora::Mix::KeyPart> key;
    for (const lora::ScaledAdapter& each : adapters)
      key.push_back({store.on_disk(each.name).version, each.scale});
    std::ranges::sort(key);
    return key;
  }
  std::vector<std::int32_t> expected(const Request& request, int choice = 0) const {
    const Executor::Limits limits = executor.limits();
    const std::int64_t longest =
        longest_sequence(limits.sequence_tokens, limits.pages, limits.page_tokens);
    return expected_choice(request, key_of(request.adapters), choice, limits.vocabulary, longest);
  }

  ScriptedClock clock;
  FakeExecutor executor;
  FakeStore store;
  Scheduler scheduler;
  RequestId last_id = 0;
};

// A prompt of this many tokens; equal seeds have equal beginnings.
inline std::vector<std::int32_t> prompt(std::int64_t length, std::int32_t seed = 1) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<std::int32_t>((i * 7 + seed * 13) % 97));
  return tokens;
}

}  // namespace motley::engine::test
