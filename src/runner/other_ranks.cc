#include "runner/other_ranks.h"

#include "base/cat.h"

namespace motley::runner {

OtherRanks::OtherRanks(const Options& options)
    : threads_(options.threads),
      group_({.ranks = options.ranks, .max_wait = options.max_wait}),
      parts_(static_cast<std::size_t>(options.ranks - 1)),
      rank_threads_(group_) {}

Result<void> OtherRanks::load_models(LoadModel load) {
  for (int rank = 1; rank < ranks(); ++rank) {
    Parts& parts = parts_[static_cast<std::size_t>(rank - 1)];
    MOTLEY_TRY(std::unique_ptr<tensor::Device> device,
               tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}, cpu()));
    parts.device = std::make_unique<tensor::MeteredDevice>(std::move(device));
    auto model = load(*parts.device, communicator(rank));
    if (!model.ok()) return std::move(model).error().within(cat("rank ", rank));
    parts.model = *std::move(model);
  }
  return {};
}

Result<std::vector<lora::Pool*>> OtherRanks::make_pools(lora::Pool::Options options) {
  std::vector<lora::Pool*> pools;
  options.other_ranks.clear();
  for (Parts& parts : parts_) {
    options.shards = parts.model->base_view().shards();
    MOTLEY_TRY(parts.pool, lora::Pool::create(*parts.device, options));
    pools.push_back(parts.pool.get());
  }
  return pools;
}

Result<void> OtherRanks::make_runners(Runner::Options options) {
  options.others = nullptr;
  for (Parts& parts : parts_) {
    options.adapters = parts.pool.get();
    MOTLEY_TRY(parts.runner, Runner::create(*parts.model, *parts.device, options));
  }
  return {};
}

Result<void> OtherRanks::run(Runner& first,
                             FunctionRef<Result<void>(Runner& runner, int rank)> work) {
  const auto on_rank = [&](int rank) { return work(rank == 0 ? first : runner(rank), rank); };
  return rank_threads_.run(on_rank);
}

std::uint64_t OtherRanks::bytes() const {
  std::uint64_t bytes = 0;
  for (const Parts& parts : parts_) bytes += parts.device->usage().bytes;
  return bytes;
}

}  // namespace motley::runner
