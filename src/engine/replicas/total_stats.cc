#include "engine/replicas/total_stats.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace motley::engine {
namespace {

template <class Owner, class... Field>
void add(Owner& all, const Owner& one, Field Owner::*... fields) {
  ((all.*fields += one.*fields), ...);
}

void add_requests(Stats& all, const Stats& one) {
  add(all, one, &Stats::waiting, &Stats::waiting_for_adapters, &Stats::running);
  add(all, one, &Stats::requests, &Stats::refused_queue, &Stats::finished_stop,
      &Stats::finished_length, &Stats::finished_cancelled, &Stats::failed,
      &Stats::non_finite_logits, &Stats::prompt_tokens, &Stats::begun_tokens,
      &Stats::generated_tokens, &Stats::preemptions, &Stats::steps, &Stats::broken_invariants);
  add(all, one, &Stats::queue_time, &Stats::time_to_first_token, &Stats::time_per_token,
      &Stats::request_time, &Stats::prefill_time, &Stats::decode_time, &Stats::running_time,
      &Stats::step_time, &Stats::adapter_wait, &Stats::adapter_load_time);
  add(all, one, &Stats::prompt_lengths, &Stats::answer_lengths);
  add(all, one, &Stats::base_traffic, &Stats::other_adapters);
}

void add_memory(Stats& all, const Stats& one) {
  add(all, one, &Stats::kv_pages, &Stats::kv_pages_used, &Stats::kv_pages_cached);
  add(all, one, &Stats::prefix_lookup_tokens, &Stats::prefix_hit_tokens,
      &Stats::prefix_state_missed_tokens, &Stats::adapter_loads, &Stats::adapter_load_failures,
      &Stats::adapter_replacements, &Stats::adapter_evictions, &Stats::adapter_pages,
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

using Traffic = std::shared_ptr<const AdapterTraffic>;
Traffic united(const Traffic& one, const Traffic& other) {
  if (one == nullptr) return other;
  if (other == nullptr) return one;
  AdapterTraffic both = *one;
  both += *other;
  return std::make_shared<const AdapterTraffic>(both);
}

}  // namespace

AdapterTraffic& AdapterTraffic::operator+=(const AdapterTraffic& other) {
  using Self = AdapterTraffic;
  add(*this, other, &Self::finished_stop, &Self::finished_length, &Self::finished_cancelled,
      &Self::failed, &Self::prompt_tokens, &Self::generated_tokens);
  add(*this, other, &Self::time_to_first_token, &Self::time_per_token);
  return *this;
}

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
      add(all, each, &AdapterInfo::pages, &AdapterInfo::bytes, &AdapterInfo::non_finite_logits);
      add(all, each, &AdapterInfo::running, &AdapterInfo::waiting);
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
