#include "server/metrics/adapter_metrics.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace motley::server {
namespace {

using engine::Stats;

constexpr std::size_t max_adapter_lines = 100;

std::string adapter_label(std::string_view name) { return metric_label("adapter", name); }

// Those that come first have a line of their own, the others one together.
void write_largest(std::span<const engine::AdapterInfo* const> adapters,
                   std::uint64_t engine::AdapterInfo::* count, const auto& sample) {
  std::uint64_t others = 0;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (i < max_adapter_lines)
      sample(adapter_label(adapters[i]->name), adapters[i]->*count);
    else
      others += adapters[i]->*count;
  }
  if (others > 0) sample("adapter=\"(others)\"", others);
}

// By adapter, those with the most failures first; the base has no name.
void write_non_finite(EngineMetrics& page) {
  page.family("motley_non_finite_logits_total", "counter",
              "Requests that ended because logits were not finite, by adapter.");
  page.each([](const Stats& stats, const auto& sample) {
    std::vector<const engine::AdapterInfo*> failing;
    for (const engine::AdapterInfo& each : stats.adapters)
      if (each.non_finite_logits > 0) failing.push_back(&each);
    std::ranges::sort(failing, {}, [](const engine::AdapterInfo* each) {
      return std::pair(-static_cast<std::int64_t>(each->non_finite_logits),
                       std::string_view(each->name));
    });
    sample("adapter=\"\"", stats.non_finite_logits);
    write_largest(failing, &engine::AdapterInfo::non_finite_logits, sample);
  });
}

void write_adapter_pages(EngineMetrics& page) {
  page.family("motley_adapter_pages", "gauge", "Pages that the largest adapters take.");
  page.each([](const Stats& stats, const auto& sample) {
    std::vector<const engine::AdapterInfo*> by_size;
    for (const engine::AdapterInfo& each : stats.adapters)
      if (each.pages > 0) by_size.push_back(&each);
    std::ranges::sort(
        by_size, [](const engine::AdapterInfo* one, const engine::AdapterInfo* other) {
          return std::tie(other->pages, one->name) < std::tie(one->pages, other->name);
        });
    write_largest(by_size, &engine::AdapterInfo::pages, sample);
  });
}

// One family of what requests of each adapter come to; the base has no name.
struct TrafficFamily {
  std::string_view name;
  std::string_view type;
  std::string_view help;
};
void write_traffic(EngineMetrics& page, const TrafficFamily& family, auto write) {
  page.family(family.name, family.type, family.help);
  page.each([&](const Stats& stats, const auto& sample) {
    write("adapter=\"\"", stats.base_traffic, sample);
    for (const engine::AdapterInfo& each : stats.adapters)
      if (each.traffic != nullptr) write(adapter_label(each.name), *each.traffic, sample);
    write("adapter=\"(others)\"", stats.other_adapters, sample);
  });
}

void write_traffic(EngineMetrics& page) {
  using engine::AdapterTraffic;
  write_traffic(page,
                {.name = "motley_adapter_choices_total",
                 .type = "counter",
                 .help = "Choices that ended, by adapter and reason; the base has no name."},
                [](const std::string& label, const AdapterTraffic& traffic, const auto& sample) {
                  sample(cat(label, ",reason=\"stop\""), traffic.finished_stop);
                  sample(cat(label, ",reason=\"length\""), traffic.finished_length);
                  sample(cat(label, ",reason=\"cancelled\""), traffic.finished_cancelled);
                });
  const auto each = [&](const TrafficFamily& family, auto member) {
    write_traffic(page, family,
                  [member](const std::string& label, const AdapterTraffic& traffic,
                           const auto& sample) { sample(label, traffic.*member); });
  };
  each({.name = "motley_adapter_requests_failed_total",
        .type = "counter",
        .help = "Requests that failed, by adapter."},
       &AdapterTraffic::failed);
  each({.name = "motley_adapter_prompt_tokens_total",
        .type = "counter",
        .help = "Tokens of prompts, cached ones included, by adapter."},
       &AdapterTraffic::prompt_tokens);
  each({.name = "motley_adapter_generated_tokens_total",
        .type = "counter",
        .help = "Tokens generated, by adapter."},
       &AdapterTraffic::generated_tokens);
  each({.name = "motley_adapter_time_to_first_token_seconds",
        .type = "summary",
        .help = "From accepted to the first token, by adapter."},
       &AdapterTraffic::time_to_first_token);
  each({.name = "motley_adapter_time_per_token_seconds",
        .type = "summary",
        .help = "Between the tokens of a choice, by adapter."},
       &AdapterTraffic::time_per_token);
}

}  // namespace

void write_adapters(EngineMetrics& page) {
  page.gauge("motley_adapters", "Adapters that requests may name.",
             [](const Stats& stats) { return stats.adapters.size(); });
  page.counter("motley_adapter_loads_total", "Adapters brought to where steps read them.",
               &Stats::adapter_loads);
  page.counter("motley_adapter_load_failures_total", "Loads that failed.",
               &Stats::adapter_load_failures);
  page.counter("motley_adapter_replacements_total", "Adapters replaced in place.",
               &Stats::adapter_replacements);
  page.gauge("motley_adapters_broken",
             "Adapters whose files could not be read as they were when they were loaded.",
             [](const Stats& stats) {
               return std::ranges::count_if(stats.adapters, &engine::AdapterInfo::broken);
             });
  write_non_finite(page);
  page.counter("motley_adapter_evictions_total", "Idle adapters that made room.",
               &Stats::adapter_evictions);
  page.gauge("motley_adapter_memory_pages", "Pages for adapters.", &Stats::adapter_pages);
  page.gauge("motley_adapter_memory_pages_free", "Of these, free.", &Stats::adapter_pages_free);
  page.gauge("motley_adapter_memory_pages_pinned", "Of these, of adapters that something uses.",
             &Stats::adapter_pages_pinned);
  page.gauge("motley_adapter_page_bytes", "Bytes of such a page.", &Stats::adapter_page_bytes);
  page.gauge("motley_adapter_host_memory_bytes",
             "Page-locked memory of the host for adapters of all ranks, taken so far.",
             &Stats::adapter_host_bytes);
  page.gauge("motley_adapter_host_memory_limit_bytes", "At most, behind GPUs.",
             &Stats::adapter_host_limit_bytes);
  page.histogram("motley_adapter_wait_seconds",
                 "What requests waited for adapters that were not there.", &Stats::adapter_wait);
  write_adapter_pages(page);
  write_traffic(page);
}

}  // namespace motley::server
