#include "dist/thread_ranks.h"

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/test_clock.h"

namespace motley::dist {
namespace {

using testing::HasSubstr;

// Calls body(communicator) on a thread for each rank.
void on_ranks(ThreadRanks& group, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.ranks(); ++rank)
    threads.emplace_back([&, rank] { body(group.rank(rank)); });
  for (std::thread& thread : threads) thread.join();
}

// Numbers whose sum depends on its order.
std::vector<float> numbers_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(rank) * 7919 + static_cast<std::uint32_t>(count));
  std::normal_distribution<float> normal(0, 1e3F);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

std::vector<float> sum_in_order(int ranks, std::size_t count) {
  std::vector<float> sum = numbers_of(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> part = numbers_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += part[i];
  }
  return sum;
}

class Ranks : public testing::TestWithParam<int> {
 protected:
  ThreadRanks group_{{.ranks = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(All, Ranks, testing::Values(1, 2, 3, 4, 8));

TEST_P(Ranks, SumsAreAddedInOrderOfRanks) {
  // Small ones and large ones go different ways; none at all is a sum, too.
  for (const std::size_t count : {0, 1, 5, 1000, 16384, 16385, 100003}) {
    const std::vector<float> expected = sum_in_order(GetParam(), count);
    on_ranks(group_, [&](Communicator& own) {
      std::vector<float> numbers = numbers_of(own.rank(), count);
      ASSERT_TRUE(own.all_reduce(numbers, Communicator::Part::own, {}).ok());
      EXPECT_EQ(numbers, expected);
    });
  }
}

TEST_P(Ranks, ARankWithoutAPartAddsNothing) {
  for (const std::size_t count : {3, 40000}) {
    on_ranks(group_, [&](Communicator& own) {
      const bool last = own.rank() == own.ranks() - 1;
      // What stands there is not read.
      std::vector<float> numbers(count, last ? NAN : 1.0F);
      ASSERT_TRUE(
          own.all_reduce(numbers, last ? Communicator::Part::none : Communicator::Part::own, {})
              .ok());
      EXPECT_EQ(numbers, std::vector<float>(count, static_cast<float>(own.ranks() - 1)));
    });
  }
}

TEST_P(Ranks, MaximaAreThoseOfAllRanks) {
  for (const std::size_t count : {0, 1, 5, 40000}) {
    std::vector<float> expected(count, 0.0F);
    const auto magnitudes = [count](int rank) {
      std::vector<float> numbers = numbers_of(rank, count);
      for (float& number : numbers) number = std::abs(number);
      return numbers;
    };
    // The last of several has no part.
    const int parts = std::max(GetParam() - 1, 1);
    for (int rank = 0; rank < parts; ++rank) {
      const std::vector<float> part = magnitudes(rank);
      for (std::size_t i = 0; i < count; ++i) expected[i] = std::max(expected[i], part[i]);
    }
    on_ranks(group_, [&](Communicator& own) {
      const bool has_part = own.rank() < parts;
      std::vector<float> numbers = has_part ? magnitudes(own.rank()) : std::vector(count, INFINITY);
      ASSERT_TRUE(
          own.all_max(numbers, has_part ? Communicator::Part::own : Communicator::Part::none, {})
              .ok());
      EXPECT_EQ(numbers, expected);
    });
  }
}

// A rank whose numbers are maxima has not left those of the call before.
TEST_P(Ranks, MaximaAndSumsTakeTurns) {
  on_ranks(group_, [&](Communicator& own) {
    for (int call = 0; call < 50; ++call) {
      std::vector<float> largest{static_cast<float>(own.rank() + call)};
      ASSERT_TRUE(own.all_max(largest, Communicator::Part::own, {}).ok());
      ASSERT_EQ(largest[0], static_cast<float>(own.ranks() - 1 + call));
      std::vector<float> sum{1.0F};
      ASSERT_TRUE(own.all_reduce(sum, Communicator::Part::own, {}).ok());
      ASSERT_EQ(sum[0], static_cast<float>(own.ranks()));
    }
  });
}

TEST_P(Ranks, ScatteredSumsAreParts) {
  for (const std::size_t count : {2, 1001}) {
    const std::vector<float> expected = sum_in_order(GetParam(), count);
    on_ranks(group_, [&](Communicator& own) {
      const Range range = deal(static_cast<std::int64_t>(count), own.ranks(), own.rank());
      std::vector<float> sums(static_cast<std::size_t>(range.size()));
      ASSERT_TRUE(own.reduce_scatter(numbers_of(own.rank(), count), sums, {}).ok());
      EXPECT_EQ(sums,
                std::vector<float>(expected.begin() + range.begin, expected.begin() + range.end));
    });
  }
}

TEST_P(Ranks, GathersUnevenColumns) {
  constexpr std::int64_t rows = 3;
  for (const std::int64_t width : {1, 5, 1000}) {
    on_ranks(group_, [&](Communicator& own) {
      const Range columns = deal(width, own.ranks(), own.rank());
      std::vector<float> part;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = columns.begin; column < columns.end; ++column)
          part.push_back(static_cast<float>(row * width + column));
      std::vector<float> all(static_cast<std::size_t>(rows * width), -1.0F);
      const bool takes = own.rank() == 0;
      ASSERT_TRUE(own.all_gather({.rows = rows,
                                  .own = part.data(),
                                  .own_stride = columns.size(),
                                  .width = width,
                                  .columns = columns,
                                  .out = takes ? all.data() : nullptr,
                                  .out_stride = width})
                      .ok());
      for (std::size_t i = 0; takes && i < all.size(); ++i)
        ASSERT_EQ(all[i], static_cast<float>(i));
    });
  }
}

TEST_P(Ranks, GathersPartsInPlace) {
  for (const std::size_t bytes : {0, 1, 16, 40000}) {
    on_ranks(group_, [&](Communicator& own) {
      const auto part_of = [bytes](int rank) {
        return std::string(bytes, static_cast<char>('a' + rank));
      };
      std::string expected;
      for (int rank = 0; rank < own.ranks(); ++rank) expected += part_of(rank);
      std::string parts(expected.size(), '-');
      parts.replace(static_cast<std::size_t>(own.rank()) * bytes, bytes, part_of(own.rank()));
      ASSERT_TRUE(own.gather_parts({.data = reinterpret_cast<std::byte*>(parts.data()),
                                    .bytes = static_cast<std::int64_t>(bytes)})
                      .ok());
      EXPECT_EQ(parts, expected);
    });
  }
}

TEST_P(Ranks, BroadcastsFromAnyRoot) {
  on_ranks(group_, [&](Communicator& own) {
    for (int root = 0; root < own.ranks(); ++root) {
      std::string text = own.rank() == root ? cat("from ", root) : std::string(6, '-');
      ASSERT_TRUE(own.broadcast(std::as_writable_bytes(std::span(text)), root, {}).ok());
      EXPECT_EQ(text, cat("from ", root));
    }
    EXPECT_TRUE(own.barrier({}).ok());
  });
}

TEST_P(Ranks, ManyCallsInARowStayApart) {
  on_ranks(group_, [&](Communicator& own) {
    for (int call = 0; call < 300; ++call) {
      std::vector<float> numbers(static_cast<std::size_t>(call % 7 + 1), static_cast<float>(call));
      ASSERT_TRUE(own.all_reduce(numbers, Communicator::Part::own, {}).ok());
      ASSERT_EQ(numbers.back(), static_cast<float>(call * own.ranks()));
    }
  });
}

TEST_P(Ranks, ARankThatFailsEndsTheCallsOfAllOthers) {
  const int faulty = GetParam() - 1;
  on_ranks(group_, [&](Communicator& own) {
    std::vector<float> numbers(10, 1.0F);
    ASSERT_TRUE(own.all_reduce(numbers, Communicator::Part::own, {}).ok());
    if (own.rank() == faulty) {
      own.fail(Error(ErrorCode::io, "the disk is gone"));
    } else {
      const auto result = own.all_reduce(numbers, Communicator::Part::own, {});
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().message(), cat("the disk is gone (rank ", faulty, ")"));
      EXPECT_EQ(result.error().code(), ErrorCode::io);
    }
    // It stays so, for this rank too.
    EXPECT_FALSE(own.barrier({}).ok());
    EXPECT_FALSE(own.status().ok());
  });
}

TEST(ThreadRanks, ARankThatDoesNotArriveInTimeIsNamed) {
  constexpr std::chrono::seconds max_wait(60);
  test::ScriptedClock clock;
  ThreadRanks group({.ranks = 4, .max_wait = max_wait, .clock = &clock});
  std::thread time([&] {
    clock.wait_for_threads(3, TimePoint(max_wait), "ranks 0, 1 and 3 wait for rank 2");
    clock.advance(max_wait - Duration(1));
    EXPECT_TRUE(group.rank(2).status().ok()) << "it still has time";
    clock.advance(Duration(1));
  });
  on_ranks(group, [&](Communicator& own) {
    if (own.rank() == 2) return;
    std::vector<float> numbers(10, 1.0F);
    const auto result = own.all_reduce(numbers, Communicator::Part::own, {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message(),
              "rank 2 did not come to a sum over ranks within 1 min 00 s");
  });
  time.join();
  // Too late.
  EXPECT_FALSE(group.rank(2).barrier({}).ok());
}

TEST(ThreadRanks, RanksThatDoDifferentThingsAreTold) {
  ThreadRanks group({.ranks = 2});
  on_ranks(group, [&](Communicator& own) {
    std::vector<float> numbers(own.rank() == 0 ? 4 : 5, 1.0F);
    const auto result = own.all_reduce(numbers, Communicator::Part::own, {});
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message(), HasSubstr("a sum over ranks (4) and rank 1 at"));
  });
}

}  // namespace
}  // namespace motley::dist
