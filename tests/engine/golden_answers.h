#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/golden_engine.h"

// What an engine over a golden is asked, and what its answers are held to, on every device.
namespace motley::engine_tests {

// Requests of all cases with a recorded continuation.
std::vector<engine::Request> greedy_requests(const score_tests::GoldenModel& golden);

std::vector<std::shared_ptr<Answer>> answers_of(GoldenEngine& world,
                                                const std::vector<engine::Request>& requests);

// All adapters in one batch: tokens and log-probabilities of greedy_requests() are the recorded.
void expect_recorded_answers(GoldenEngine& world, const score_tests::GoldenModel& golden,
                             double tolerance);

struct BesideOthers {
  GoldenEngine::Options room;
  std::size_t requests;
  std::int64_t max_tokens;
};

// With these options, every other request drawn by chance: each has the tokens and bits that it has
// alone. How often a sequence was pushed back.
std::uint64_t expect_same_bits_beside_others(score_tests::GoldenModel& golden,
                                             const BesideOthers& others);

// Where the pool has no room for all adapters, and the host has: those that were evicted come back
// from there, and answers have the tokens and bits of before.
void expect_same_bits_from_the_host(score_tests::GoldenModel& golden);
// The plain models with adapters enough for that.
std::vector<std::string> models_with_many_adapters();

// Engines that step, load and unload beside each other, each from a thread of its own: answers have
// the tokens and bits that they have where its engine is alone.
void expect_same_bits_beside_other_engines(std::span<score_tests::GoldenModel* const> goldens);

// Adapters with finite factors that overflow, at every kind of module: their requests fail and say
// so, and those beside and behind them have the tokens and bits that they have alone. On a GPU in
// the batch-invariant mode.
void expect_overflow_ends_alone(score_tests::GoldenModel& golden);

void expect_all_given_back(GoldenEngine& world);

}  // namespace motley::engine_tests
