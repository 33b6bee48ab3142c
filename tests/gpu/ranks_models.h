#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/ranks_world.h"
#include "score/golden_model.h"
#include "score/sharded_scores.h"

// Whole models on so many GPUs.
namespace motley::gpu_tests {

inline score_tests::GoldenModel::Options on_gpus(int ranks, bool exact = true) {
  const std::vector<int> gpus = gpus_of_ranks(ranks);
  return {
      .exact = exact,
      .device = {.kind = tensor::DeviceChoice::Kind::cuda, .index = gpus.front()},
      .ranks = ranks,
      .gpus = ranks > 1 ? gpus : std::vector<int>(),
      .over = ranks_over(),
      .max_wait = std::chrono::seconds(20),
  };
}

inline score_tests::GoldenModel::Options on_gpus(const score_tests::Layout& layout) {
  score_tests::GoldenModel::Options options = on_gpus(layout.ranks);
  options.expert_groups = layout.groups;
  return options;
}

// Two runs of all cases have the same bits.
inline void expect_repeats(const std::string& model, bool exact) {
  std::vector<std::vector<score_tests::Scored>> runs;
  for (int run = 0; run < 2; ++run) {
    score_tests::GoldenModel golden(model, on_gpus(2, exact));
    runs.push_back(score_tests::score_all(golden));
  }
  for (std::size_t c = 0; c < runs[0].size(); ++c)
    for (std::size_t i = 0; i < runs[0][c].results.size(); ++i) {
      EXPECT_EQ(runs[1][c].results[i].token_logprobs, runs[0][c].results[i].token_logprobs)
          << runs[0][c].name << (exact ? "" : " in bf16");
    }
}

}  // namespace motley::gpu_tests
