#pragma once

#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "dist/communicator.h"
#include "dist/launch_gate.h"
#include "dist/rank_threads.h"
#include "dist/ranks_over.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/runner.h"
#include "tensor/device/metered_device.h"

namespace motley::runner {

// The ranks of an engine beside rank 0: each has threads, its shard of the model, of adapters and
// of keys and values. Rank 0's parts are the caller's, as without other ranks. Every rank lays out
// the same step from the same chunks, so page numbers and rows are the same everywhere.
class OtherRanks {
 public:
  struct Options {
    int ranks = 2;                                 // rank 0 included
    int threads = 1;                               // of each rank
    Duration max_wait = std::chrono::seconds(60);  // the group's
    // Of each rank, the first included; empty: ranks are on the CPU.
    std::vector<int> gpus = {};
    dist::RanksOver over = dist::RanksOver::automatic;  // of GPUs
    // Of all engines of the process. Null: ranks on GPUs make one, those on a CPU need none.
    std::shared_ptr<dist::LaunchGate> gate = {};
  };
  static Result<std::unique_ptr<OtherRanks>> create(const Options& options);

  int ranks() const { return group_->ranks(); }
  bool on_gpus() const { return !options_.gpus.empty(); }
  // What ranks on GPUs exchange numbers over, and why.
  const dist::RanksChoice& choice() const { return choice_; }
  // For the model of that rank (model::LoadOptions::ranks).
  dist::Communicator& communicator(int rank) { return group_->rank(rank); }
  // For the device of any rank.
  tensor::CpuOptions cpu() const { return {.threads = options_.threads}; }

  // These make the others' parts, in this order, each before its counterpart of rank 0 if that
  // names them (lora::Pool::Options::other_ranks, Runner::Options::others).
  using LoadModel = FunctionRef<Result<std::unique_ptr<model::Model>>(tensor::Device& device,
                                                                      dist::Communicator& ranks)>;
  Result<void> load_models(LoadModel load);
  // With the shards of each rank, and otherwise the options: in its device's memory, or in the
  // host's that its device copies from.
  Result<std::vector<lora::Pool*>> make_pools(const lora::Pool::Options& options);
  Result<std::vector<lora::Pool*>> make_host_pools(const lora::Pool::Options& options);
  // Each with its rank's pool, if there are pools. On GPUs each may have fewer pages than the
  // options; rank 0's has at most pages().
  Result<void> make_runners(Runner::Options options);
  // The fewest that a runner has.
  std::int64_t pages() const;

  // Calls work with every rank's runner, each on its own thread; see RankThreads::run(). It goes
  // through the gate, `together` if all that it launches has been launched before.
  using Way = dist::LaunchGate::Way;
  Result<void> run(Runner& first, Way way,
                   FunctionRef<Result<void>(Runner& runner, int rank)> work);
  // For other work that may wait for idle GPUs; null: there is none.
  dist::LaunchGate* gate() const { return options_.gate.get(); }
  // From rank 1 on.
  const model::Model& model(int rank) const { return *at(rank).model; }
  Runner& runner(int rank) { return *parts_[static_cast<std::size_t>(rank - 1)].runner; }
  // Null: the last ones are gone, and new ones are not made yet.
  Runner* runner_if_made(int rank) const { return at(rank).runner.get(); }
  // What the other ranks have allocated.
  std::uint64_t bytes() const;

 private:
  // In order of use.
  struct Parts {
    std::unique_ptr<tensor::MeteredDevice> device;
    std::unique_ptr<model::Model> model;
    std::unique_ptr<lora::Pool> host_pool;
    std::unique_ptr<lora::Pool> pool;
    std::unique_ptr<Runner> runner;
  };
  const Parts& at(int rank) const { return parts_[static_cast<std::size_t>(rank - 1)]; }

  OtherRanks(const Options& options, dist::ChosenRanks ranks);
  // Those of a rank's pool.
  static lora::Pool::Options with_shards(lora::Pool::Options options, const Parts& parts);

  Options options_;
  dist::RanksChoice choice_;
  std::unique_ptr<dist::RankGroup> group_;
  std::vector<Parts> parts_;  // of ranks 1 and on
  dist::RankThreads rank_threads_;
};

}  // namespace motley::runner
