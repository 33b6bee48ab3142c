#pragma once

#include <cstdint>
#include <vector>

#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "kernels/cuda/experts/plan.h"

namespace motley::gpu_tests {

// Everything that a plan on the device takes. `labels` empty: no token has one.
class DevicePlan {
 public:
  struct Sizes {
    std::int64_t tokens;
    int experts_per_token;
    int experts;
    int tile_places;
  };

  DevicePlan(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& labels,
             int label_count, const Sizes& sizes)
      : ids_(ids),
        labels_(labels),
        by_label_(static_cast<std::size_t>(sizes.tokens)),
        order_(ids.size()),
        tokens_(ids.size()),
        places_(ids.size()),
        expert_begin_(static_cast<std::size_t>(sizes.experts) + 1),
        tile_begin_(static_cast<std::size_t>(sizes.experts) + 1),
        tiles_(tile_bound(ids.size(), sizes.experts, sizes.tile_places)),
        piece_begin_(tile_bound(ids.size(), sizes.experts, sizes.tile_places) + 1),
        pieces_(ids.size()),
        counts_(static_cast<std::size_t>(kernels::cuda::plan_scratch_numbers(
            static_cast<std::int64_t>(ids.size()), sizes.experts))),
        label_count_(label_count) {
    params.tokens = sizes.tokens;
    params.experts_per_token = sizes.experts_per_token;
    params.experts = sizes.experts;
    params.tile_places = sizes.tile_places;
    params.ids = ids_.data();
    if (!labels.empty()) {
      params.labels = labels_.data();
      params.tokens_by_label = by_label_.data();
    }
    params.plan = {.order = order_.data(),
                   .tokens = tokens_.data(),
                   .places = places_.data(),
                   .expert_begin = expert_begin_.data(),
                   .tile_begin = tile_begin_.data(),
                   .tiles = tiles_.data(),
                   .piece_begin = piece_begin_.data(),
                   .pieces = pieces_.data(),
                   .block_counts = counts_.data()};
  }

  void build(StreamHandle stream = default_stream()) {
    if (params.labels != nullptr) {
      kernels::cuda::sort_tokens_by_label(labels_.data(), params.tokens, label_count_,
                                          by_label_.data(), stream);
    }
    kernels::cuda::plan_experts(params, stream);
    ASSERT_TRUE(launches().ok());
  }

  std::vector<std::int32_t> order() const { return order_.read(); }
  std::vector<std::int32_t> tokens() const { return tokens_.read(); }
  std::vector<std::int32_t> places() const { return places_.read(); }
  std::vector<std::int32_t> expert_begin() const { return expert_begin_.read(); }
  std::vector<std::int32_t> tile_begin() const { return tile_begin_.read(); }
  std::vector<kernels::cuda::ExpertTile> tiles() const { return tiles_.read(); }
  std::vector<std::int32_t> piece_begin() const { return piece_begin_.read(); }
  std::vector<kernels::cuda::ExpertPiece> pieces() const { return pieces_.read(); }

  kernels::cuda::PlanExperts params;

 private:
  static std::size_t tile_bound(std::size_t pairs, int experts, int tile_places) {
    return static_cast<std::size_t>(
        kernels::cuda::max_tiles(static_cast<std::int64_t>(pairs), experts, tile_places));
  }

  DeviceArray<std::int32_t> ids_, labels_, by_label_, order_, tokens_, places_, expert_begin_,
      tile_begin_;
  DeviceArray<kernels::cuda::ExpertTile> tiles_;
  DeviceArray<std::int32_t> piece_begin_;
  DeviceArray<kernels::cuda::ExpertPiece> pieces_;
  DeviceArray<std::int32_t> counts_;
  int label_count_;
};

}  // namespace motley::gpu_tests
