#include "cli/inspect/fits.h"

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/system/memory.h"
#include "serving/memory_plan.h"
#include "serving/model_sizes.h"

namespace motley::cli {
namespace {

struct Card {
  std::string_view name;
  std::uint64_t bytes;  // that a process finds
};
constexpr std::array cards = {Card{"H100", std::uint64_t{79} << 30},
                              Card{"H200", std::uint64_t{139} << 30}};

struct Fits {
  std::int64_t sequences = 0;
  std::int64_t snapshots = 0;       // of states, on the card
  std::int64_t host_snapshots = 0;  // and on a host with enough memory
  std::int64_t tokens = 0;          // of keys and values; 0 too where the model keeps none
};

// Nothing fits where the weights leave too little.
Fits fits_on(const Card& card, const serving::ModelSizes& sizes, std::uint64_t weight_bytes) {
  if (weight_bytes >= card.bytes) return {};
  const serving::Machine machine{.on_gpu = true};
  const std::uint64_t left = card.bytes - weight_bytes;
  const std::uint64_t adapters = serving::plan_adapter_pool(machine, left, {});
  const auto plan = serving::plan_steps(
      machine, {.total = card.bytes, .available = left, .adapter_bytes = adapters}, sizes, {});
  if (!plan.ok()) return {};
  const auto states = static_cast<std::uint64_t>(plan->state_slots * sizes.slot_bytes +
                                                 plan->snapshots * sizes.snapshot_bytes);
  const std::uint64_t taken = adapters + states + plan->spare.value_or(0);
  if (taken >= left) return {};
  const auto on_host = serving::plan_host_snapshots(
      machine, std::numeric_limits<std::uint64_t>::max(), sizes, *plan, {});
  Fits fits{.sequences = sizes.slot_bytes > 0 ? plan->state_slots : plan->sequences,
            .snapshots = plan->snapshots,
            .host_snapshots = on_host.ok() ? *on_host : 0};
  if (sizes.page_bytes > 0)
    fits.tokens = static_cast<std::int64_t>(left - taken) / sizes.page_bytes * sizes.page_tokens;
  return fits;
}

// Nothing of a model without states.
std::string snapshots_of(const Fits& fits) {
  if (fits.snapshots == 0) return "";
  return cat(", ", fits.snapshots, " snapshots (", fits.host_snapshots, " more on the host)");
}

}  // namespace

void add_fits(const model::Model& model, std::int64_t weight_bytes, Findings& findings) {
  const serving::ModelSizes sizes = serving::sizes_of(model);
  json::Object by_card;
  std::vector<std::string> texts;
  for (const Card& card : cards) {
    const Fits fits = fits_on(card, sizes, static_cast<std::uint64_t>(weight_bytes));
    json::Object numbers;
    numbers.add("sequences", fits.sequences);
    if (model.keeps_states()) {
      numbers.add("snapshots", fits.snapshots);
      numbers.add("host_snapshots", fits.host_snapshots);
    }
    numbers.add("cached_tokens", fits.tokens);
    by_card.add(std::string(card.name), std::move(numbers));
    texts.push_back(fits.sequences == 0
                        ? cat("not on one ", card.name)
                        : cat(fits.sequences, " sequences", snapshots_of(fits), " and ",
                              fits.tokens, " cached tokens on one ", card.name));
  }
  findings.add("fits", std::move(by_card), join(texts, "; "));
}

void add_push_memory(Findings& findings) {
  const auto memory = machine_memory();
  if (!memory.ok()) return;
  findings.add_bytes("push_memory_bytes",
                     static_cast<std::int64_t>(serving::default_push_memory(memory->total)));
}

}  // namespace motley::cli
