#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "engine/replica.h"
#include "engine/requests/request.h"

namespace motley::engine {

// Chooses the replica of a request: where its adapters and the beginning of its prompt are, unless
// others have much less to do. All is counted in tokens of prompts:
//
//   cost = sequences there x sequence_tokens
//        + adapters to bring there x adapter_tokens
//        - tokens of the prompt that are cached there
//
// The least cost wins; of equal ones the replica that was given the fewest requests, then the
// first. The same calls give the same choices.
//
// Engines' prefix caches belong to their threads, so placement remembers by itself where blocks of
// prompts and adapters were used last. It may be wrong: that costs time and changes no answer.
class Placement {
 public:
  static constexpr std::size_t max_replicas = 64;

  struct Options {
    std::size_t replicas = 2;
    std::int64_t block_tokens = 16;
    // The engines' model keeps states: of a prompt that was there counts as much as its state was
    // saved for, in one piece (Request::reused_up_to).
    bool keeps_states = false;
    // A sequence delays each token of the others; this is about what it costs a new one.
    std::int64_t sequence_tokens = 32;
    // Reading an adapter from the host's memory or a disk, and evicting another for it.
    std::int64_t adapter_tokens = 1024;
    // Blocks and adapters; at most twice as many are remembered.
    std::size_t remembered = std::size_t{1} << 17;
  };

  explicit Placement(const Options& options);

  // Identifies what placement remembers of a request: its adapters, then the blocks of its prompt.
  struct Keys {
    std::vector<std::uint64_t> adapters;
    std::vector<std::uint64_t> blocks;
    std::size_t saved = 0;  // blocks at whose end the prompt's state is saved
  };
  Keys keys_of(const Request& request) const;

  // The replicas that serve, the best first. O(replicas), beside a look at each block.
  std::vector<std::size_t> order(const Keys& keys, std::span<const ReplicaStatus> statuses) const;
  // The replica has accepted the request.
  void place(const Keys& keys, std::size_t replica);
  // The engines have lost what they had computed.
  void forget() {
    newer_.clear();
    older_.clear();
  }

 private:
  using Replicas = std::uint64_t;  // a bit for each

  // Those that had it last; none if it is not remembered.
  Replicas holders(std::uint64_t key) const;
  void remember(std::uint64_t key, Replicas replica);
  // Calls count(replicas, blocks) for replicas that have blocks of the prompt more than before.
  void count_blocks(const Keys& keys, FunctionRef<void(Replicas, std::int64_t)> count) const;

  Options options_;
  std::vector<std::uint64_t> given_;  // requests, by replica
  // The older half is forgotten as a whole when the newer one is full.
  std::unordered_map<std::uint64_t, Replicas> newer_;
  std::unordered_map<std::uint64_t, Replicas> older_;
};

}  // namespace motley::engine
