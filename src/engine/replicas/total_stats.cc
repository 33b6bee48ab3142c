#include "engine/replicas/total_stats.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace motley::engine {
namespace {

DurationHistogram& operator+=(DurationHistogram& all, const DurationHistogram& one) {
  for (std::size_t i = 0; i < all.counts.size(); ++i) all.counts[i] += one.counts[i];
  all.count += one.count;
  all.sum += one.sum;
  return all;
}

template <class Owner, class... Field>
void add(Owner& all, const Owner& one, Field Owner::*... fields) {
  ((all.*fields += one.*fields), ...);
}

void add_requests(Stats& all, const Stats& one) {
  add(all, one, &Stats::waiting, &Stats::waiting_for_adapters, &Stats::running);
  add(all, one, &Stats::requests, &Stats::refused_queue, &Stats::finished_stop,
      &Stats::finished_length, &Stats::finished_cancelled, &Stats::failed,
      &Stats::non_finite_logits, &Stats::prompt_tokens, &Stats::generated_tokens,
      &Stats::preemptions, &Stats::steps, &Stats::broken_invariants);
  add(all, one, &Stats::queue_time, &Stats::time_to_first_token, &Stats::time_per_token,
      &Stats::request_time, &Stats::step_time, &Stats::adapter_wait);
}

void add_memory(Stats& all, const Stats& one) {
  add(all, one, &Stats::kv_pages, &Stats::kv_pages_used, &Stats::kv_pages_cached);
  add(all, one, &Stats::prefix_lookup_tokens, &Stats::prefix_hit_tokens, &Stats::adapter_loads,
      &Stats::adapter_load_failures, &Stats::adapter_evictions, &Stats::adapter_pages,
      &Stats::adapter_pages_free, &Stats::adapter_pages_pinned, &Stats::adapter_host_bytes,
      &Stats::adapter_host_limit_bytes);
}

void add_grammars(GrammarStats& all, const GrammarStats& one) {
  add(all, one, &GrammarStats::queued, &GrammarStats::helpers);
  add(all, one, &GrammarStats::started, &GrammarStats::compiled, &GrammarStats::refused,
      &GrammarStats::failed_time, &GrammarStats::failed_memory, &GrammarStats::failed_crash,
      &GrammarStats::failed_rejected);
}

// The state in which most can be done with it.
AdapterState better(AdapterState one, AdapterState other) {
  const auto rank = [](AdapterState state) {
    if (state == AdapterState::draining) return -1;
    return static_cast<int>(state);
  };
  return rank(one) < rank(other) ? other : one;
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
      add(all, each, &AdapterInfo::pages, &AdapterInfo::non_finite_logits);
      add(all, each, &AdapterInfo::running, &AdapterInfo::waiting);
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
    all.page_tokens = std::max(all.page_tokens, each.page_tokens);
    all.adapter_page_bytes = std::max(all.adapter_page_bytes, each.adapter_page_bytes);
    add_requests(all, each);
    add_memory(all, each);
    add_grammars(all.grammars, each.grammars);
    lists.push_back(&each.adapters);
  }
  all.adapters = united_adapters(lists);
  all.replicas = std::move(replicas);
  return all;
}

}  // namespace motley::engine
