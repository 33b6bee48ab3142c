#include "serving/memory_plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/units.h"
#include "runner/state_plan.h"

namespace motley::serving {
namespace {

constexpr std::int64_t max_sequences = 256;
constexpr std::int64_t max_rows = 512;
// On a CPU the time of a step is proportional to its rows: with more, one request with many choices
// would delay every token of all others by tens of milliseconds.
constexpr std::int64_t max_sequences_per_cpu = 32;
constexpr std::int64_t min_sequences_on_cpus = 64;
// Long prompts would, too. More rows save a read of the weights, which is worth the delay for large
// weights: one row for this many bytes.
constexpr std::int64_t weight_bytes_per_row = std::int64_t{16} << 20;

constexpr std::uint64_t adapter_parts = 8;  // of what weights leave
constexpr std::uint64_t least_adapter_memory = std::uint64_t{64} << 20;
constexpr std::uint64_t host_pages_each = 2;  // for each page of a device
constexpr std::uint64_t host_tier_parts = 2;  // at most one part of the host's free memory
constexpr std::uint64_t state_parts = 5;      // of what weights and adapters leave
// Without --state-host-memory: places on the host for each on the device, in at most one part of
// the host's free memory. The limit of bytes bounds what the start has to page-lock.
constexpr std::int64_t host_snapshots_each = 2;
constexpr std::uint64_t host_snapshot_parts = 4;
constexpr std::uint64_t max_host_snapshot_bytes = std::uint64_t{8} << 30;  // of a rank
// Without --kv-memory: the part of the host's free memory for keys and values, and the part of a
// GPU's memory left to graphs and the driver. Without --request-memory: the part of the host's
// memory for requests.
constexpr std::uint64_t host_parts = 4;
constexpr std::uint64_t gpu_parts_spared = 32;
constexpr std::int64_t min_pages = 2;

constexpr std::string_view max_model_len_option = "--max-model-len";
constexpr std::string_view state_memory_option = "--state-memory";
constexpr std::string_view state_host_memory_option = "--state-host-memory";
constexpr std::string_view state_snapshots_option = "--state-snapshots";

Error wrong(std::string what, std::string_view option, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(option), std::move(fix)};
}

std::uint64_t ranks_of_host(const Machine& machine) {
  return static_cast<std::uint64_t>(machine.ranks) * static_cast<std::uint64_t>(machine.replicas);
}

// Ranks that divide a device's memory.
std::uint64_t ranks_of_memory(const Machine& machine) {
  return machine.on_gpu ? 1 : ranks_of_host(machine);
}

// Other processes may allocate and free memory meanwhile.
std::uint64_t less(std::uint64_t bytes, std::uint64_t part) {
  return bytes - std::min(bytes, part);
}

void plan_rows(const Machine& machine, const ModelSizes& model, const MemorySettings& asked,
               StepPlan& plan) {
  if (machine.on_gpu) {
    plan.rows = asked.max_batch_tokens.value_or(max_rows);
    plan.sequences = std::min(max_sequences, plan.rows);
    // A GPU's step of single tokens is one graph, so all of its logits are computed at once.
    plan.logit_rows = plan.sequences;
    return;
  }
  const std::int64_t for_cpus =
      std::max(min_sequences_on_cpus, max_sequences_per_cpu * machine.cpus / machine.replicas);
  const std::int64_t weights = model.file_bytes.value_or(std::numeric_limits<std::int64_t>::max());
  plan.rows = asked.max_batch_tokens.value_or(
      std::min(max_rows, weights / weight_bytes_per_row + for_cpus));
  plan.sequences = std::min({max_sequences, plan.rows, for_cpus});
}

Result<runner::StatePlan> plan_states(const Machine& machine, const DeviceMemory& memory,
                                      const ModelSizes& model, const MemorySettings& asked,
                                      std::int64_t sequences) {
  if (model.slot_bytes == 0) {
    const auto refused = [](std::string_view given) {
      return wrong("no layer of this model keeps a state for each sequence", given, "leave it out");
    };
    if (asked.state_memory) return refused(state_memory_option);
    if (asked.state_host_memory) return refused(state_host_memory_option);
    if (asked.state_snapshots) return refused(state_snapshots_option);
    return runner::StatePlan{};
  }
  const auto needed = static_cast<std::uint64_t>(model.slot_bytes);
  if (asked.state_memory && *asked.state_memory < needed)
    return wrong(cat(format_bytes(*asked.state_memory), " hold no sequence's state, which takes ",
                     format_bytes(needed)),
                 state_memory_option, "give more, half of it for snapshots");
  const std::uint64_t ranks = ranks_of_memory(machine);
  const std::uint64_t others = memory.adapter_bytes + asked.kv_memory.value_or(0);
  const std::uint64_t otherwise = less(memory.available, others * ranks) / state_parts / ranks;
  return runner::plan_states(asked.state_memory.value_or(otherwise), model.slot_bytes,
                             model.snapshot_bytes, sequences);
}

// Reduces the pages to those that their memory holds, and sequences to these pages.
Result<void> fit_pages(const Machine& machine, const DeviceMemory& memory, const ModelSizes& model,
                       const MemorySettings& asked, StepPlan& plan) {
  // A GPU is used by this process alone: the runner takes what is free in the end.
  if (machine.on_gpu && !asked.kv_memory) {
    plan.spare = memory.total / gpu_parts_spared;
    return {};
  }
  // Host memory is shared.
  const std::uint64_t ranks = ranks_of_host(machine);
  const std::uint64_t bytes = asked.kv_memory.value_or(
      less(memory.available, memory.adapter_bytes * ranks) / host_parts / ranks);
  // Recurrent layers alone keep nothing for a token.
  const auto page = static_cast<std::uint64_t>(std::max<std::int64_t>(model.page_bytes, 1));
  plan.pages = std::min(plan.pages, static_cast<std::int64_t>(bytes / page));
  if (plan.pages < min_pages)
    return Error(ErrorCode::out_of_memory,
                 cat(format_bytes(bytes), " hold no page of keys and values, which takes ",
                     format_bytes(page)),
                 "--kv-memory", "give more, or free some memory");
  plan.tokens = std::min(plan.tokens, plan.pages * model.page_tokens);
  return {};
}

}  // namespace

std::uint64_t plan_adapter_pool(const Machine& machine, std::uint64_t available,
                                const MemorySettings& asked) {
  return asked.adapter_memory.value_or(
      std::max(available / adapter_parts / ranks_of_memory(machine), least_adapter_memory));
}

Result<std::uint64_t> plan_host_tier(const Machine& machine, const HostTier& tier,
                                     const MemorySettings& asked) {
  const auto ranks = static_cast<std::uint64_t>(machine.ranks);
  if (!asked.adapter_host_memory) {
    const std::uint64_t available =
        tier.host_available / ranks / static_cast<std::uint64_t>(machine.replicas);
    return std::max(std::min(host_pages_each * tier.pool_bytes, available / host_tier_parts),
                    tier.page_bytes);
  }
  const std::uint64_t bytes = *asked.adapter_host_memory;
  if (bytes / ranks >= tier.page_bytes) return bytes / ranks;
  const std::string for_ranks = ranks > 1 ? cat(" for each of ", ranks, " ranks") : std::string();
  return Error(ErrorCode::invalid_argument,
               cat(format_bytes(bytes), " hold no page of adapters", for_ranks, ", which takes ",
                   format_bytes(tier.page_bytes)),
               {}, cat("give at least ", format_bytes(tier.page_bytes * ranks)));
}

Result<StepPlan> plan_steps(const Machine& machine, const DeviceMemory& memory,
                            const ModelSizes& model, const MemorySettings& asked) {
  MOTLEY_TRY_VOID(check_max_model_len(asked.max_model_len, model.max_positions));
  StepPlan plan{.tokens = asked.max_model_len.value_or(model.max_positions)};
  plan_rows(machine, model, asked, plan);
  plan.pages = plan.sequences * ((plan.tokens + model.page_tokens - 1) / model.page_tokens);
  MOTLEY_TRY(const runner::StatePlan states,
             plan_states(machine, memory, model, asked, plan.sequences));
  plan.state_slots = states.slots;
  // A snapshot belongs to a page.
  plan.snapshots = std::min(states.snapshots, plan.pages);
  MOTLEY_TRY_VOID(fit_pages(machine, memory, model, asked, plan));
  return plan;
}

Result<std::int64_t> plan_host_snapshots(const Machine& machine, std::uint64_t available,
                                         const ModelSizes& model, const StepPlan& steps,
                                         const MemorySettings& asked) {
  if (!machine.on_gpu || model.snapshot_bytes == 0 || asked.state_host_memory == 0) return 0;
  const auto snapshot = static_cast<std::uint64_t>(model.snapshot_bytes);
  const auto ranks = static_cast<std::uint64_t>(machine.ranks);
  // A snapshot belongs to a page.
  const auto places = [&](std::uint64_t bytes) {
    return std::min(static_cast<std::int64_t>(bytes / snapshot), steps.pages);
  };
  if (!asked.state_host_memory) {
    const std::uint64_t bytes =
        std::min(available / host_snapshot_parts / ranks_of_host(machine), max_host_snapshot_bytes);
    return std::min(places(bytes), host_snapshots_each * steps.snapshots);
  }
  const std::uint64_t bytes = *asked.state_host_memory;
  if (bytes / ranks < snapshot)
    return wrong(cat(format_bytes(bytes), " hold no snapshot",
                     ranks > 1 ? cat(" for each of ", ranks, " ranks") : std::string(),
                     ", which takes ", format_bytes(snapshot)),
                 state_host_memory_option,
                 cat("give at least ", format_bytes(snapshot * ranks), ", or 0 for none"));
  if (bytes > available)
    return Error(ErrorCode::out_of_memory,
                 cat(format_bytes(bytes), " are more than the ", format_bytes(available),
                     " that the host has left"),
                 std::string(state_host_memory_option), "give less, or free some memory");
  if (steps.snapshots == 0)
    return wrong("a snapshot comes to the host from a place on the device, which has none",
                 state_host_memory_option, cat("give more with ", state_memory_option));
  return places(bytes / ranks);
}

Result<void> check_max_model_len(std::optional<std::int64_t> asked, std::int64_t max_positions) {
  if (!asked || *asked <= max_positions) return {};
  return wrong(cat(*asked, " tokens are more than the ", max_positions,
                   " that the model's config.json allows"),
               max_model_len_option, cat("use ", max_positions, " or less, or auto"));
}

std::uint64_t default_request_memory(std::uint64_t total) {
  return std::min(max_request_memory, total / host_parts);
}

std::uint64_t default_push_memory(std::uint64_t total) { return total / host_parts; }

}  // namespace motley::serving
