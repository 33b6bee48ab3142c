// What holds of ranks over NCCL beside what holds of all groups.

#include "dist/nccl_ranks.h"

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "engine/golden_answers.h"
#include "gpu/rank_numbers.h"
#include "gpu/ranks_models.h"
#include "score/sharded_scores.h"

namespace motley::gpu_tests {
namespace {

using namespace score_tests;  // NOLINT(google-build-using-namespace): the tests' model and cases
using dist::Communicator;
using dist::RanksOver;
using Part = Communicator::Part;

// A kernel of NCCL waits, or is about to, and has no bound of its own.
TEST(NcclRanks, ARankThatFailsEndsTheWaitsOfARecordedCall) {
  RanksWorld world(2, std::chrono::seconds(60));
  const auto arrays = world.arrays([](int) { return std::vector<float>(70000, 1.0F); });
  std::unique_ptr<tensor::Graph> graph;
  std::latch launched(1);
  world.run([&](Communicator& own, RanksWorld::Rank& rank) {
    if (own.rank() == 1) {
      launched.wait();
      own.fail(Error(ErrorCode::io, "the disk is gone"));
      return;
    }
    auto recorded = rank.stream->capture(
        [&] { return own.all_reduce(span_of(arrays[0]), Part::own, {.stream = rank.handle()}); });
    EXPECT_TRUE(recorded.ok());
    if (recorded.ok()) {
      graph = *std::move(recorded);
      EXPECT_TRUE(graph->launch(*rank.stream).ok());
    }
    launched.count_down();
  });
  EXPECT_EQ(world.communicator(0).status().error().message(), "the disk is gone (rank 1)");
}

// Whatever way a sum takes in either.
TEST(NcclRanks, HaveTheBitsOfPeerRanks) {
  int gpus = 0;
  ASSERT_EQ(cudaGetDeviceCount(&gpus), cudaSuccess);
  for (int ranks = 2; ranks <= std::clamp(gpus, 2, 4); ++ranks) {
    RanksWorld peers(ranks, std::chrono::seconds(20), RanksOver::peers);
    RanksWorld nccl(ranks);
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const std::size_t count : {1, 7, 2048, 65536, 131076, 300001, 9'000'004, 17'000'003}) {
        for (const int without : {-1, 1}) {
          const auto sums_of = [&](RanksWorld& world) {
            const auto arrays = world.arrays([&](int rank) { return numbers_of(rank, count, 3); });
            world.run([&](Communicator& own, RanksWorld::Rank& rank) {
              ASSERT_TRUE(own.all_reduce(span_of(arrays[static_cast<std::size_t>(own.rank())]),
                                         own.rank() == without ? Part::none : Part::own,
                                         {.stream = rank.handle(), .type = type})
                              .ok());
            });
            std::vector<std::vector<float>> sums;
            for (const auto& array : arrays) sums.push_back(array.read());
            return sums;
          };
          const auto wanted = sums_of(peers);
          const auto got = sums_of(nccl);
          for (int rank = 0; rank < ranks; ++rank)
            ASSERT_TRUE(same(got[static_cast<std::size_t>(rank)], wanted[0])) << count;
        }
      }
    }
  }
}

TEST(NcclRanks, RanksThatShareAGpuAreRefused) {
  dist::set_nccl_environment();
  const auto group = dist::NcclRanks::create({.gpus = {0, 0}});
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().message(), "NCCL takes a GPU for each rank (--devices): use fewer ranks");
}

// Plain weights, and some that are quantised; both have adapters.
class RanksOverNccl : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOverNccl,
                         testing::Values("qwen3_moe", "deepseek_v3", "qwen3_moe_fp8"),
                         [](const auto& model) { return model.param; });

TEST_P(RanksOverNccl, EveryCaseIsAsOnOneGpu) {
  GoldenModel one(GetParam(), on_gpus(1));
  GoldenModel two(GetParam(), on_gpus(2));
  EXPECT_EQ(two.others()->choice().over, RanksOver::nccl);
  expect_close(score_all(two), score_all(one), {2});
}

TEST_P(RanksOverNccl, TheBitsAreThoseOfPeers) {
  for (const bool exact : {true, false}) {
    GoldenModel::Options options = on_gpus(2, exact);
    // Quantised as the file says, so ranks take maxima, too.
    options.exact_inputs = false;
    GoldenModel nccl(GetParam(), options);
    options.over = RanksOver::peers;
    GoldenModel peers(GetParam(), options);
    const std::vector<Scored> got = score_all(nccl);
    const std::vector<Scored> wanted = score_all(peers);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t c = 0; c < got.size(); ++c)
      for (std::size_t i = 0; i < got[c].results.size(); ++i) {
        EXPECT_EQ(got[c].results[i].token_logprobs, wanted[c].results[i].token_logprobs)
            << got[c].name << (exact ? "" : " in bf16");
      }
  }
}

// Graphs record NCCL's calls; those of adapters one rank after the other.
TEST(EngineOverNccl, AllAdaptersInOneBatchAreAsRecorded) {
  constexpr double tolerance = 1e-3;  // as on one GPU
  GoldenModel::Options options = on_gpus(2);
  options.pages = 512;
  GoldenModel golden("qwen3_moe", options);
  engine_tests::GoldenEngine world(golden, {});
  world.load_adapters();
  expect_recorded_answers(world, golden, tolerance);
  EXPECT_GT(world.runner().graph_launches(), 0U);
  expect_all_given_back(world);
}

}  // namespace
}  // namespace motley::gpu_tests
