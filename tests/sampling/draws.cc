#include "sampling/draws.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "grammar/local_cursor.h"
#include "kernels/elementary.h"
#include "ops/sample.h"

namespace motley::sampling_tests {

Draws::Draws(const std::vector<float>& logits)
    : logits_(logits), stream_(device().create_stream().value()) {
  const std::size_t row = logits_.size() * sizeof(float);
  device_logits_ = device().allocate(rows * row).value();
  for (std::size_t i = 0; i < rows; ++i)
    stream_->copy(device_logits_.data() + i * row, logits_.data(), row).value();
  context_ = {.kernels = &device_kernels(), .stream = device_kernels().on(stream_->handle())};
  const std::int64_t scratch =
      ops::sample_scratch_bytes(context_, static_cast<std::int64_t>(rows), vocabulary());
  scratch_.emplace(device().allocate(static_cast<std::size_t>(scratch)).value());
  context_.scratch = &*scratch_;
  batch_ = engine::SamplingBatch::create(device(), {.rows = rows,
                                                    .piece_rows = rows,
                                                    .vocabulary = vocabulary(),
                                                    .sequence_tokens = 64,
                                                    .counted_sequences = rows})
               .value();
}

std::vector<std::int32_t> Draws::step(std::span<engine::SamplingState* const> states) {
  const auto count = static_cast<std::int64_t>(states.size());
  batch_->begin();
  batch_
      ->launch(context_, *stream_,
               device_logits_.view(DType::f32, {static_cast<std::int64_t>(rows), vocabulary()})
                   .slice(0, 0, count),
               states)
      .value();
  batch_->collect(*stream_).value();
  stream_->synchronize().value();
  kernels::cuda_launches(device_kernels()).value();
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(batch_->drawn(i).token);
    if (tokens.back() >= 0) states[static_cast<std::size_t>(i)]->accept(tokens.back());
  }
  return tokens;
}

std::vector<int> Draws::histogram(const Setting& setting, int draws, std::uint64_t first_seed) {
  std::vector<int> seen(logits_.size(), 0);
  std::uint64_t seed = first_seed;
  const std::uint64_t end = first_seed + static_cast<std::uint64_t>(draws);
  while (seed < end) {
    std::vector<engine::SamplingState> states;
    states.reserve(rows);
    for (; seed < end && states.size() < rows; ++seed) states.push_back(state_in(setting, seed));
    std::vector<engine::SamplingState*> all;
    for (engine::SamplingState& state : states) all.push_back(&state);
    for (const std::int32_t token : step(all)) {
      if (token < 0 || static_cast<std::size_t>(token) >= seen.size()) {
        ADD_FAILURE() << "drew " << token;
        return seen;
      }
      ++seen[static_cast<std::size_t>(token)];
    }
  }
  return seen;
}

engine::SamplingState state_in(const Setting& setting, std::uint64_t seed) {
  engine::Request request{.tokens = setting.prompt,
                          .sampling = setting.params,
                          .max_tokens = 32,
                          .end_ids = setting.end_ids,
                          .stop_ids = setting.stop_ids};
  request.sampling.seed = seed;
  std::unique_ptr<grammar::Cursor> grammar;
  if (setting.grammar)
    grammar = std::make_unique<grammar::LocalCursor>(
        grammar::Position(*setting.grammar, setting.end_ids));
  engine::SamplingState state(request, std::move(grammar), 0);
  for (const std::int32_t token : setting.answer) state.accept(token);
  return state;
}

std::vector<std::int32_t> support_of(const std::vector<int>& seen) {
  std::vector<std::int32_t> tokens;
  for (std::size_t id = 0; id < seen.size(); ++id) {
    if (seen[id] > 0) tokens.push_back(static_cast<std::int32_t>(id));
  }
  return tokens;
}

void expect_draws(const std::vector<float>& logits, const Setting& setting, int draws) {
  const std::vector<double> expected = expected_probabilities(logits, setting);
  const std::vector<int> seen = Draws(logits).histogram(setting, draws);
  for (std::size_t id = 0; id < seen.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(seen[id], 0) << "token " << id << " is ruled out";
    } else if (expected[id] * draws >= 30) {
      EXPECT_GT(seen[id], 0) << "token " << id << ", expected " << expected[id] * draws;
    }
  }
  EXPECT_GE(chi_square_p(expected, seen), least_p);
}

std::vector<std::int32_t> drawn_tokens(const std::vector<float>& logits, const Setting& setting,
                                       int draws) {
  return support_of(Draws(logits).histogram(setting, draws));
}

std::vector<float> random_logits(std::size_t count, std::uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

}  // namespace motley::sampling_tests
