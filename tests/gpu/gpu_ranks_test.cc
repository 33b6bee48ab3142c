#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/rank_numbers.h"
#include "gpu/ranks_world.h"

namespace motley::gpu_tests {
namespace {

using dist::Communicator;
using dist::Range;
using dist::RanksOver;
using testing::HasSubstr;
using Part = Communicator::Part;

// Peers may share a GPU.
std::vector<int> counts_of_ranks() {
  if (ranks_over() == RanksOver::nccl) return {2};
  return {2, 3, 4};
}

class GpuRanksTest : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<RanksWorld> world_ = std::make_unique<RanksWorld>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuRanksTest, testing::ValuesIn(counts_of_ranks()),
                         [](const auto& ranks) { return cat("of", ranks.param); });

TEST_P(GpuRanksTest, SumsAreAddedInOrderOfRanks) {
  // Those sent at once up to 65536 in f32, those in two steps, and more than the group's memory.
  for (const std::size_t count : {1, 5, 2048, 65536, 65537, 100003, 1 << 20, 9'000'004}) {
    const std::vector<float> expected = sum_in_order(world_->ranks(), count);
    const auto arrays = world_->arrays([&](int rank) { return numbers_of(rank, count); });
    world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
      ASSERT_TRUE(own.all_reduce(span_of(arrays[static_cast<std::size_t>(own.rank())]), Part::own,
                                 {.stream = rank.handle()})
                      .ok());
    });
    for (const auto& array : arrays) ASSERT_TRUE(same(array.read(), expected)) << count;
  }
}

TEST_P(GpuRanksTest, PartsAndSumsThatCrossInBf16AreRoundedToIt) {
  for (const std::size_t count : {3, 2048, 131072, 131076, 500001, 1 << 21}) {
    const std::vector<float> expected = sum_in_order(world_->ranks(), count, DType::bf16);
    const auto arrays = world_->arrays([&](int rank) { return numbers_of(rank, count); });
    world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
      ASSERT_TRUE(own.all_reduce(span_of(arrays[static_cast<std::size_t>(own.rank())]), Part::own,
                                 {.stream = rank.handle(), .type = DType::bf16})
                      .ok());
    });
    for (const auto& array : arrays) ASSERT_TRUE(same(array.read(), expected)) << count;
  }
}

TEST_P(GpuRanksTest, ASumOfNoNumbersIsNothing) {
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    ASSERT_TRUE(own.all_reduce({}, Part::own, {.stream = rank.handle()}).ok());
    ASSERT_TRUE(own.barrier(rank.handle()).ok());
  });
}

TEST_P(GpuRanksTest, ARankWithoutAPartAddsNothing) {
  for (const std::size_t count : {3, 4096, 300000}) {
    for (int without = 0; without < world_->ranks(); ++without) {
      // What stands there is not read.
      const auto arrays = world_->arrays(
          [&](int rank) { return std::vector<float>(count, rank == without ? NAN : 1.0F); });
      world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
        ASSERT_TRUE(own.all_reduce(span_of(arrays[static_cast<std::size_t>(own.rank())]),
                                   own.rank() == without ? Part::none : Part::own,
                                   {.stream = rank.handle()})
                        .ok());
      });
      const std::vector<float> expected(count, static_cast<float>(world_->ranks() - 1));
      for (const auto& array : arrays) ASSERT_TRUE(same(array.read(), expected));
    }
  }
}

std::vector<float> magnitudes_of(int rank, std::size_t count, int seed = 0) {
  std::vector<float> numbers = numbers_of(rank, count, seed);
  for (float& number : numbers) number = std::fabs(number);
  return numbers;
}

TEST_P(GpuRanksTest, MaximaAreThoseOfAllRanks) {
  // More than slots have room for, too. The last rank has no part; what stands there is not read.
  const int parts = world_->ranks() - 1;
  for (const std::size_t count : {1, 3, 512, 65536, 65537, 300001}) {
    std::vector<float> expected(count, 0.0F);
    for (int rank = 0; rank < parts; ++rank) {
      const std::vector<float> part = magnitudes_of(rank, count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = std::max(expected[i], part[i]);
    }
    const auto arrays = world_->arrays([&](int rank) {
      return rank < parts ? magnitudes_of(rank, count) : std::vector<float>(count, INFINITY);
    });
    world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
      ASSERT_TRUE(own.all_max(span_of(arrays[static_cast<std::size_t>(own.rank())]),
                              own.rank() < parts ? Part::own : Part::none, rank.handle())
                      .ok());
    });
    for (const auto& array : arrays) ASSERT_TRUE(same(array.read(), expected)) << count;
  }
}

// Maxima and sums share the slots, and may stand in one graph.
TEST_P(GpuRanksTest, MaximaBetweenSumsInAGraphThatIsLaunchedAgain) {
  constexpr std::size_t count = 700;
  constexpr int launches = 12;
  const auto sums = world_->arrays([&](int) { return std::vector<float>(count, 1.0F); });
  const auto maxima =
      world_->arrays([&](int rank) { return std::vector<float>(count, static_cast<float>(rank)); });
  // No rank makes a graph beside another that runs: where they share a GPU, it waits for that.
  std::vector<std::unique_ptr<tensor::Graph>> graphs(static_cast<std::size_t>(world_->ranks()));
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    const auto i = static_cast<std::size_t>(own.rank());
    graphs[i] = rank.stream
                    ->capture([&]() -> Result<void> {
                      MOTLEY_TRY_VOID(
                          own.all_reduce(span_of(sums[i]), Part::own, {.stream = rank.handle()}));
                      MOTLEY_TRY_VOID(own.all_max(span_of(sums[i]), Part::own, rank.handle()));
                      return own.all_max(span_of(maxima[i]), Part::own, rank.handle());
                    })
                    .value();
  });
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    for (int launch = 0; launch < launches; ++launch)
      ASSERT_TRUE(graphs[static_cast<std::size_t>(own.rank())]->launch(*rank.stream).ok());
    ASSERT_TRUE(rank.stream->synchronize().ok());
  });
  const float sum = std::pow(static_cast<float>(world_->ranks()), static_cast<float>(launches));
  for (const auto& array : sums) ASSERT_TRUE(same(array.read(), std::vector(count, sum)));
  const auto largest = static_cast<float>(world_->ranks() - 1);
  for (const auto& array : maxima) ASSERT_TRUE(same(array.read(), std::vector(count, largest)));
}

TEST_P(GpuRanksTest, ScatteredSumsAreParts) {
  for (const std::size_t count : {2, 1001, 200000, 9'000'001}) {
    const std::vector<float> expected = sum_in_order(world_->ranks(), count);
    const auto range = [&](int rank) {
      return dist::deal(static_cast<std::int64_t>(count), world_->ranks(), rank);
    };
    const auto arrays = world_->arrays([&](int rank) { return numbers_of(rank, count); });
    const auto sums = world_->arrays([&](int rank) {
      return std::vector<float>(static_cast<std::size_t>(range(rank).size()), NAN);
    });
    world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
      const auto number = static_cast<std::size_t>(own.rank());
      ASSERT_TRUE(
          own.reduce_scatter(span_of(arrays[number]), span_of(sums[number]), rank.handle()).ok());
    });
    for (int rank = 0; rank < world_->ranks(); ++rank)
      ASSERT_TRUE(same(sums[static_cast<std::size_t>(rank)].read(),
                       {expected.begin() + range(rank).begin, expected.begin() + range(rank).end}))
          << count;
  }
}

TEST_P(GpuRanksTest, GathersUnevenColumns) {
  struct Rows {
    std::int64_t rows;
    std::int64_t width;
  };
  // Also ranks without columns, and more than the group's memory.
  for (const auto [rows, width] : {Rows{3, 1}, {3, 5}, {1, 1000}, {64, 4096}, {500, 40000}}) {
    const auto columns = [width = width, this](int rank) {
      return dist::deal(width, world_->ranks(), rank);
    };
    const auto parts = world_->arrays([&, rows = rows, width = width](int rank) {
      std::vector<float> part;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = columns(rank).begin; column < columns(rank).end; ++column)
          part.push_back(static_cast<float>(row * width + column));
      return part;
    });
    const std::vector<float> poison(static_cast<std::size_t>(rows * width), -1.0F);
    const DeviceArray<float> all = world_->array(0, poison);
    world_->run([&, rows = rows, width = width](Communicator& own, RanksWorld::Rank& rank) {
      const Range range = columns(own.rank());
      ASSERT_TRUE(own.all_gather({.rows = rows,
                                  .own = parts[static_cast<std::size_t>(own.rank())].data(),
                                  .own_stride = range.size(),
                                  .width = width,
                                  .columns = range,
                                  .out = own.rank() == 0 ? all.data() : nullptr,
                                  .out_stride = width,
                                  .stream = rank.handle()})
                      .ok());
    });
    std::vector<float> expected(poison.size());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i);
    ASSERT_TRUE(same(all.read(), expected)) << rows << " rows of " << width;
  }
}

TEST_P(GpuRanksTest, GathersPartsInPlace) {
  // Also more than the group's memory.
  for (const std::size_t count : {4, 1024, 100'004, 9'000'004}) {
    std::vector<float> expected;
    for (int rank = 0; rank < world_->ranks(); ++rank) {
      const std::vector<float> part = numbers_of(rank, count);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const auto arrays = world_->arrays([&](int rank) {
      std::vector<float> parts(expected.size(), -1.0F);
      std::ranges::copy(numbers_of(rank, count),
                        parts.begin() + static_cast<std::ptrdiff_t>(count) * rank);
      return parts;
    });
    world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
      const auto& array = arrays[static_cast<std::size_t>(own.rank())];
      ASSERT_TRUE(own.gather_parts({.data = reinterpret_cast<std::byte*>(array.data()),
                                    .bytes = static_cast<std::int64_t>(count * sizeof(float)),
                                    .stream = rank.handle()})
                      .ok());
    });
    for (const auto& array : arrays) ASSERT_TRUE(same(array.read(), expected)) << count;
  }
}

TEST_P(GpuRanksTest, BroadcastsFromAnyRoot) {
  for (int root = 0; root < world_->ranks(); ++root) {
    for (const std::size_t count : {1, 7, 16, 40'000'001}) {
      const auto arrays = world_->arrays([&](int rank) {
        std::vector<std::uint8_t> bytes(count);
        for (std::size_t i = 0; i < count; ++i)
          bytes[i] = static_cast<std::uint8_t>(rank == root ? i * 7 + 3 : 0);
        return bytes;
      });
      world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
        const auto& array = arrays[static_cast<std::size_t>(own.rank())];
        ASSERT_TRUE(own.broadcast(std::as_writable_bytes(std::span(array.data(), array.size())),
                                  root, rank.handle())
                        .ok());
      });
      const auto expected = arrays[static_cast<std::size_t>(root)].read();
      for (const auto& array : arrays) ASSERT_TRUE(array.read() == expected) << count;
    }
  }
}

// Nothing waits between the calls, so ranks are up to one call apart, and buffers are used again at
// once.
TEST_P(GpuRanksTest, ManyCallsInARowStayApart) {
  constexpr std::array<std::size_t, 7> sizes{8, 70000, 1, 2048, 65536, 200000, 4096};
  constexpr int calls = 210;
  std::vector<std::vector<DeviceArray<float>>> arrays;
  for (int call = 0; call < calls; ++call) {
    const std::size_t count = sizes[static_cast<std::size_t>(call) % sizes.size()];
    arrays.push_back(world_->arrays([&](int rank) { return numbers_of(rank, count, call % 5); }));
  }
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    for (const auto& call : arrays) {
      ASSERT_TRUE(own.all_reduce(span_of(call[static_cast<std::size_t>(own.rank())]), Part::own,
                                 {.stream = rank.handle()})
                      .ok());
    }
  });
  for (int call = 0; call < calls; ++call) {
    const auto& all = arrays[static_cast<std::size_t>(call)];
    const std::vector<float> expected =
        sum_in_order(world_->ranks(), all[0].size(), DType::f32, call % 5);
    for (const auto& array : all) ASSERT_TRUE(same(array.read(), expected)) << "call " << call;
  }
}

// A graph's calls are counted on the device: those of the last launch are not taken for new ones.
TEST_P(GpuRanksTest, AGraphLaunchedAgainWaitsForNewNumbers) {
  constexpr std::array<std::size_t, 3> sizes{2048, 100004, 512};
  constexpr int launches = 20;
  struct Memory {
    std::vector<DeviceArray<float>> sources;  // of each launch, one after the other
    std::vector<DeviceArray<float>> sums;     // what the graph works in
    std::vector<DeviceArray<float>> results;
    std::unique_ptr<tensor::Graph> graph;
  };
  std::vector<Memory> memory(static_cast<std::size_t>(world_->ranks()));
  for (int rank = 0; rank < world_->ranks(); ++rank) {
    Memory& own = memory[static_cast<std::size_t>(rank)];
    for (const std::size_t size : sizes) {
      own.sums.push_back(world_->array(rank, std::vector<float>(size)));
      std::vector<float> all;
      for (int launch = 0; launch < launches; ++launch) {
        const std::vector<float> numbers = numbers_of(rank, size, launch);
        all.insert(all.end(), numbers.begin(), numbers.end());
      }
      own.sources.push_back(world_->array(rank, all));
      own.results.push_back(world_->array(rank, std::vector<float>(all.size())));
    }
  }
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    Memory& mine = memory[static_cast<std::size_t>(own.rank())];
    auto graph = rank.stream->capture([&]() -> Result<void> {
      for (const auto& sum : mine.sums)
        MOTLEY_TRY_VOID(own.all_reduce(span_of(sum), Part::own, {.stream = rank.handle()}));
      return {};
    });
    ASSERT_TRUE(graph.ok());
    mine.graph = *std::move(graph);
  });
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    Memory& mine = memory[static_cast<std::size_t>(own.rank())];
    for (std::size_t launch = 0; launch < launches; ++launch) {
      const auto copy = [&](const DeviceArray<float>& to, std::size_t to_launch,
                            const DeviceArray<float>& from, std::size_t from_launch,
                            std::size_t size) {
        ASSERT_TRUE(rank.stream
                        ->copy(to.data() + to_launch * size, from.data() + from_launch * size,
                               size * sizeof(float))
                        .ok());
      };
      for (std::size_t i = 0; i < sizes.size(); ++i)
        copy(mine.sums[i], 0, mine.sources[i], launch, sizes[i]);
      ASSERT_TRUE(mine.graph->launch(*rank.stream).ok());
      for (std::size_t i = 0; i < sizes.size(); ++i)
        copy(mine.results[i], launch, mine.sums[i], 0, sizes[i]);
    }
  });
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<float> expected;
    for (int launch = 0; launch < launches; ++launch) {
      const std::vector<float> sum = sum_in_order(world_->ranks(), sizes[i], DType::f32, launch);
      expected.insert(expected.end(), sum.begin(), sum.end());
    }
    for (const Memory& each : memory) ASSERT_TRUE(same(each.results[i].read(), expected)) << i;
  }
}

TEST_P(GpuRanksTest, ASumWithItsNormHasTheBitsOfBoth) {
  struct Rows {
    std::int64_t rows;
    std::int64_t width;
  };
  for (const DType crosses : {DType::f32, DType::bf16}) {
    for (const auto [rows, width] : {Rows{1, 2048},
                                     {7, 64},
                                     {32, 2048},
                                     {3, 5120},
                                     {1, 12288},
                                     {65, 2048},
                                     {1000, 2048},
                                     {2051, 192},
                                     {9001, 2048}}) {
      const auto count = static_cast<std::size_t>(rows * width);
      const auto numbers = [&, width = width](int seed, bool weight) {
        return world_->arrays([&](int) {
          return numbers_of(9, weight ? static_cast<std::size_t>(width) : count, seed);
        });
      };
      const auto parts = [&](int rank) { return numbers_of(rank, count); };
      const auto a = numbers(1, false);
      const auto weight = numbers(2, true);
      const auto apart = world_->arrays(parts);
      const auto joined = world_->arrays(parts);
      const auto x = numbers(3, false);
      const auto joined_x = numbers(4, false);
      const auto out = world_->arrays([&](int) { return std::vector<bf16>(count); });
      const auto joined_out = world_->arrays([&](int) { return std::vector<bf16>(count); });
      world_->run([&, rows = rows, width = width](Communicator& own, RanksWorld::Rank& rank) {
        const auto i = static_cast<std::size_t>(own.rank());
        const auto call = [&](const float* b, float* sum, bf16* normed) {
          return kernels::AddAndNorm{.add = {.rows = rows,
                                             .width = width,
                                             .a = a[i].data(),
                                             .a_stride = width,
                                             .b = b,
                                             .b_stride = width,
                                             .out = sum,
                                             .out_stride = width},
                                     .norm = {.size = {.rows = rows, .width = width},
                                              .x = sum,
                                              .x_stride = width,
                                              .weight = weight[i].data(),
                                              .out = normed,
                                              .out_type = DType::bf16,
                                              .out_stride = width}};
        };
        const Communicator::Crossing crossing{.stream = rank.handle(), .type = crosses};
        ASSERT_TRUE(own.all_reduce(span_of(apart[i]), Part::own, crossing).ok());
        rank.kernels->add_and_norm(call(apart[i].data(), x[i].data(), out[i].data()),
                                   crossing.stream);
        const auto together = call(joined[i].data(), joined_x[i].data(), joined_out[i].data());
        // Over NCCL a norm is a call of its own.
        ASSERT_EQ(own.fits_norm(together, crosses), ranks_over() == RanksOver::peers);
        if (!own.fits_norm(together, crosses)) {
          ASSERT_TRUE(own.all_reduce(span_of(joined[i]), Part::own, crossing).ok());
          rank.kernels->add_and_norm(together, crossing.stream);
          return;
        }
        ASSERT_TRUE(own.sum_and_norm(together, Part::own, crossing).ok());
      });
      const auto bits = [](const DeviceArray<bf16>& array) {
        std::vector<float> wide;
        for (const bf16 each : array.read()) wide.push_back(each.to_float());
        return wide;
      };
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(same(joined_x[i].read(), x[0].read())) << rows << " rows of " << width;
        EXPECT_TRUE(same(bits(joined_out[i]), bits(out[0]))) << rows << " rows of " << width;
      }
    }
  }
}

TEST_P(GpuRanksTest, ARankThatFailsEndsTheWaitsOfAllOthers) {
  const int faulty = world_->ranks() - 1;
  const auto arrays = world_->arrays([](int) { return std::vector<float>(10, 1.0F); });
  // The others are in the call by then, on their threads or on their GPUs, or about to enter it: a
  // rank that has failed ends a wait that has begun and one that begins.
  std::latch others(world_->ranks() - 1);
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    const auto sum = [&] {
      return own.all_reduce(span_of(arrays[static_cast<std::size_t>(own.rank())]), Part::own,
                            {.stream = rank.handle()});
    };
    ASSERT_TRUE(sum().ok());
    ASSERT_TRUE(rank.stream->synchronize().ok());
    if (own.rank() == faulty) {
      others.wait();
      own.fail(Error(ErrorCode::io, "the disk is gone"));
    } else {
      others.count_down();
      static_cast<void>(sum().ok());
      ASSERT_TRUE(rank.stream->synchronize().ok());
    }
    const auto status = own.status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message(), cat("the disk is gone (rank ", faulty, ")"));
    // It stays so, and nothing waits any more.
    EXPECT_FALSE(sum().ok());
    EXPECT_FALSE(own.barrier(rank.handle()).ok());
  });
}

// Threads miss it where calls are launched, GPUs where a graph has recorded them.
class GpuRanksFaults : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(All, GpuRanksFaults, testing::Bool(), [](const auto& recorded) {
  return std::string(recorded.param ? "recorded" : "launched");
});

TEST_P(GpuRanksFaults, ARankThatNeverComesIsNamed) {
  const bool recorded = GetParam();
  const int ranks = counts_of_ranks().back();
  const int missing = ranks - 1;
  for (const std::size_t count : {10, 500000}) {
    // Fifty waits would take longer than the bound below.
    RanksWorld world(ranks, std::chrono::milliseconds(1500));
    const auto arrays = world.arrays([&](int) { return std::vector<float>(count, 1.0F); });
    std::vector<std::unique_ptr<tensor::Graph>> graphs(static_cast<std::size_t>(ranks));
    const auto begin = std::chrono::steady_clock::now();
    world.run([&](Communicator& own, RanksWorld::Rank& rank) {
      if (own.rank() == missing) return;
      const auto number = static_cast<std::size_t>(own.rank());
      // Of many calls only the first waits.
      const auto sums = [&]() -> Result<void> {
        for (int call = 0; call < 50; ++call)
          MOTLEY_TRY_VOID(
              own.all_reduce(span_of(arrays[number]), Part::own, {.stream = rank.handle()}));
        return {};
      };
      if (!recorded) {
        EXPECT_FALSE(sums().ok());
        return;
      }
      auto graph = rank.stream->capture(sums);
      ASSERT_TRUE(graph.ok());
      graphs[number] = *std::move(graph);
      ASSERT_TRUE(graphs[number]->launch(*rank.stream).ok());
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto status = world.communicator(rank).status();
      ASSERT_FALSE(status.ok());
      EXPECT_THAT(status.error().message(),
                  HasSubstr(cat("rank ", missing, " did not come to a sum over ranks within")));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60))
        << "calls that follow a failed one wait, too";
  }
}

// Steps are launched in graphs and without, in turn.
TEST_P(GpuRanksTest, RecordedAndLaunchedCallsTakeTurns) {
  constexpr std::size_t count = 70000;
  constexpr int rounds = 10;
  const auto ones = [](int) { return std::vector<float>(count, 1.0F); };
  const auto arrays = world_->arrays(ones);
  const auto launched = world_->arrays(ones);
  std::vector<std::unique_ptr<tensor::Graph>> graphs(static_cast<std::size_t>(world_->ranks()));
  world_->run([&](Communicator& own, RanksWorld::Rank& rank) {
    const auto i = static_cast<std::size_t>(own.rank());
    const auto sum = [&](const DeviceArray<float>& array) {
      return own.all_reduce(span_of(array), Part::own, {.stream = rank.handle()});
    };
    graphs[i] = rank.stream->capture([&] { return sum(arrays[i]); }).value();
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(graphs[i]->launch(*rank.stream).ok());
      ASSERT_TRUE(sum(launched[i]).ok());
      ASSERT_TRUE(own.barrier(rank.handle()).ok());
    }
  });
  const std::vector<float> expected(
      count, std::pow(static_cast<float>(world_->ranks()), static_cast<float>(rounds)));
  for (const auto* const each : {&arrays, &launched})
    for (const auto& array : *each) ASSERT_TRUE(same(array.read(), expected));
}

}  // namespace
}  // namespace motley::gpu_tests
