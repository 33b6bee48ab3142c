#include "lora/pages/pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/device_memory.h"
#include "gpu/pool_kernels.h"
#include "lora/apply/step_table.h"

// Adapters in the GPU's memory, loaded and evicted under running steps.
namespace motley::gpu_tests {
namespace {

using lora::Adapter;
using lora::Batch;
using lora::Handle;
using lora::Mix;
using lora::Pool;
using lora::StepTable;

constexpr int in = 1024;
constexpr int out = 512;

Adapter make_adapter(int rank, unsigned seed, int columns = in, int rows = out) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Adapter adapter;
  adapter.matrices.push_back({rank, columns, std::vector<float>(std::size_t(rank) * columns)});
  adapter.matrices.push_back({rows, rank, std::vector<float>(std::size_t(rank) * rows)});
  for (lora::Matrix& matrix : adapter.matrices) {
    for (float& number : matrix.values) number = uniform(random);
  }
  adapter.sites.push_back({{0, lora::Projection::q}, columns, rows, {{0, 1, rank, 0.5F}}});
  adapter.largest_rank = rank;
  adapter.version = hash_content(adapter);
  return adapter;
}

// What read_table() adds for an adapter: of its bytes as a pool in the host's memory has them.
std::uint32_t sum_of(const lora::Resident& resident) {
  const kernels::FactorEntry& q = resident.find({0, lora::Projection::q})->factors[0];
  std::uint32_t sum = std::uint32_t(q.rank);
  const auto add = [&](const void* blob, std::size_t words) {
    for (std::size_t i = 0; i < words; ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, static_cast<const std::byte*>(blob) + 4 * i, 4);
      sum += word_sum(word, std::uint32_t(i));
    }
  };
  add(q.a, std::size_t(q.split) * in);
  add(q.b, std::size_t(q.split) * out);
  return sum;
}

class DevicePool : public testing::Test {
 protected:
  DevicePool()
      : device_(tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value()),
        stream_(device_->create_stream().value()) {}

  std::unique_ptr<tensor::Device> device_;
  std::unique_ptr<tensor::Stream> stream_;
};

constexpr int reads = 3;
constexpr int labels = 6;
constexpr int rows = 40;

struct Loads {
  std::atomic<bool> over{false};
  std::atomic<int> done{0};
  std::atomic<int> failed{0};
};

// Loads any of the adapters, from files' tensors or from a host's pool, until it is over.
void load_until_done(Pool& pool, const std::vector<Adapter>& adapters,
                     const std::vector<Handle>& sources, unsigned seed, Loads& loads) {
  std::mt19937 random(seed);
  while (!loads.over) {
    const std::size_t at = random() % adapters.size();
    const std::string name = cat("adapter-", at / 2);
    const auto loaded = seed == 0 ? pool.load(name, adapters[at]) : pool.load(name, sources[at]);
    if (loaded.ok()) {
      ++loads.done;
    } else if (loaded.error().code() != ErrorCode::out_of_memory &&
               loaded.error().code() != ErrorCode::busy) {
      ++loads.failed;
    }
  }
}

// Some rows of the base and of random mixes.
std::vector<Mix> random_rows(const std::vector<Handle>& held, std::mt19937& random) {
  std::vector<Mix> mixes{Mix()};
  for (std::size_t i = 0; i < std::min<std::size_t>(held.size() * 2, labels - 1); ++i) {
    std::vector<Mix::Part> parts;
    for (std::size_t j = 0; j <= random() % 3; ++j)
      parts.push_back({held[random() % held.size()], float(random() % 100 + 1)});
    mixes.push_back(Mix::make(parts).value());
  }
  std::vector<Mix> batch_rows;
  for (std::size_t row = 0; row < random() % (rows + 1); ++row)
    batch_rows.push_back(mixes[random() % mixes.size()]);
  return batch_rows;
}

// What a read of the batch's tables sums by label. `sums`: of each adapter's numbers.
std::vector<std::uint32_t> sums_of_labels(const Batch& batch, const std::vector<Adapter>& adapters,
                                          const std::vector<std::uint32_t>& sums) {
  std::vector<std::uint32_t> of_labels(labels, 0);
  for (std::size_t row = 0; row < batch.labels().size(); ++row) {
    const std::int32_t label = batch.labels()[row];
    if (label >= 0) of_labels[std::size_t(label)] += 1000003U * std::uint32_t(row + 1);
  }
  for (std::int32_t label = 0; label < batch.label_count(); ++label) {
    for (const Batch::Term& term : batch.terms(label)) {
      const auto found = std::ranges::find(adapters, term.adapter->version(), &Adapter::version);
      of_labels[std::size_t(label)] +=
          sums[std::size_t(found - adapters.begin())] + std::bit_cast<std::uint32_t>(term.scale);
    }
  }
  return of_labels;
}

// `got`: [step][read][label], of which every read has the step's expected sums.
int count_wrong(const std::vector<std::uint32_t>& got, const std::vector<std::uint32_t>& expected) {
  int wrong = 0;
  for (std::size_t step = 0; step < expected.size() / labels; ++step) {
    for (std::size_t read = 0; read < reads; ++read) {
      for (std::size_t label = 0; label < labels; ++label) {
        if (got[(step * reads + read) * labels + label] != expected[step * labels + label]) ++wrong;
      }
    }
  }
  return wrong;
}

// Two threads load and evict while one captured graph is launched 10^4 times with other rows,
// mixes and adapters each time: every read of every step has the sums that its batch means.
TEST_F(DevicePool, LoadsAndEvictionsUnderTenThousandSteps) {
  constexpr int steps = 10'000;
  constexpr std::uint64_t page_bytes = 16 << 10;
  std::vector<Adapter> adapters;
  for (unsigned i = 0; i < 24; ++i) adapters.push_back(make_adapter(int(1 + i * 7 % 33), i));
  const auto host =
      Pool::create(device_->pinned_memory(), {.bytes = 16 << 20, .page_bytes = page_bytes}).value();
  std::vector<Handle> sources;
  std::vector<std::uint32_t> sums;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    sources.push_back(host->load(cat("source-", i), adapters[i]).value());
    sums.push_back(sum_of(*sources.back()));
  }
  // About half of them fit.
  const auto pool = Pool::create(*device_, {.bytes = 2 << 20,
                                            .page_bytes = page_bytes,
                                            .directory = true,
                                            .poison = true,
                                            .staging = {.piece_bytes = 64 << 10, .pieces = 3}})
                        .value();
  const auto table =
      StepTable::create(*device_, *pool, {.rows = rows, .labels = labels, .terms = 3 * labels})
          .value();

  DeviceArray<std::int32_t> step_counter(1);
  step_counter.zero();
  DeviceArray<std::uint32_t> device_sums(std::size_t{steps} * reads * labels);
  const ReadTable params{.labels = table->labels(),
                         .term_begin = table->term_begin(),
                         .terms = table->terms(),
                         .rows = rows,
                         .label_count = labels,
                         .site = int(lora::projection_count + std::size_t(lora::Projection::q)),
                         .in = in,
                         .out = out,
                         .step = step_counter.data(),
                         .sums = device_sums.data(),
                         .reads = reads};
  const auto graph = stream_
                         ->capture([&]() -> Result<void> {
                           for (int read = 0; read < reads; ++read)
                             read_table(params, read, stream_->handle());
                           return {};
                         })
                         .value();

  Loads loads;
  std::vector<std::thread> loaders;
  for (unsigned seed = 0; seed < 2; ++seed)
    loaders.emplace_back([&, seed] { load_until_done(*pool, adapters, sources, seed, loads); });

  std::mt19937 random(3);
  std::vector<std::uint32_t> expected;
  Batch batch;
  for (int step = 0; step < steps; ++step) {
    std::vector<Handle> held;
    for (int i = 0; i < 4; ++i) {
      auto handle = pool->acquire(cat("adapter-", random() % (adapters.size() / 2)));
      if (handle.ok()) held.push_back(*std::move(handle));
    }
    batch.build(random_rows(held, random));
    const std::vector<std::uint32_t> of_labels = sums_of_labels(batch, adapters, sums);
    expected.insert(expected.end(), of_labels.begin(), of_labels.end());
    ASSERT_TRUE(table->upload(batch, *stream_).ok());
    ASSERT_TRUE(graph->launch(*stream_).ok());
    // The requests are gone before their step has run.
    batch.clear();
  }
  loads.over = true;
  for (std::thread& loader : loaders) loader.join();
  ASSERT_TRUE(stream_->synchronize().ok());
  EXPECT_EQ(loads.failed, 0);
  EXPECT_GT(loads.done, 100);
  EXPECT_GT(pool->usage().evictions, 100U);
  pool->check_invariants();

  EXPECT_EQ(count_wrong(device_sums.read(), expected), 0);
  const auto without_adapters = std::ranges::count(expected, 0U);
  EXPECT_GT(std::ssize(expected) - without_adapters, steps);
}

// The bytes of every format, from every kind of source.
TEST_F(DevicePool, HoldsTheBytesOfTheHostsPool) {
  const Adapter adapter = make_adapter(19, 5);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    const Pool::Options options{.bytes = 4 << 20, .page_bytes = 64 << 10, .dtype = dtype};
    const auto host = Pool::create(device_->pinned_memory(), options).value();
    const auto pool = Pool::create(*device_, options).value();
    const Handle source = host->load("a", adapter).value();
    const Handle built = pool->load("built", adapter).value();
    const Handle copied = pool->load("copied", source).value();
    const auto placement = lora::place_blobs(adapter, options.format(), options.page_bytes);
    for (const lora::Placement::Blob& blob : placement.blobs) {
      for (const Handle* handle : {&built, &copied}) {
        std::vector<std::byte> back(blob.bytes);
        ASSERT_TRUE(
            stream_->copy(back.data(), (*handle)->run(blob.run) + blob.offset, blob.bytes).ok());
        ASSERT_TRUE(stream_->synchronize().ok());
        EXPECT_EQ(std::memcmp(back.data(), source->run(blob.run) + blob.offset, blob.bytes), 0);
      }
    }
  }
}

// The host's memory is page-locked in pieces, which no copy may cross: these runs do.
TEST_F(DevicePool, HoldsTheBytesOfRunsThatCrossPieces) {
  const Pool::Options options{.bytes = 128 << 20, .page_bytes = 64 << 10};
  const auto host = Pool::create(device_->pinned_memory(), options).value();
  const auto pool = Pool::create(*device_, options).value();
  const Handle before = host->load("before", make_adapter(19, 5)).value();
  const Handle source = host->load("a", make_adapter(40, 6, 120'000, 90'000)).value();
  EXPECT_GT(host->usage().committed_bytes, std::uint64_t{32} << 20);
  const Handle copied = pool->load("a", source).value();
  const kernels::FactorEntry& from = source->find({0, lora::Projection::q})->factors[0];
  const kernels::FactorEntry& to = copied->find({0, lora::Projection::q})->factors[0];
  const auto same = [&](const void* here, const void* there, std::size_t numbers) {
    std::vector<float> back(numbers);
    stream_->copy(back.data(), there, numbers * sizeof(float)).value();
    stream_->synchronize().value();
    return std::memcmp(back.data(), here, numbers * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(from.a, to.a, std::size_t{40} * 120'000));
  EXPECT_TRUE(same(from.b, to.b, std::size_t{40} * 90'000));
}

TEST_F(DevicePool, AnArenaBeyondTheGpuIsAnOrdinaryError) {
  const std::uint64_t total = device_->memory().value().total;
  const auto pool = Pool::create(*device_, {.bytes = 2 * total, .page_bytes = 1 << 20});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code(), ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace motley::gpu_tests
