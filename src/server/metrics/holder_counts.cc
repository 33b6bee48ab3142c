#include "server/metrics/holder_counts.h"

#include <utility>

#include "server/metrics/page.h"

namespace motley::server {

void HolderCounts::count(std::string_view holder, const engine::Usage& usage, bool refused) {
  const std::lock_guard held(mutex_);
  auto found = figures_.find(holder);
  if (found == figures_.end())
    found = figures_.try_emplace(std::string(figures_.size() < max_names ? holder : others)).first;
  HolderFigures& figures = found->second;
  ++figures.requests;
  figures.refused += refused ? 1 : 0;
  figures.prompt_tokens += static_cast<std::uint64_t>(usage.prompt_tokens);
  figures.cached_tokens += static_cast<std::uint64_t>(usage.cached_tokens);
  figures.generated_tokens += static_cast<std::uint64_t>(usage.completion_tokens);
}

HolderCounts::Figures HolderCounts::snapshot() const {
  const std::lock_guard held(mutex_);
  return figures_;
}

std::string holder_metrics(const HolderCounts::Figures& figures) {
  MetricsPage page;
  if (figures.empty()) return {};
  for (const HolderMetric& row : metrics::holders) {
    page.family(row);
    for (const auto& [name, counted] : figures)
      row.read(counted,
               [&](std::uint64_t value) { page.sample(metric_label("holder", name), value); });
  }
  return std::move(page).take();
}

}  // namespace motley::server
