#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "lora/apply/step_table.h"
#include "lora/pages/test_pool.h"
#include "plan/plan.h"
#include "tensor/device/cpu_device.h"
#include "tensor/device/scripted_device.h"

// The pool over a device whose streams run late and in pieces: no page is written before its
// possible readers have finished, and no reader sees a partly written page.
namespace motley::lora {
namespace {

using test::make_adapter;

// What a step must find: the terms of each label.
struct Expected {
  struct Term {
    const Adapter* adapter;
    float scale;
  };
  std::vector<std::int32_t> labels;
  std::vector<std::vector<Term>> terms;
};

// A stream of steps. Each reads everything that the table leads to three times, like kernels one
// after the other. They are captured once and launched again for every step.
class Steps {
 public:
  Steps(tensor::test::ScriptedDevice& device, Pool& pool)
      : stream(device.new_stream()),
        table(StepTable::create(device, pool, {.rows = 12, .labels = 6, .terms = 40}).value()) {
    graph_ = stream
                 ->capture([this]() -> Result<void> {
                   for (int read = 0; read < 3; ++read)
                     stream->call([this, read] { check(read == 2); });
                   return {};
                 })
                 .value();
  }

  void launch(const Batch& batch, Expected expected) {
    table->upload(batch, *stream).value();
    {
      const std::lock_guard held(lock_);
      waiting_.push_back(std::move(expected));
    }
    graph_->launch(*stream).value();
  }
  // Launches the last step again.
  void launch_again() {
    {
      const std::lock_guard held(lock_);
      if (waiting_.empty()) return;
      waiting_.push_back(waiting_.back());
    }
    graph_->launch(*stream).value();
  }
  std::size_t wrong() const { return wrong_; }
  std::size_t reads() const { return reads_; }

  std::unique_ptr<tensor::test::ScriptedStream> stream;
  std::unique_ptr<StepTable> table;

 private:
  void check(bool last) {
    const std::lock_guard held(lock_);
    const Expected& expected = waiting_.front();
    bool right = true;
    for (int row = 0; row < table->limits().rows; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const std::int32_t label = at < expected.labels.size() ? expected.labels[at] : plan::no_label;
      right = right && table->labels()[row] == label;
    }
    for (std::size_t label = 0; label < expected.terms.size() && right; ++label) {
      const auto& terms = expected.terms[label];
      const std::int32_t begin = table->term_begin()[label];
      const std::int32_t end = table->term_begin()[label + 1];
      right = static_cast<std::size_t>(end - begin) == terms.size();
      for (std::size_t i = 0; i < terms.size() && right; ++i) {
        const kernels::AdapterTerm& term = table->terms()[begin + static_cast<std::int32_t>(i)];
        right = term.scale == terms[i].scale && term.site_layers == 2 && term.experts == 0;
        if (!right) break;
        const kernels::FactorEntry& q =
            term.sites[projection_count + static_cast<std::size_t>(Projection::q)].factor;
        const Adapter& adapter = *terms[i].adapter;
        right = q.rank == adapter.largest_rank &&
                test::hold(static_cast<const float*>(q.a), static_cast<const float*>(q.b), q.split,
                           adapter);
      }
    }
    reads_ += 1;
    wrong_ += right ? 0 : 1;
    if (last) waiting_.pop_front();
  }

  std::mutex lock_;
  std::deque<Expected> waiting_;
  std::atomic<std::size_t> wrong_{0};
  std::atomic<std::size_t> reads_{0};
  std::unique_ptr<tensor::Graph> graph_;
};

constexpr Pool::Options device_options(std::uint64_t pages, bool poison = true) {
  return {.bytes = pages * 2048,
          .page_bytes = 2048,
          .directory = true,
          .poison = poison,
          .staging = {.piece_bytes = PageWriter::max_bytes, .pieces = 2}};
}

std::vector<Adapter> make_adapters(int count) {
  std::mt19937 random(3);
  std::uniform_int_distribution size(1, 40);
  std::vector<Adapter> adapters;
  for (int i = 0; i < count; ++i) {
    adapters.push_back(make_adapter(size(random) % 17 + 1, size(random), size(random),
                                    static_cast<std::uint32_t>(i)));
  }
  return adapters;
}

// Builds a batch of some of these, and what its steps must find.
Expected build(Batch& batch, std::span<const Handle> handles, const std::vector<Adapter>& adapters,
               std::mt19937& random) {
  std::vector<Mix> mixes{Mix()};
  for (std::size_t i = 0; i < std::min<std::size_t>(handles.size(), 5); ++i) {
    std::vector<Mix::Part> parts;
    for (std::size_t j = 0; j <= random() % 3; ++j) {
      parts.push_back(
          {handles[random() % handles.size()], static_cast<float>(random() % 1000 + 1) / 64});
    }
    mixes.push_back(Mix::make(parts).value());
  }
  std::vector<Mix> rows;
  const std::size_t count = random() % 13;
  for (std::size_t row = 0; row < count; ++row) rows.push_back(mixes[random() % mixes.size()]);
  batch.build(rows);
  Expected expected;
  expected.labels.assign(batch.labels().begin(), batch.labels().end());
  for (std::int32_t label = 0; label < batch.label_count(); ++label) {
    expected.terms.emplace_back();
    for (const Batch::Term& term : batch.terms(label)) {
      const auto found = std::ranges::find(adapters, term.adapter->version(), &Adapter::version);
      expected.terms.back().push_back({&*found, term.scale});
    }
  }
  return expected;
}

// With and without a fill of NaN between an adapter's release and the next one's bytes.
class DevicePoolUse : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Poison, DevicePoolUse, testing::Bool());

TEST_P(DevicePoolUse, NoPageIsWrittenUnderItsReaders) {
  tensor::test::ScriptedDevice device(1);
  tensor::CpuDevice cpu({.threads = 1});
  std::mt19937 random(2);
  const std::vector<Adapter> adapters = make_adapters(24);
  // About seven of the adapters fit; the host's pool has all of them.
  const auto host = Pool::create(cpu, {.bytes = 4 << 20, .page_bytes = 2048}).value();
  std::vector<Handle> sources;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    sources.push_back(host->load(cat("source-", i), adapters[i]).value());
  const auto pool = Pool::create(device, device_options(36, GetParam())).value();
  Steps steps(device, *pool);
  Batch batch;
  std::vector<Handle> held;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t at = random() % adapters.size();
    // Two contents per name, so that adapters are replaced under running steps.
    const std::string name = cat("adapter-", at / 2);
    auto handle =
        random() % 2 == 0 ? pool->load(name, adapters[at]) : pool->load(name, sources[at]);
    if (handle.ok()) {
      held.push_back(*std::move(handle));
    } else {
      ASSERT_EQ(handle.error().code(), ErrorCode::out_of_memory) << handle.error().message();
    }
    if (random() % 4 != 0) steps.launch(batch, build(batch, held, adapters, random));
    if (random() % 8 == 0) steps.launch_again();
    // The requests end; running steps are protected by the table alone.
    while (!held.empty() && (held.size() > 4 || random() % 3 == 0)) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
    if (random() % 3 == 0) batch.clear();
    for (auto i = random() % 40; i > 0; --i) device.advance();
    ASSERT_EQ(steps.wrong(), 0U) << "in step " << step;
    if (step % 64 == 0) pool->check_invariants();
  }
  steps.stream->synchronize().value();
  EXPECT_EQ(steps.wrong(), 0U);
  EXPECT_GT(steps.reads(), 40'000U);
  EXPECT_GT(pool->usage().evictions, 5'000U);
}

TEST_P(DevicePoolUse, ThreadsLoadUnderRunningSteps) {
  tensor::test::ScriptedDevice device(3);
  const std::vector<Adapter> adapters = make_adapters(16);
  const auto pool = Pool::create(device, device_options(40, GetParam())).value();
  Steps steps(device, *pool);
  std::atomic<bool> done{false};
  std::atomic<int> failed{0};
  std::vector<std::thread> loaders;
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    loaders.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!done) {
        const std::size_t at = random() % adapters.size();
        const auto loaded = pool->load(cat("adapter-", at / 2), adapters[at]);
        if (!loaded.ok() && loaded.error().code() != ErrorCode::out_of_memory &&
            loaded.error().code() != ErrorCode::busy)
          ++failed;
      }
    });
  }
  std::mt19937 random(9);
  Batch batch;
  for (int step = 0; step < 2'000; ++step) {
    std::vector<Handle> held;
    for (int i = 0; i < 3; ++i) {
      auto handle = pool->acquire(cat("adapter-", random() % 8));
      if (handle.ok()) held.push_back(*std::move(handle));
    }
    steps.launch(batch, build(batch, held, adapters, random));
    batch.clear();
    for (auto i = random() % 20; i > 0; --i) device.advance();
  }
  done = true;
  for (std::thread& loader : loaders) loader.join();
  steps.stream->synchronize().value();
  EXPECT_EQ(steps.wrong(), 0U);
  EXPECT_EQ(failed, 0);
  pool->check_invariants();
}

TEST(DevicePool, PinsWhatTheTableNamesUntilTheNextUpload) {
  tensor::test::ScriptedDevice device(4);
  const Adapter adapter = make_adapter(3, 10, 10, 1);
  const auto pool = Pool::create(device, device_options(8)).value();
  Steps steps(device, *pool);
  Batch batch;
  std::mt19937 random(1);
  {
    const Handle handle = pool->load("a", adapter).value();
    const std::vector<Mix> rows{
        Mix::make(std::vector<Mix::Part>{{.adapter = handle, .scale = 1}}).value()};
    batch.build(rows);
  }
  steps.launch(batch, {.labels = {0}, .terms = {{{&adapter, 1}}}});
  batch.clear();
  EXPECT_EQ(pool->usage().pinned_adapters, 1);
  // A later launch of the graph, long after the request ended, still finds the adapter.
  steps.launch_again();
  steps.stream->synchronize().value();
  EXPECT_EQ(steps.wrong(), 0U);
  steps.table->upload(batch, *steps.stream).value();
  EXPECT_EQ(pool->usage().pinned_adapters, 0);
  steps.launch(batch, {});
  steps.stream->synchronize().value();
  EXPECT_EQ(steps.wrong(), 0U);
}

TEST(DevicePool, AFailedCopyIsAnErrorAndLeavesNothing) {
  tensor::test::ScriptedDevice device(5);
  const auto pool = Pool::create(device, device_options(64)).value();
  device.fail_after(1);
  const auto loaded = pool->load("a", make_adapter(9, 40, 40, 1));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code(), ErrorCode::internal);
  EXPECT_EQ(pool->state("a"), State::absent);
  EXPECT_EQ(pool->usage().free_pages, 64U);
  pool->check_invariants();
}

TEST(DevicePool, FreedPagesAreNaNBehindTheirReaders) {
  tensor::test::ScriptedDevice device(6);
  const Adapter adapter = make_adapter(3, 10, 10, 1);
  const auto pool = Pool::create(device, device_options(8)).value();
  const auto reader = device.new_stream();
  const float* a = nullptr;
  bool whole = false;
  {
    const Handle handle = pool->load("a", adapter).value();
    a = static_cast<const float*>(handle->find({0, Projection::q})->factors[0].a);
    reader->call([&] { whole = a[0] == adapter.matrices[0].values[0]; });
    pool->mark_readers(*reader).value();
  }
  pool->unload("a").value();
  // Another load, so that the fill has been waited for.
  ASSERT_TRUE(pool->load("b", make_adapter(1, 1, 1, 2)).ok());
  EXPECT_TRUE(whole);
  pool->unload("b").value();
  while (device.advance()) continue;
  EXPECT_TRUE(std::isnan(a[0]));
}

// tests/score/many_adapters_test.cc and tests/gpu/many_adapters_test.cc test what steps compute
// with this many.
TEST(DevicePool, ATableNames512AdaptersAndTheirPages) {
  tensor::test::ScriptedDevice device(7);
  const auto pool = Pool::create(device, device_options(2000)).value();
  std::vector<Adapter> adapters;
  std::vector<Handle> handles;
  for (std::uint32_t i = 0; i < 512; ++i) adapters.push_back(make_adapter(2, 8, 8, i));
  for (std::size_t i = 0; i < adapters.size(); ++i)
    handles.push_back(pool->load(cat("adapter-", i), adapters[i]).value());
  const auto stream = device.new_stream();
  const auto table =
      StepTable::create(device, *pool, {.rows = 512, .labels = 512, .terms = 512}).value();
  std::vector<Mix> rows;
  for (const Handle& handle : handles)
    rows.push_back(Mix::make(std::vector<Mix::Part>{{.adapter = handle, .scale = 1}}).value());
  Batch batch;
  batch.build(rows);
  table->upload(batch, *stream).value();
  stream->synchronize().value();
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    ASSERT_EQ(table->labels()[i], static_cast<std::int32_t>(i));
    const kernels::AdapterTerm& term = table->terms()[table->term_begin()[i]];
    const kernels::FactorEntry& q =
        term.sites[projection_count + static_cast<std::size_t>(Projection::q)].factor;
    ASSERT_TRUE(test::hold(static_cast<const float*>(q.a), static_cast<const float*>(q.b), q.split,
                           adapters[i]));
  }
}

// For a call with this many rows, of which the last have no label.
TEST(DevicePool, GroupsHoldEachRowOnceAndTheBasesLast) {
  tensor::test::ScriptedDevice device(10);
  const auto pool = Pool::create(device, device_options(16)).value();
  std::vector<Mix> kinds(1);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Handle handle = pool->load(cat("a", i), make_adapter(2, 8, 8, i)).value();
    kinds.push_back(Mix::make(std::vector<Mix::Part>{{.adapter = handle}}).value());
  }
  const auto stream = device.new_stream();
  const auto table =
      StepTable::create(device, *pool, {.rows = 800, .labels = 4, .terms = 4}).value();
  std::mt19937 random(11);
  for (const std::int64_t count : {1, 40, 255, 256, 257, 799}) {
    std::vector<Mix> rows;
    for (std::int64_t row = 0; row < count; ++row) rows.push_back(kinds[random() % kinds.size()]);
    Batch batch;
    batch.build(rows);
    table->upload(batch, *stream).value();
    stream->synchronize().value();
    const kernels::AdapterRows found = table->rows(table->labels(), count == 255 ? 256 : count);
    ASSERT_NE(found.groups.counts, nullptr);
    std::vector<int> times(static_cast<std::size_t>(count), 0);
    for (int g = 0; g < found.groups.counts[1]; ++g) {
      const kernels::RowGroup& group = found.groups.groups[g];
      ASSERT_GT(group.rows, 0);
      ASSERT_LE(group.rows, kernels::max_group_rows(count));
      for (int i = 0; i < group.rows; ++i) {
        const std::int32_t row = found.groups.order[group.first + i];
        const std::int32_t label = table->labels()[row];
        const bool base = label == plan::no_label;
        ASSERT_EQ(base, g >= found.groups.counts[0]);
        ASSERT_EQ(group.term_end - group.term_begin, base ? 0 : 1);
        EXPECT_TRUE(base || group.term_begin == table->term_begin()[label]);
        ++times[static_cast<std::size_t>(row)];
      }
    }
    for (std::size_t row = 0; row < times.size(); ++row) EXPECT_EQ(times[row], 1) << "row " << row;
    EXPECT_EQ(table->rows(table->labels() + 1, 1).groups.counts, nullptr) << "others' labels";
    EXPECT_EQ(table->rows(table->labels(), count - 1).groups.counts, nullptr) << "not all rows";
  }
}

// Launches provide for the current batch and no more, whatever batches came before; those of a
// captured step for its class and every foreseen site.
TEST(DevicePool, LaunchesFitTheBatchBehindALargerOne) {
  tensor::test::ScriptedDevice device(9);
  const auto pool = Pool::create(device, device_options(96)).value();
  std::vector<Mix> alone;
  std::vector<Mix::Part> parts;
  for (std::uint32_t i = 0; i < 20; ++i) {
    parts.push_back({.adapter = pool->load(cat("a", i), make_adapter(2, 8, 8, i)).value()});
    alone.push_back(Mix::make(std::span(parts).last(1)).value());
  }
  const auto stream = device.new_stream();
  const auto table =
      StepTable::create(device, *pool, {.rows = 24, .labels = 24, .terms = 96, .ranks = 512})
          .value();
  struct Launched {
    bool many_labels = false;
    std::int32_t terms = 0;
    std::int32_t ranks = 0;
    std::optional<AdapterClass> in = {};
    bool operator==(const Launched&) const = default;
  };
  const auto upload = [&](std::span<const Mix> rows) {
    Batch batch;
    batch.build(rows);
    table->upload(batch, *stream).value();
    const LaunchScope& scope = table->scope();
    return Launched{scope.many_labels, scope.max_terms, scope.max_ranks, class_of(batch)};
  };
  const Launched small = upload(std::span(alone).first(2));
  EXPECT_EQ(small, (Launched{false, 1, 8, AdapterClass::few_labels}));
  EXPECT_EQ(upload(alone), (Launched{true, 1, 8, AdapterClass::many_labels}));
  const std::vector<Mix> three = {Mix::make(std::span(parts).first(3)).value()};
  EXPECT_EQ(upload(three), (Launched{false, 3, 24, AdapterClass::wide}));
  const std::vector<Mix> five = {Mix::make(std::span(parts).first(5)).value()};
  EXPECT_EQ(upload(five), (Launched{false, 5, 40, std::nullopt})) << "beyond all classes";
  EXPECT_EQ(upload(std::span(alone).first(2)), small) << "behind larger ones";

  constexpr Site elsewhere{7, Projection::router};
  SiteSet more;
  more.add(elsewhere, SiteSet::touched);
  table->foresee(more);
  EXPECT_FALSE(table->touches(elsewhere)) << "foreseen, and not of this batch";
  EXPECT_TRUE(table->touches({0, Projection::q}));
  table->widen_to(AdapterClass::wide, 24, table->foreseen());
  EXPECT_TRUE(table->touches(elsewhere));
  EXPECT_EQ(table->scope().max_ranks, 512);
  EXPECT_EQ(upload(std::span(alone).first(2)), small) << "behind a captured step";
  EXPECT_FALSE(table->touches(elsewhere));
}

TEST(SiteSets, CoverWhatTheyInclude) {
  SiteSet few;
  few.add({0, Projection::q}, SiteSet::touched);
  SiteSet more = few;
  more.add({3, Projection::router}, SiteSet::touched | SiteSet::scaled);
  EXPECT_TRUE(more.covers(few));
  EXPECT_FALSE(few.covers(more));
  EXPECT_TRUE(few.covers(SiteSet()));
  few.include(more);
  EXPECT_EQ(few, more);
  EXPECT_TRUE(few.has({3, Projection::router}, SiteSet::scaled));
  EXPECT_FALSE(few.has({3, Projection::router}, SiteSet::replaced));
  EXPECT_FALSE(few.has({2, Projection::router}, SiteSet::touched));
}

TEST(DevicePool, ABatchOfTheBaseCostsNothingBehindAnother) {
  tensor::test::ScriptedDevice device(8);
  const auto pool = Pool::create(device, device_options(8)).value();
  const auto stream = device.new_stream();
  const auto table = StepTable::create(device, *pool, {.rows = 2, .labels = 2, .terms = 2}).value();
  device.fail_after(0);
  EXPECT_TRUE(table->upload(Batch(), *stream).ok()) << "copied";
  for (int row = 0; row < 2; ++row) EXPECT_EQ(table->labels()[row], plan::no_label);
}

}  // namespace
}  // namespace motley::lora
