#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

// How much memory each part of an engine gets, as pure arithmetic. Some sizes are known only after
// earlier parts have their memory, so there are three plans, in the order of loading:
//   weights loaded  -> plan_adapter_pool()
//   pool allocated  -> plan_host_tier(), on a GPU
//   pools allocated -> plan_steps(): rows, states, keys and values; then, on a GPU,
//                      plan_host_snapshots()
// A rank of an engine has its own pool, states, keys and values; all ranks of an engine have equal
// sizes. A GPU's memory is one rank's. The host's memory is divided among all ranks of all
// replicas.
namespace motley::serving {

// What the user asked for; nothing: the plan chooses. Errors name the options.
struct MemorySettings {
  std::optional<std::int64_t> max_model_len = {};         // tokens; nothing: as many as possible
  std::optional<std::int64_t> max_batch_tokens = {};      // nothing: chosen by device
  std::optional<std::uint64_t> adapter_memory = {};       // bytes of each rank
  std::optional<std::uint64_t> adapter_host_memory = {};  // bytes of all ranks, in host memory
  std::optional<std::uint64_t> kv_memory = {};            // bytes of each rank
  // Of a model that keeps states.
  std::optional<std::uint64_t> state_memory = {};  // bytes of each rank, of slots and snapshots
  std::optional<std::uint64_t> state_host_memory = {};  // bytes of all ranks, in host memory
  std::optional<std::int64_t> state_snapshots = {};     // one every so many positions; 0: none
};

struct Machine {
  bool on_gpu = false;
  int ranks = 1;     // of an engine
  int replicas = 1;  // engines
  int cpus = 1;      // that the process may use
};

// Bytes of a rank's pool of adapters. `available`: on the device, without the weights.
std::uint64_t plan_adapter_pool(const Machine& machine, std::uint64_t available,
                                const MemorySettings& asked);

// The pools of adapters of one GPU: on the device, and in host memory.
struct HostTier {
  std::uint64_t pool_bytes = 0;  // of the GPU's pool
  std::uint64_t page_bytes = 0;
  std::uint64_t host_available = 0;  // for all GPUs
};
// Bytes of a rank's pool on the host. Refuses less than a page.
Result<std::uint64_t> plan_host_tier(const Machine& machine, const HostTier& tier,
                                     const MemorySettings& asked);

// The device's memory when the pools of adapters have theirs.
struct DeviceMemory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;      // without the weights, but with the pools
  std::uint64_t adapter_bytes = 0;  // of a rank's pool
};

// What steps of a model need. Bytes are those of a rank.
struct ModelSizes {
  std::int64_t max_positions = 0;
  std::optional<std::int64_t> file_bytes = {};  // of the weights; nothing: not from files
  std::int64_t page_tokens = 1;
  std::int64_t page_bytes = 0;      // of keys and values; 0: the model keeps nothing for a token
  std::int64_t slot_bytes = 0;      // of a sequence's states; 0: the model keeps none
  std::int64_t snapshot_bytes = 0;  // of these states
};

struct StepPlan {
  std::int64_t rows = 0;
  std::int64_t sequences = 0;                   // of a step
  std::int64_t tokens = 0;                      // of a sequence
  std::optional<std::int64_t> logit_rows = {};  // at a time; nothing: the runner's default
  std::int64_t pages = 0;                       // of keys and values, at most
  // Bytes of device memory to leave free, for which there may be fewer pages; nothing: the pages
  // are as many as planned.
  std::optional<std::uint64_t> spare = {};
  std::int64_t state_slots = 0;
  std::int64_t snapshots = 0;
};
// Refuses sizes that hold no page or no sequence's state, options of states for a model without
// them, and sequences longer than the model has positions.
Result<StepPlan> plan_steps(const Machine& machine, const DeviceMemory& memory,
                            const ModelSizes& model, const MemorySettings& asked);

// The places that a GPU's snapshots have in host memory, page-locked at the start; the same number
// on each rank. On a CPU there are none. `available`: of host memory, for all GPUs. Refuses a size
// that holds no snapshot, that the host does not have, or that no snapshot can get to.
Result<std::int64_t> plan_host_snapshots(const Machine& machine, std::uint64_t available,
                                         const ModelSizes& model, const StepPlan& steps,
                                         const MemorySettings& asked);

// Refuses --max-model-len of more tokens than a model has positions.
Result<void> check_max_model_len(std::optional<std::int64_t> asked, std::int64_t max_positions);

// Bytes that all requests may hold at once without --request-memory: at most, and where the process
// may use `total` bytes.
inline constexpr std::uint64_t max_request_memory = std::uint64_t{2} << 30;
std::uint64_t default_request_memory(std::uint64_t total);
// Bytes of pushed adapters' files that are held without --push-memory.
std::uint64_t default_push_memory(std::uint64_t total);

}  // namespace motley::serving
