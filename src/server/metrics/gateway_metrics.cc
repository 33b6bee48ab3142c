// What gateways and dashboards of other servers read.

#include <algorithm>
#include <utility>
#include <vector>

#include "server/metrics/page.h"
#include "server/metrics/page_parts.h"

namespace motley::server {
namespace {

constexpr std::size_t max_listed_adapters = 256;   // in a label
constexpr std::size_t max_loaded_adapters = 4096;  // with a line of their own

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string names_of(const engine::Stats& stats, std::int64_t engine::AdapterInfo::* count) {
  std::vector<const engine::AdapterInfo*> named;
  for (const engine::AdapterInfo& each : stats.adapters)
    if (each.*count > 0) named.push_back(&each);
  // If there are too many, those that most sequences want; in order of name in both cases.
  if (named.size() > max_listed_adapters) {
    std::ranges::sort(named, {}, [&](const engine::AdapterInfo* each) {
      return std::pair(-(each->*count), std::string_view(each->name));
    });
    named.resize(max_listed_adapters);
    std::ranges::sort(named, {}, [](const engine::AdapterInfo* each) { return each->name; });
  }
  std::vector<std::string_view> names;
  for (const engine::AdapterInfo* const each : named) names.push_back(each->name);
  return join(names, ",");
}

// How many adapters fit at once, of the average size of those that are there, or else of all.
// Without any: of a page each.
std::uint64_t adapters_that_fit(const engine::Stats& stats) {
  struct Sizes {
    std::uint64_t adapters = 0;
    std::uint64_t pages = 0;
  };
  Sizes loaded;
  Sizes all;
  for (const engine::AdapterInfo& each : stats.adapters) {
    const auto add = [&](Sizes& sizes) {
      ++sizes.adapters;
      sizes.pages += each.pages;
    };
    add(all);
    if (each.on_device) add(loaded);
  }
  const Sizes& sizes = loaded.pages > 0 ? loaded : all;
  if (sizes.pages == 0) return std::max(stats.adapter_pages, all.adapters);
  return std::max(loaded.adapters, stats.adapter_pages * sizes.adapters / sizes.pages);
}

void write_load(MetricsPage& page, const engine::Stats& stats) {
  page.rows<engine::EngineMetric>(engine::metrics::gateway_load, stats);
  page.gauge("vllm:kv_cache_usage_perc", "Share of the pages of keys and values in use, 0 to 1.",
             share(stats.kv_pages_used, stats.kv_pages));
  page.family("vllm:cache_config_info", "gauge", "Pages of keys and values.");
  page.sample(cat("block_size=\"", stats.page_tokens, "\",num_gpu_blocks=\"", stats.kv_pages, "\""),
              1);
}

// Where the adapters' bytes are: "gpu" is the memory that steps read, on a CPU too; "cpu" is host
// memory before a GPU's.
void write_loaded(MetricsPage& page, const engine::Stats& stats) {
  std::vector<const engine::AdapterInfo*> loaded;
  for (const bool on_device : {true, false}) {
    for (const engine::AdapterInfo& each : stats.adapters)
      if (each.on_device == on_device && (on_device || each.in_host)) loaded.push_back(&each);
  }
  if (loaded.size() > max_loaded_adapters) loaded.resize(max_loaded_adapters);
  page.family("vllm:lora_adapter_loaded", "gauge", "Adapters in memory, each at its best level.");
  for (const engine::AdapterInfo* const each : loaded)
    page.sample(
        cat(metric_label("adapter_name", each->name), ",level=\"", each->on_device ? "gpu" : "cpu",
            "\",pinned=\"", each->pinned ? "true" : "false", "\",rank=\"", each->rank, "\""),
        1);
  page.gauge("vllm:num_gpu_loaded_lora_adapters", "Adapters in the memory that steps read.",
             std::ranges::count_if(stats.adapters, &engine::AdapterInfo::on_device));
  page.gauge("vllm:num_cpu_loaded_lora_adapters", "Adapters in host memory before a GPU's.",
             std::ranges::count_if(stats.adapters, &engine::AdapterInfo::in_host));
  page.gauge("vllm:max_gpu_lora_adapters",
             "Adapters of the present average size that fit in the memory that steps read.",
             adapters_that_fit(stats));
  page.rows<engine::EngineMetric>(engine::metrics::gateway_adapters, stats);
}

}  // namespace

std::string gateway_metrics(const engine::Stats& stats, std::string_view model, double now) {
  MetricsPage page(metric_label("model_name", model));
  write_load(page, stats);
  page.rows<engine::EngineMetric>(engine::metrics::gateway_requests, stats);
  write_loaded(page, stats);
  page.family("vllm:lora_requests_info", "gauge",
              "Adapters with running and waiting requests; the value is the present time.");
  page.sample(cat("max_lora=\"", adapters_that_fit(stats), "\",running_lora_adapters=\"",
                  names_of(stats, &engine::AdapterInfo::running), "\",waiting_lora_adapters=\"",
                  names_of(stats, &engine::AdapterInfo::waiting), "\""),
              now);
  return std::move(page).take();
}

}  // namespace motley::server
