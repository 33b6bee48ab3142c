#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/layout.h"
#include "lora/pages/pool.h"
#include "lora/pages/test_pool.h"
#include "lora/shard.h"
#include "tensor/device/scripted_device.h"

namespace motley::lora::test {

// Several ranks, each with a device: pools in their memory and behind them pools of the host, for
// adapters of make_adapter(), whose outputs the ranks share out.
class RankPools {
 public:
  static constexpr std::uint64_t page = 1024;
  static constexpr std::int64_t width = 100;

  struct Options {
    int ranks = 2;
    std::uint64_t pages = 0;       // of each device's pool
    std::uint64_t host_pages = 0;  // of each rank's on the host
    std::size_t host_piece = std::size_t{8} << 10;
  };

  explicit RankPools(const Options& options) {
    Pool::Options pool{.page_bytes = page,
                       .poison = true,
                       .spare_bytes = 0,
                       .staging = {.piece_bytes = PageWriter::max_bytes, .pieces = 2}};
    for (int rank = 0; rank < options.ranks; ++rank) {
      shards_.push_back({{.site = {0, Projection::q},
                          .out = dist::deal(width, options.ranks, rank),
                          .in = {0, width}}});
      devices_.push_back(std::make_unique<tensor::test::ScriptedDevice>(rank + 1));
      devices_.back()->set_pinned_pieces(options.host_piece);
    }
    const auto make = [&](std::vector<std::unique_ptr<Pool>>& pools, const auto& create) {
      pools.resize(devices_.size());
      for (std::size_t rank = devices_.size(); rank-- > 0;) {
        pool.shards = shards_[rank];
        pool.other_ranks.clear();
        for (std::size_t other = 1; rank == 0 && other < pools.size(); ++other)
          pool.other_ranks.push_back(pools[other].get());
        pools[rank] = create(*devices_[rank]).value();
      }
    };
    pool.bytes = options.host_pages * page;
    make(host_, [&](auto& device) { return Pool::create(device.pinned_memory(), pool); });
    pool.bytes = options.pages * page;
    pool.directory = true;
    make(pools_,
         [&](auto& device) { return Pool::create(static_cast<tensor::Device&>(device), pool); });
  }
  // Rank 0's first, whose adapters pin the others'.
  ~RankPools() {
    for (auto* const pools : {&pools_, &host_})
      for (auto& pool : *pools) pool.reset();
  }
  RankPools(const RankPools&) = delete;
  RankPools& operator=(const RankPools&) = delete;

  int ranks() const { return static_cast<int>(devices_.size()); }
  Pool& pool(int rank = 0) { return *pools_[static_cast<std::size_t>(rank)]; }
  Pool& host(int rank = 0) { return *host_[static_cast<std::size_t>(rank)]; }
  tensor::test::ScriptedDevice& device(int rank) {
    return *devices_[static_cast<std::size_t>(rank)];
  }

  static Adapter adapter(std::uint32_t number) { return make_adapter(8, width, width, number); }
  // Whether every rank has its part of the adapter.
  bool hold(const Handle& handle, const Adapter& adapter) const {
    for (int rank = 0; rank < ranks(); ++rank)
      if (!holds(handle->shard(rank), shard_of(adapter, shards_[static_cast<std::size_t>(rank)])))
        return false;
    return true;
  }
  void check_invariants() const {
    for (const auto* const pools : {&pools_, &host_})
      for (const auto& pool : *pools) pool->check_invariants();
  }

 private:
  std::vector<std::vector<SiteShard>> shards_;
  std::vector<std::unique_ptr<tensor::test::ScriptedDevice>> devices_;
  std::vector<std::unique_ptr<Pool>> host_;
  std::vector<std::unique_ptr<Pool>> pools_;
};

}  // namespace motley::lora::test
