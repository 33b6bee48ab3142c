// What engines say of adapters.

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "server/metrics/page_parts.h"

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

// What requests of each adapter come to, with all rows of a family at once; the base has no name.
void write_traffic(EngineMetrics& page) {
  using engine::AdapterTraffic;
  for (const engine::TrafficMetric& first : engine::metrics::traffic) {
    if (!page.family(first)) continue;
    page.each([&](const Stats& stats, const auto& sample) {
      const auto write = [&](std::string_view label, const AdapterTraffic& traffic) {
        for (const engine::TrafficMetric& row : engine::metrics::traffic) {
          if (row.name != first.name) continue;
          row.read(traffic,
                   [&](const auto& value) { sample(joined_labels(label, row.label), value); });
        }
      };
      write("adapter=\"\"", stats.base_traffic);
      for (const engine::AdapterInfo& each : stats.adapters)
        if (each.traffic != nullptr) write(adapter_label(each.name), *each.traffic);
      write("adapter=\"(others)\"", stats.other_adapters);
    });
  }
}

}  // namespace

void write_adapters(EngineMetrics& page) {
  page.gauge("motley_adapters", "Adapters that requests may name.",
             [](const Stats& stats) { return stats.adapters.size(); });
  page.rows(engine::metrics::adapter_loads);
  page.gauge("motley_adapters_broken",
             "Adapters whose files could not be read as they were when they were loaded.",
             [](const Stats& stats) {
               return std::ranges::count_if(stats.adapters, &engine::AdapterInfo::broken);
             });
  write_non_finite(page);
  page.rows(engine::metrics::adapter_memory);
  write_adapter_pages(page);
  write_traffic(page);
}

}  // namespace motley::server
