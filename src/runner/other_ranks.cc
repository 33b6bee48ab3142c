#include "runner/other_ranks.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "dist/thread_ranks.h"

namespace motley::runner {

Result<std::unique_ptr<OtherRanks>> OtherRanks::create(const Options& options) {
  dist::ChosenRanks ranks;
  Options own = options;
  if (options.gpus.empty()) {
    ranks.group = std::make_unique<dist::ThreadRanks>(
        dist::ThreadRanks::Options{.ranks = options.ranks, .max_wait = options.max_wait});
  } else {
    MOTLEY_CHECK(std::ssize(options.gpus) == options.ranks, "a GPU for each rank");
    if (own.gate == nullptr) own.gate = std::make_shared<dist::LaunchGate>();
    const dist::LaunchGate::Pass pass = own.gate->enter(Way::alone);
    MOTLEY_TRY(ranks,
               dist::create_gpu_ranks(
                   {.gpus = options.gpus, .over = options.over, .max_wait = options.max_wait}));
  }
  return std::unique_ptr<OtherRanks>(new OtherRanks(own, std::move(ranks)));
}

// On GPUs the other ranks' threads look after their steps, so that an error of a GPU ends the group
// while rank 0 waits for it.
OtherRanks::OtherRanks(const Options& options, dist::ChosenRanks ranks)
    : options_(options),
      choice_(std::move(ranks.choice)),
      group_(std::move(ranks.group)),
      parts_(static_cast<std::size_t>(options.ranks - 1)),
      rank_threads_(
          *group_, options.gpus.empty() ? dist::RankThreads::Watch() : [this](int rank) {
            return runner(rank).step_is_done();
          }) {}

Result<void> OtherRanks::load_models(LoadModel load) {
  for (int rank = 1; rank < ranks(); ++rank) {
    Parts& parts = parts_[static_cast<std::size_t>(rank - 1)];
    tensor::DeviceChoice choice{.kind = tensor::DeviceChoice::Kind::cpu};
    if (on_gpus())
      choice = {.kind = tensor::DeviceChoice::Kind::cuda,
                .index = options_.gpus[static_cast<std::size_t>(rank)]};
    MOTLEY_TRY(std::unique_ptr<tensor::Device> device, tensor::open_device(choice, cpu()));
    parts.device = std::make_unique<tensor::MeteredDevice>(std::move(device));
    auto model = load(*parts.device, communicator(rank));
    if (!model.ok()) return std::move(model).error().within(cat("rank ", rank));
    parts.model = *std::move(model);
  }
  return {};
}

lora::Pool::Options OtherRanks::with_shards(lora::Pool::Options options, const Parts& parts) {
  options.other_ranks.clear();
  options.shards = parts.model->base_view().shards();
  // Of uneven parts another backend may compute.
  options.experts = parts.model->factor_layout();
  return options;
}

Result<std::vector<lora::Pool*>> OtherRanks::make_pools(const lora::Pool::Options& options) {
  std::vector<lora::Pool*> pools;
  for (Parts& parts : parts_) {
    parts.runner.reset();  // it uses the last pool
    MOTLEY_TRY(parts.pool, lora::Pool::create(*parts.device, with_shards(options, parts)));
    pools.push_back(parts.pool.get());
  }
  return pools;
}

Result<std::vector<lora::Pool*>> OtherRanks::make_host_pools(const lora::Pool::Options& options) {
  std::vector<lora::Pool*> pools;
  for (Parts& parts : parts_) {
    MOTLEY_TRY(parts.host_pool,
               lora::Pool::create(parts.device->pinned_memory(), with_shards(options, parts)));
    pools.push_back(parts.host_pool.get());
  }
  return pools;
}

Result<void> OtherRanks::make_runners(Runner::Options options) {
  options.others = nullptr;
  options.keep_choices = false;  // all choose the same
  for (Parts& parts : parts_) {
    parts.runner.reset();  // its memory first
    options.adapters = parts.pool.get();
    MOTLEY_TRY(parts.runner, Runner::create(*parts.model, *parts.device, options));
  }
  return {};
}

std::int64_t OtherRanks::pages() const {
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const Parts& parts : parts_) fewest = std::min(fewest, parts.runner->options().pages);
  return fewest;
}

Result<void> OtherRanks::run(Runner& first, Way way,
                             FunctionRef<Result<void>(Runner& runner, int rank)> work) {
  const dist::LaunchGate::Pass pass = dist::LaunchGate::enter(gate(), way);
  const auto on_rank = [&](int rank) { return work(rank == 0 ? first : runner(rank), rank); };
  return rank_threads_.run(on_rank);
}

std::uint64_t OtherRanks::bytes() const {
  std::uint64_t bytes = 0;
  for (const Parts& parts : parts_) bytes += parts.device->usage().bytes;
  return bytes;
}

}  // namespace motley::runner
