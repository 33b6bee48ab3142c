// Adapters whose numbers overflow, beside requests that they must not touch.

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "engine/golden_answers.h"
#include "tensor/safetensors/safetensors.h"

namespace motley::engine_tests {
namespace {

// Where the overflow can appear first: keys and values, the choice of experts, their sums, the
// head.
constexpr std::string_view overflowing[] = {"attention", "router", "experts", "lm_head"};

// The adapter with finite factors of 4e37.
void write_overflowing(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directory(to);
  std::filesystem::copy_file(from / "adapter_config.json", to / "adapter_config.json");
  const auto file = tensor::SafetensorsFile::open(from / "adapter_model.safetensors").value();
  std::vector<std::vector<float>> values;
  std::vector<tensor::NamedTensor> tensors;
  for (const tensor::SafetensorsEntry& entry : file.header().entries) {
    values.emplace_back(static_cast<std::size_t>(entry.shape.elements()), 4e37F);
    tensors.push_back(
        {entry.name, tensor::ConstTensor(std::as_bytes(std::span(values.back())).data(), DType::f32,
                                         entry.shape)});
  }
  tensor::write_safetensors(to / "adapter_model.safetensors", tensors, file.header().metadata)
      .value();
}

std::uint64_t failures_of(GoldenEngine& world, std::string_view adapter) {
  for (const engine::AdapterInfo& each : world.engine().adapters())
    if (each.name == adapter) return each.non_finite_logits;
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

void expect_overflow_ends_alone(score_tests::GoldenModel& golden) {
  std::vector<engine::Request> neighbours = greedy_requests(golden);
  neighbours.resize(std::min<std::size_t>(neighbours.size(), 8));
  const GoldenEngine::Options room{.max_rows = 16, .max_sequences = 12, .pages = 24};
  std::vector<std::shared_ptr<Answer>> alone;
  {
    GoldenEngine world(golden, room);
    world.load_adapters();
    for (const engine::Request& each : neighbours) {
      alone.push_back(world.submit(each));
      alone.back()->wait();
    }
  }
  GoldenEngine world(golden, room);
  world.load_adapters();
  const TemporaryFolder folder;
  std::vector<engine::Request> broken;
  for (const std::string_view adapter : overflowing) {
    const std::string name = cat("overflowing/", adapter);
    write_overflowing(world.path_of(std::string(adapter)), folder / adapter);
    std::promise<Result<void>> loaded;
    world.engine().load_adapter({.name = name, .path = folder / adapter}, false,
                                [&](Result<void> result) { loaded.set_value(std::move(result)); });
    test::get(loaded, "the load is answered").value();
    engine::Request request{.sampling = {.temperature = 0}, .max_tokens = 4};
    request.adapters = {{.name = name}};
    for (std::int32_t token = 0; token < 40; ++token) request.tokens.push_back(token + 3);
    broken.push_back(request);
    request.prompt_logprobs = true;
    request.max_tokens = 0;
    broken.push_back(std::move(request));
  }
  broken[0].choices = 3;
  // Pages of one round are other sequences' in the next.
  constexpr std::uint64_t rounds = 3;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    SCOPED_TRACE(cat("round ", round));
    std::vector<std::shared_ptr<Answer>> failed;
    std::vector<std::shared_ptr<Answer>> answers;
    for (std::size_t i = 0; i < std::max(neighbours.size(), broken.size()); ++i) {
      if (i < broken.size()) failed.push_back(world.submit(broken[i]));
      if (i < neighbours.size()) answers.push_back(world.submit(neighbours[i]));
    }
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const Answer& answer = answers[i]->wait();
      ASSERT_FALSE(answer.error) << answer.error->message();
      EXPECT_EQ(answer.tokens, alone[i]->tokens) << "request " << i;
      EXPECT_EQ(answer.logprobs, alone[i]->logprobs) << "request " << i;
    }
    for (std::size_t i = 0; i < failed.size(); ++i) {
      const Answer& answer = failed[i]->wait();
      ASSERT_TRUE(answer.error) << broken[i].adapters[0].name;
      EXPECT_EQ(answer.error->code(), ErrorCode::not_finite) << answer.error->message();
      EXPECT_NE(answer.error->message().find(broken[i].adapters[0].name), std::string::npos)
          << answer.error->message();
      EXPECT_EQ(answer.cached_tokens, 0) << "what has overflowed is not kept for others";
      for (const std::vector<std::int32_t>& tokens : answer.tokens) EXPECT_TRUE(tokens.empty());
    }
  }
  expect_all_given_back(world);
  for (const engine::Request& each : broken)
    EXPECT_EQ(failures_of(world, each.adapters[0].name), 2 * rounds) << each.adapters[0].name;
  EXPECT_EQ(world.engine().stats().non_finite_logits, 0U);
}

}  // namespace motley::engine_tests
