#include "engine/golden_answers.h"

#include <algorithm>

#include <gtest/gtest.h>

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

std::int64_t expect_same_bits_beside_others(GoldenModel& golden, const BesideOthers& others) {
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

void expect_all_given_back(GoldenEngine& world) {
  world.engine().shutdown(engine::Engine::Drain::finish);
  EXPECT_EQ(world.engine().stats().kv_pages_used, 0);
  EXPECT_EQ(world.pool().usage().pinned_pages, 0);
}

}  // namespace motley::engine_tests
