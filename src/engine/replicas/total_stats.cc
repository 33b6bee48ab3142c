#include "engine/replicas/total_stats.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "engine/stats/metrics.h"

namespace motley::engine {
namespace {

// Sets the members of the rows to the totals over `parts`; `of` returns the owner in a part.
template <class Row>
void set_totals(std::span<const Row> rows, typename Row::Owner& all, const auto& parts, auto of) {
  for (const Row& row : rows) {
    const auto set = [&](auto member) {
      std::remove_cvref_t<decltype(all.*member)> total{};
      for (const auto& part : parts) {
        const auto& value = std::invoke(of, part).*member;
        if constexpr (std::is_integral_v<decltype(total)>) {
          total = row.over_replicas == OverReplicas::max ? std::max(total, value) : total + value;
        } else {
          total += value;
        }
      }
      all.*member = total;
    };
    std::visit(set, row.member);
  }
}

// The state in which most can be done with it.
AdapterState better(AdapterState one, AdapterState other) {
  const auto rank = [](AdapterState state) {
    if (state == AdapterState::closing) return -1;
    return static_cast<int>(state);
  };
  return rank(one) < rank(other) ? other : one;
}

using Traffic = std::shared_ptr<const AdapterTraffic>;
Traffic united(const Traffic& one, const Traffic& other) {
  if (one == nullptr) return other;
  if (other == nullptr) return one;
  auto both = std::make_shared<AdapterTraffic>();
  set_totals<TrafficMetric>(metrics::traffic, *both, std::array{one, other},
                            [](const Traffic& each) -> const auto& { return *each; });
  return both;
}

}  // namespace

std::vector<AdapterInfo> united_adapters(std::span<const std::vector<AdapterInfo>* const> lists) {
  std::map<std::string_view, AdapterInfo> named;
  for (const std::vector<AdapterInfo>* const list : lists) {
    for (const AdapterInfo& each : *list) {
      const auto [found, fresh] = named.try_emplace(each.name, each);
      if (fresh) continue;
      AdapterInfo& all = found->second;
      all.state = better(all.state, each.state);
      all.pinned = all.pinned || each.pinned;
      all.broken = all.broken || each.broken;
      all.pages += each.pages;
      all.bytes += each.bytes;
      all.non_finite_logits += each.non_finite_logits;
      all.running += each.running;
      all.waiting += each.waiting;
      all.on_device = all.on_device || each.on_device;
      all.in_host = all.in_host || each.in_host;
      all.traffic = united(all.traffic, each.traffic);
    }
  }
  std::vector<AdapterInfo> all;
  all.reserve(named.size());
  for (auto& [name, info] : named) all.push_back(std::move(info));
  return all;
}

Stats total_stats(std::vector<Stats> replicas) {
  Stats all;
  std::vector<const std::vector<AdapterInfo>*> lists;
  for (const Stats& each : replicas) {
    all.taken = std::max(all.taken, each.taken);
    lists.push_back(&each.adapters);
  }
  all.adapters = united_adapters(lists);
  for (const std::span<const EngineMetric> table : metrics::of_engines)
    set_totals<EngineMetric>(table, all, replicas, std::identity());
  set_totals<TrafficMetric>(metrics::traffic, all.base_traffic, replicas, &Stats::base_traffic);
  set_totals<TrafficMetric>(metrics::traffic, all.other_adapters, replicas, &Stats::other_adapters);
  set_totals<GrammarMetric>(metrics::grammars, all.grammars, replicas, &Stats::grammars);
  all.replicas = std::move(replicas);
  return all;
}

}  // namespace motley::engine
