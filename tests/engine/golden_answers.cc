#include "engine/golden_answers.h"

#include <algorithm>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/system/files.h"
#include "score/sharded_scores.h"

namespace motley::engine_tests {

using score_tests::at;
using score_tests::cases_of;
using score_tests::GoldenModel;

std::vector<engine::Request> greedy_requests(const GoldenModel& golden) {
  std::vector<engine::Request> requests;
  for (const json::Value& each : cases_of(golden.golden())) {
    if (each.if_object()->find("greedy") != nullptr) requests.push_back(greedy_request(each));
  }
  return requests;
}

std::vector<std::shared_ptr<Answer>> answers_of(GoldenEngine& world,
                                                const std::vector<engine::Request>& requests) {
  std::vector<std::shared_ptr<Answer>> answers;
  for (const engine::Request& request : requests) answers.push_back(world.submit(request));
  for (const auto& answer : answers) answer->wait();
  return answers;
}

void expect_recorded_answers(GoldenEngine& world, const GoldenModel& golden, double tolerance) {
  const std::vector<std::shared_ptr<Answer>> answers = answers_of(world, greedy_requests(golden));
  std::size_t next = 0;
  for (const json::Value& each : cases_of(golden.golden())) {
    const json::Value* const greedy = each.if_object()->find("greedy");
    if (greedy == nullptr) continue;
    const std::string& name = *at(each, "name").if_string();
    const Answer& answer = *answers[next++];
    ASSERT_FALSE(answer.error) << name << ": " << answer.error->message();
    const json::Array& ids = *at(*greedy, "token_ids").if_array();
    const json::Array& logprobs = *at(*greedy, "logprobs").if_array();
    ASSERT_EQ(answer.tokens[0].size(), ids.size()) << name;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(answer.tokens[0][i], ids[i].as_number("id").value()) << name << ", token " << i;
      EXPECT_NEAR(double{answer.logprobs[0][i]}, logprobs[i].as_number("logprob").value(),
                  tolerance)
          << name << ", token " << i;
    }
  }
}

std::uint64_t expect_same_bits_beside_others(GoldenModel& golden, const BesideOthers& others) {
  std::vector<engine::Request> requests = greedy_requests(golden);
  requests.resize(std::min(requests.size(), others.requests));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_tokens = others.max_tokens;
    if (i % 2 == 0) continue;
    // With penalties that know what was drawn before.
    requests[i].sampling.temperature = 0.8F;
    requests[i].sampling.top_p = 0.9F;
    requests[i].sampling.frequency_penalty = 0.5F;
    requests[i].sampling.seed = i;
    requests[i].choices = 2;
  }
  std::vector<std::shared_ptr<Answer>> alone;
  {
    GoldenEngine world(golden, {.prefix_cache = false});
    world.load_adapters();
    for (const engine::Request& request : requests)
      alone.push_back(answers_of(world, {request})[0]);
  }
  GoldenEngine world(golden, others.room);
  world.load_adapters();
  const std::vector<std::shared_ptr<Answer>> beside = answers_of(world, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_FALSE(beside[i]->error) << beside[i]->error->message();
    EXPECT_EQ(beside[i]->tokens, alone[i]->tokens) << "request " << i;
    EXPECT_EQ(beside[i]->logprobs, alone[i]->logprobs) << "request " << i;
  }
  expect_all_given_back(world);
  return world.engine().stats().preemptions;
}

namespace {

// One after the other, so that steps have one size.
std::vector<std::shared_ptr<Answer>> answers_one_by_one(
    GoldenEngine& world, const std::vector<engine::Request>& requests) {
  std::vector<std::shared_ptr<Answer>> answers;
  for (const engine::Request& request : requests)
    answers.push_back(answers_of(world, {request})[0]);
  return answers;
}

void expect_same_answers(const std::vector<std::shared_ptr<Answer>>& got,
                         const std::vector<std::shared_ptr<Answer>>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_FALSE(got[i]->error) << "request " << i << ": " << got[i]->error->message();
    EXPECT_EQ(got[i]->tokens, wanted[i]->tokens) << "request " << i;
    EXPECT_EQ(got[i]->logprobs, wanted[i]->logprobs) << "request " << i;
  }
}

}  // namespace

std::vector<std::string> models_with_many_adapters() {
  constexpr std::size_t few = 2;
  std::vector<std::string> names = score_tests::plain_models();
  std::erase_if(names, [](const std::string& name) {
    return list_folder(score_tests::goldens_folder() / name / "adapters").value().size() <= few;
  });
  return names;
}

void expect_same_bits_from_the_host(GoldenModel& golden) {
  const std::vector<engine::Request> requests = greedy_requests(golden);
  std::vector<std::shared_ptr<Answer>> before;
  std::uint64_t bytes = 0;
  {
    GoldenEngine world(golden, {.prefix_cache = false});
    world.load_adapters();
    before = answers_one_by_one(world, requests);
    const engine::Stats stats = world.engine().stats();
    bytes = (stats.adapter_pages - stats.adapter_pages_free) * stats.adapter_page_bytes;
  }
  GoldenEngine world(golden,
                     {.adapter_bytes = bytes * 2 / 3, .prefix_cache = false, .host_tier = true});
  world.load_adapters();
  const int reads = world.reads();
  for (int round = 0; round < 3; ++round)
    expect_same_answers(answers_one_by_one(world, requests), before);
  EXPECT_EQ(world.reads(), reads) << "what the host keeps is not read again";
  const engine::Stats stats = world.engine().stats();
  EXPECT_GT(stats.adapter_evictions, 3U);
  EXPECT_GT(stats.adapter_host_bytes, 0U);
  expect_all_given_back(world);
}

void expect_same_bits_beside_other_engines(std::span<GoldenModel* const> goldens) {
  std::vector<std::vector<std::shared_ptr<Answer>>> alone;
  std::vector<std::unique_ptr<GoldenEngine>> worlds;
  for (GoldenModel* const golden : goldens) {
    worlds.push_back(std::make_unique<GoldenEngine>(
        *golden, GoldenEngine::Options{.prefix_cache = false, .warm = true}));
    worlds.back()->load_adapters();
    alone.push_back(answers_one_by_one(*worlds.back(), greedy_requests(*golden)));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < goldens.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::vector<engine::Request> requests = greedy_requests(*goldens[i]);
      std::set<std::string> names;
      for (const engine::Request& request : requests)
        for (const lora::ScaledAdapter& adapter : request.adapters) names.insert(adapter.name);
      for (int round = 0; round < 4; ++round) {
        expect_same_answers(answers_one_by_one(*worlds[i], requests), alone[i]);
        for (const std::string& name : names) EXPECT_TRUE(worlds[i]->unload(name).ok()) << name;
        worlds[i]->load_adapters();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& world : worlds) expect_all_given_back(*world);
}

void expect_all_given_back(GoldenEngine& world) {
  world.engine().shutdown(engine::Engine::Drain::finish);
  EXPECT_EQ(world.engine().stats().kv_pages_used, 0);
  EXPECT_EQ(world.pool().usage().pinned_pages, 0);
}

}  // namespace motley::engine_tests
