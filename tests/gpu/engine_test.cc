// The engine over whole models on a GPU: what was recorded, the same bits as alone, and steps that
// take nothing once they are warm.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/golden_engine.h"
#include "engine/steady_steps.h"
#include "score/counted_allocations.h"

namespace motley::engine_tests {
namespace {

using score_tests::at;
using score_tests::cases_of;
using score_tests::GoldenModel;

GoldenModel::Options on_gpu(bool exact, bool batch_invariant) {
  return {.exact = exact,
          .pages = 512,
          .device = {.kind = tensor::DeviceChoice::Kind::cuda},
          .batch_invariant = batch_invariant};
}

std::vector<std::shared_ptr<Answer>> answers_of(GoldenEngine& world,
                                                const std::vector<engine::Request>& requests) {
  std::vector<std::shared_ptr<Answer>> answers;
  for (const engine::Request& request : requests) answers.push_back(world.submit(request));
  for (const auto& answer : answers) answer->wait();
  return answers;
}

void expect_all_given_back(GoldenEngine& world) {
  world.engine().shutdown(engine::Engine::Drain::finish);
  EXPECT_EQ(world.engine().stats().kv_pages_used, 0);
  EXPECT_EQ(world.pool().usage().pinned_pages, 0);
}

class GpuEngine : public testing::TestWithParam<std::string> {};

// Sums are in another order than the reference's, as in score_test.cc.
TEST_P(GpuEngine, AllAdaptersInOneBatchAreAsRecorded) {
  constexpr double tolerance = 1e-3;
  GoldenModel golden(GetParam(), on_gpu(true, false));
  GoldenEngine world(golden, {});
  world.load_adapters();
  std::vector<engine::Request> requests;
  for (const json::Value& each : cases_of(golden.golden()))
    requests.push_back(greedy_request(each));
  const std::vector<std::shared_ptr<Answer>> answers = answers_of(world, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const json::Value& each = cases_of(golden.golden())[i];
    const std::string& name = *at(each, "name").if_string();
    const json::Value& greedy = at(each, "greedy");
    ASSERT_FALSE(answers[i]->error) << name << ": " << answers[i]->error->message();
    const json::Array& ids = *at(greedy, "token_ids").if_array();
    const json::Array& logprobs = *at(greedy, "logprobs").if_array();
    ASSERT_EQ(answers[i]->tokens[0].size(), ids.size()) << name;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      EXPECT_EQ(answers[i]->tokens[0][t], ids[t].as_number("id").value()) << name << ", " << t;
      EXPECT_NEAR(double{answers[i]->logprobs[0][t]}, logprobs[t].as_number("logprob").value(),
                  tolerance)
          << name << ", " << t;
    }
  }
  EXPECT_GT(world.runner().graph_launches(), 0U);
  expect_all_given_back(world);
}

// Drawn by chance, on little room, in the batch-invariant mode: tokens and bits as alone.
TEST_P(GpuEngine, NothingBesideChangesABitInTheBatchInvariantMode) {
  for (const bool exact : {true, false}) {
    GoldenModel golden(GetParam(), on_gpu(exact, true));
    std::vector<engine::Request> requests;
    for (const json::Value& each : cases_of(golden.golden())) {
      if (requests.size() == 8) break;
      engine::Request& request = requests.emplace_back(greedy_request(each));
      request.max_tokens = 30;
      if (requests.size() % 2 == 0) continue;
      request.sampling.temperature = 0.8F;
      request.sampling.frequency_penalty = 0.5F;
      request.sampling.seed = requests.size();
      request.choices = 2;
    }
    std::vector<std::shared_ptr<Answer>> alone;
    {
      GoldenEngine world(golden, {.prefix_cache = false});
      world.load_adapters();
      for (const engine::Request& request : requests)
        alone.push_back(answers_of(world, {request})[0]);
    }
    GoldenEngine world(golden, {.max_rows = 7, .max_sequences = 6, .pages = 8});
    world.load_adapters();
    const std::vector<std::shared_ptr<Answer>> beside = answers_of(world, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_FALSE(beside[i]->error) << beside[i]->error->message();
      EXPECT_EQ(beside[i]->tokens, alone[i]->tokens) << "request " << i << ", exact " << exact;
      EXPECT_EQ(beside[i]->logprobs, alone[i]->logprobs) << "request " << i << ", exact " << exact;
    }
    expect_all_given_back(world);
  }
}

TEST_P(GpuEngine, WarmStepsOfEveryKindTakeNoMemory) {
  GoldenModel golden(GetParam(), on_gpu(false, false));
  golden.runner().warm_up().value();
  SteadySteps steps(golden);
  // Once to meet every adapter, and once more to capture what all of them need.
  steps.run();
  steps.run();
  const std::int64_t heap = counted_allocations();
  const std::uint64_t device = golden.device().usage().allocations;
  const std::uint64_t pinned = golden.device().pinned_usage().allocations;
  const std::size_t graphs = golden.runner().graphs();
  steps.run();
  EXPECT_EQ(counted_allocations() - heap, 0);
  EXPECT_EQ(golden.device().usage().allocations - device, 0U);
  EXPECT_EQ(golden.device().pinned_usage().allocations - pinned, 0U);
  EXPECT_EQ(golden.runner().graphs(), graphs);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuEngine, testing::ValuesIn(score_tests::golden_models()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::engine_tests
