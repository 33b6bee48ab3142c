#pragma once

#include <chrono>
#include <vector>

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

}  // namespace motley::gpu_tests
