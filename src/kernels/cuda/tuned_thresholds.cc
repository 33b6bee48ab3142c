#include "kernels/cuda/tuned_thresholds.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/cat.h"

namespace motley::kernels::cuda {
namespace {

constexpr std::string_view record = "--tuning";

Error no_such(std::string_view what, const std::string& name, std::string where,
              const std::vector<std::string>& known) {
  return {ErrorCode::bad_file, cat("there is no ", what, " ", quote(name)), std::move(where),
          cat("make the file again with motley bench MODEL --tune --output F; there are ",
              join(known))};
}

Result<const DenseKernel*> find_dense(const std::string& name, std::string where) {
  std::vector<std::string> known;
  for (const DenseKernel* const kernel : all_dense_kernels()) {
    if (kernel->info.name == name) return kernel;
    known.emplace_back(kernel->info.name);
  }
  return no_such("dense kernel", name, std::move(where), known);
}

Result<GroupedTiles> find_tiles(const std::string& name, std::string where) {
  std::vector<std::string> known;
  for (const GroupedTiles& tiles : all_grouped_tiles) {
    known.push_back(name_of(tiles));
    if (known.back() == name) return tiles;
  }
  return no_such("tiling of experts", name, std::move(where), known);
}

std::int64_t times(std::int64_t rows, std::int64_t count) {
  return rows > Range::none / count ? Range::none : rows * count;
}

}  // namespace

std::string name_of(const GroupedTiles& tiles) {
  constexpr std::array<std::string_view, 3> gathers{"boxes", "copies", "permuted"};
  return cat(count_rows(tiles.rows), "x", tiles.width, " ",
             gathers[static_cast<std::size_t>(tiles.gather)], tiles.sort_inside ? " sort" : "",
             tiles.sum_inside ? " sum" : "");
}

Result<std::unique_ptr<const DeviceThresholds>> DeviceThresholds::make(const Tuning* tuning) {
  std::unique_ptr<DeviceThresholds> made(new DeviceThresholds());
  if (tuning != nullptr) MOTLEY_TRY_VOID(made->add(*tuning));
  std::ranges::copy(dense_thresholds, std::back_inserter(made->dense_));
  std::ranges::copy(grouped::expert_thresholds, std::back_inserter(made->experts_));
  return std::unique_ptr<const DeviceThresholds>(std::move(made));
}

Result<void> DeviceThresholds::add(const Tuning& tuning) {
  for (const TunedDense& each : tuning.dense) {
    const DenseShape& shape = dense_shapes_.emplace_back(each.shape);
    for (const TunedRow& row : each.rows) {
      MOTLEY_TRY(const DenseKernel* const kernel,
                 find_dense(row.kernel,
                            cat(tuning.file, ", dense[", dense_shapes_.size() - 1, "], kernels")));
      dense_.push_back({.kernel = kernel,
                        .record = record,
                        .max_rows = row.up_to,
                        .max_products = kernel->max_products,
                        .shape = &shape});
    }
  }
  for (const TunedExperts& each : tuning.experts) {
    const ExpertLayerShape& layer = layers_.emplace_back(each.shape);
    for (const TunedRow& row : each.rows) {
      MOTLEY_TRY(
          const GroupedTiles tiles,
          find_tiles(row.kernel, cat(tuning.file, ", experts[", layers_.size() - 1, "], kernels")));
      using enum ExpertThreshold::Adapters;
      experts_.push_back({.adapters = layer.adapters ? some : none,
                          .pairs = {.up_to = times(row.up_to, layer.experts_per_token)},
                          .tiles = tiles,
                          .record = record,
                          .layer = &layer});
    }
  }
  return {};
}

}  // namespace motley::kernels::cuda
