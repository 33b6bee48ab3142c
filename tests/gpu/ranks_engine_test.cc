// The engine over whole models on two GPUs: what was recorded, by graphs, with adapters that come
// and go.

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/golden_answers.h"
#include "gpu/ranks_world.h"
#include "score/sharded_scores.h"

namespace motley::engine_tests {
namespace {

using score_tests::GoldenModel;

class EngineOnGpus : public testing::TestWithParam<std::string> {
 protected:
  // In float32 where ranks share a GPU, as in ranks_score_test.cc.
  static GoldenModel::Options on_gpus(bool exact) {
    const std::vector<int> gpus = gpu_tests::gpus_of_ranks(2);
    return {.exact = exact || gpus.back() != 1,
            .pages = 512,
            .device = {.kind = tensor::DeviceChoice::Kind::cuda},
            .ranks = 2,
            .gpus = gpus,
            .max_wait = std::chrono::seconds(20)};
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineOnGpus, testing::ValuesIn(score_tests::plain_models()),
                         [](const auto& model) { return model.param; });

TEST_P(EngineOnGpus, AllAdaptersInOneBatchAreAsRecorded) {
  constexpr double tolerance = 1e-3;  // as on one GPU
  GoldenModel golden(GetParam(), on_gpus(true));
  GoldenEngine world(golden, {});
  world.load_adapters();
  expect_recorded_answers(world, golden, tolerance);
  EXPECT_GT(world.runner().graph_launches(), 0U);
  for (int rank = 1; rank < golden.others()->ranks(); ++rank)
    EXPECT_EQ(golden.others()->runner(rank).graph_launches(), world.runner().graph_launches());
  expect_all_given_back(world);
}

TEST_P(EngineOnGpus, AdaptersComeAndGo) {
  GoldenModel golden(GetParam(), on_gpus(false));
  GoldenEngine world(golden, {});
  for (int round = 0; round < 3; ++round) {
    world.load_adapters();
    const auto requests = greedy_requests(golden);
    for (const auto& answer : answers_of(world, requests)) EXPECT_FALSE(answer->error.has_value());
    std::set<std::string> names;
    for (const engine::Request& request : requests)
      for (const lora::ScaledAdapter& adapter : request.adapters) names.insert(adapter.name);
    for (const std::string& name : names) EXPECT_TRUE(world.unload(name).ok()) << name;
  }
  expect_all_given_back(world);
}

class HostTierOfGpus : public EngineOnGpus {};
INSTANTIATE_TEST_SUITE_P(Models, HostTierOfGpus, testing::ValuesIn(models_with_many_adapters()),
                         [](const auto& model) { return model.param; });

TEST_P(HostTierOfGpus, AdaptersThatComeBackHaveTheBitsOfBefore) {
  GoldenModel golden(GetParam(), on_gpus(false));
  expect_same_bits_from_the_host(golden);
}

// Two engines of two ranks each, as replicas of one server: whatever one of them does, the other's
// ranks wait for each other meanwhile.
TEST_P(EngineOnGpus, EnginesAnswerBesideEachOther) {
  const auto gate = std::make_shared<dist::LaunchGate>();
  std::vector<std::unique_ptr<GoldenModel>> goldens;
  std::vector<GoldenModel*> engines;
  for (const std::vector<int>& gpus : gpu_tests::gpus_of_engines()) {
    goldens.push_back(std::make_unique<GoldenModel>(
        GetParam(), GoldenModel::Options{
                        .exact = gpus.front() == gpus.back(),
                        .pages = 512,
                        .device = {.kind = tensor::DeviceChoice::Kind::cuda, .index = gpus.front()},
                        .ranks = 2,
                        .gpus = gpus,
                        .max_wait = std::chrono::seconds(20),
                        .gate = gate}));
    engines.push_back(goldens.back().get());
  }
  expect_same_bits_beside_other_engines(engines);
}

// Graphs that take maxima over ranks give the bits of launches one by one.
TEST(EngineOnGpusRounded, GraphsChangeNoBit) {
  for (const char* const model : {"qwen3_moe_w8a8", "deepseek_v3_fp8"}) {
    SCOPED_TRACE(model);
    std::vector<std::vector<std::vector<float>>> both;
    for (const bool graphs : {true, false}) {
      const std::vector<int> gpus = gpu_tests::gpus_of_ranks(2);
      GoldenModel golden(model, {.exact = gpus.back() != 1,
                                 .exact_inputs = false,
                                 .pages = 512,
                                 .device = {.kind = tensor::DeviceChoice::Kind::cuda},
                                 .batch_invariant = true,
                                 .ranks = 2,
                                 .gpus = gpus,
                                 .max_wait = std::chrono::seconds(20)});
      GoldenEngine world(golden, {.prefix_cache = false, .graphs = graphs});
      world.load_adapters();
      std::vector<std::vector<float>>& answers = both.emplace_back();
      for (const engine::Request& request : greedy_requests(golden)) {
        const auto answer = world.submit(request);
        answer->wait();
        ASSERT_FALSE(answer->error.has_value());
        answers.push_back(answer->logprobs[0]);
      }
      EXPECT_EQ(world.runner().graph_launches() > 0, graphs);
    }
    EXPECT_EQ(both[0], both[1]);
  }
}

// Warmed up, with every size captured: the same tokens again and again.
TEST_P(EngineOnGpus, WarmStepsRepeatBitForBit) {
  GoldenModel golden(GetParam(), on_gpus(false));
  GoldenEngine world(golden, {.prefix_cache = false});
  world.runner().warm_up().value();
  world.load_adapters();
  const auto requests = greedy_requests(golden);
  std::vector<std::vector<float>> first;
  for (int round = 0; round < 3; ++round) {
    // One by one: steps of one size.
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto answer = world.submit(requests[i]);
      answer->wait();
      ASSERT_FALSE(answer->error.has_value());
      if (round == 0) first.push_back(answer->logprobs[0]);
      EXPECT_EQ(answer->logprobs[0], first[i]);
    }
  }
}

}  // namespace
}  // namespace motley::engine_tests
