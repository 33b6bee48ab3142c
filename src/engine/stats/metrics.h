#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/stats/stats.h"

namespace motley::engine {

enum class MetricKind : std::uint8_t { counter, gauge, histogram, summary };

// What a total over replicas holds.
enum class OverReplicas : std::uint8_t { sum, max };

// A row: a member of what engines count, of one of the types, and how GET /metrics shows it.
template <class Of, class... Types>
struct Metric {
  using Owner = Of;

  std::variant<Types Owner::*...> member;
  MetricKind kind = MetricKind::gauge;
  // Rows of one name are next to each other and differ in their labels. Empty: a function writes
  // the member, or the page does not show it.
  std::string_view name = {};
  std::string_view help = {};
  std::string_view label = {};
  OverReplicas over_replicas = OverReplicas::sum;

  constexpr void read(const Owner& owner, auto use) const {
    std::visit([&](auto of) { use(owner.*of); }, member);
  }
};

using EngineMetric =
    Metric<Figures, std::int64_t, std::uint64_t, DurationHistogram, TokenHistogram>;
using TrafficMetric = Metric<AdapterTraffic, std::uint64_t, DurationSum>;
using RankMetric = Metric<RankStats, std::uint64_t>;
using GrammarMetric = Metric<grammar::Stats, std::uint64_t>;

// Whether every member of the rows' owner has one. Each takes a multiple of 8 bytes, so that there
// is no padding and the sizes of all make up the owner's.
template <class Row>
constexpr bool complete(std::initializer_list<std::span<const Row>> tables) {
  std::vector<decltype(Row::member)> seen;
  std::size_t bytes = 0;
  for (const std::span<const Row> table : tables) {
    for (const Row& row : table) {
      if (std::ranges::find(seen, row.member) != seen.end()) continue;
      seen.push_back(row.member);
      row.read({}, [&](const auto& value) { bytes += sizeof(value); });
    }
  }
  return bytes == sizeof(typename Row::Owner);
}

// Tables in the order of the page. Only the server writes the page, but the names are here, in a
// module below it: total_stats() reads the same rows, so one row is all that a metric needs. A
// member can have two rows, one with motley's name and one with vLLM's (gateway_*).
namespace metrics {

using enum MetricKind;

inline constexpr auto requests = std::to_array<EngineMetric>({
    {&Figures::waiting, gauge, "motley_sequences_waiting", "Sequences that wait to run."},
    {&Figures::waiting_for_adapters, gauge, "motley_sequences_waiting_for_adapters",
     "Of these, for an adapter to be ready."},
    {&Figures::running, gauge, "motley_sequences_running", "Sequences in the batch."},
    {&Figures::requests, counter, "motley_requests_total", "Requests accepted."},
    {&Figures::failed, counter, "motley_requests_failed_total", "Requests that failed."},
    {&Figures::finished_stop, counter, "motley_choices_total", "Choices that ended, by reason.",
     R"(reason="stop")"},
    {&Figures::finished_length, counter, "motley_choices_total", "", R"(reason="length")"},
    {&Figures::finished_cancelled, counter, "motley_choices_total", "", R"(reason="cancelled")"},
    {&Figures::prompt_tokens, counter, "motley_prompt_tokens_total", "Tokens of prompts computed."},
    {&Figures::generated_tokens, counter, "motley_generated_tokens_total", "Tokens generated."},
    {&Figures::preemptions, counter, "motley_preemptions_total",
     "Sequences pushed back for want of pages."},
    {&Figures::steps, counter, "motley_steps_total", "Steps of the model."},
    {&Figures::broken_invariants, counter, "motley_broken_invariants_total",
     "Invariants found broken: always 0."},
    {&Figures::queue_time, histogram, "motley_queue_seconds", "From accepted to running."},
    {&Figures::time_to_first_token, histogram, "motley_time_to_first_token_seconds",
     "From accepted to the first token."},
    {&Figures::time_per_token, histogram, "motley_time_per_token_seconds",
     "Between the tokens of a choice."},
    {&Figures::request_time, histogram, "motley_request_seconds", "From accepted to the end."},
    {&Figures::step_time, histogram, "motley_step_seconds", "A step of the model."},
    {&Figures::refused_queue},
});

inline constexpr auto memory = std::to_array<EngineMetric>({
    {.member = &Figures::page_tokens, .over_replicas = OverReplicas::max},
    {&Figures::kv_pages, gauge, "motley_kv_pages", "Pages of keys and values."},
    {&Figures::kv_pages_used, gauge, "motley_kv_pages_used",
     "Of these, used by running sequences."},
    {&Figures::kv_pages_cached, gauge, "motley_kv_pages_cached",
     "Of these, kept for prompts that begin alike."},
    {&Figures::prefix_lookup_tokens, counter, "motley_prefix_lookup_tokens_total",
     "Tokens of prompts looked up in the cache."},
    {&Figures::prefix_hit_tokens, counter, "motley_prefix_hit_tokens_total", "Of these, found."},
    {&Figures::prefix_state_missed_tokens, counter, "motley_prefix_state_missed_tokens_total",
     "Tokens that were found, and computed again because no state of recurrent layers was left."},
    {&Figures::snapshots, gauge, "motley_state_snapshots",
     "Places for snapshots of recurrent layers' states."},
    {&Figures::snapshots_used, gauge, "motley_state_snapshots_used", "Of these, taken."},
    {&Figures::host_snapshots, gauge, "motley_state_host_snapshots",
     "More such places, in host memory."},
    {&Figures::host_snapshots_used, gauge, "motley_state_host_snapshots_used", "Of these, taken."},
    {&Figures::snapshot_loads, counter, "motley_state_snapshot_loads_total",
     "Snapshots copied from host memory to a sequence that began with them."},
});

inline constexpr auto adapter_loads = std::to_array<EngineMetric>({
    {&Figures::adapter_loads, counter, "motley_adapter_loads_total",
     "Adapters brought to where steps read them."},
    {&Figures::adapter_load_failures, counter, "motley_adapter_load_failures_total",
     "Loads that failed."},
    {&Figures::adapter_replacements, counter, "motley_adapter_replacements_total",
     "Adapters replaced in place."},
    {&Figures::non_finite_logits},
});

inline constexpr auto adapter_memory = std::to_array<EngineMetric>({
    {&Figures::adapter_evictions, counter, "motley_adapter_evictions_total",
     "Idle adapters that made room."},
    {&Figures::adapter_pages, gauge, "motley_adapter_memory_pages", "Pages for adapters."},
    {&Figures::adapter_pages_free, gauge, "motley_adapter_memory_pages_free", "Of these, free."},
    {&Figures::adapter_pages_pinned, gauge, "motley_adapter_memory_pages_pinned",
     "Of these, of adapters that something uses."},
    {&Figures::adapter_pages_replaced, gauge, "motley_adapter_memory_pages_replaced",
     "Of these, of content that was replaced and that requests still use."},
    {&Figures::adapter_page_bytes, gauge, "motley_adapter_page_bytes", "Bytes of such a page.", "",
     OverReplicas::max},
    {&Figures::adapter_host_bytes, gauge, "motley_adapter_host_memory_bytes",
     "Page-locked memory of the host for adapters of all ranks, taken so far."},
    {&Figures::adapter_host_limit_bytes, gauge, "motley_adapter_host_memory_limit_bytes",
     "At most, behind GPUs."},
    {&Figures::adapter_wait, histogram, "motley_adapter_wait_seconds",
     "What requests waited for adapters that were not there."},
});

inline constexpr auto gateway_load = std::to_array<EngineMetric>({
    {&Figures::waiting, gauge, "vllm:num_requests_waiting", "Sequences that wait to run."},
    {&Figures::running, gauge, "vllm:num_requests_running", "Sequences in the batch."},
});

inline constexpr auto gateway_requests = std::to_array<EngineMetric>({
    {&Figures::preemptions, counter, "vllm:num_preemptions_total",
     "Sequences that gave up their pages to others."},
    {&Figures::prefix_lookup_tokens, counter, "vllm:prefix_cache_queries_total",
     "Tokens of prompts looked up in the cache."},
    {&Figures::prefix_hit_tokens, counter, "vllm:prefix_cache_hits_total", "Of these, found."},
    {&Figures::begun_tokens, counter, "vllm:prompt_tokens_total",
     "Tokens of prompts, cached ones included."},
    {&Figures::generated_tokens, counter, "vllm:generation_tokens_total", "Tokens generated."},
    {&Figures::finished_stop, counter, "vllm:request_success_total",
     "Choices that ended, and requests that failed (error), by reason.",
     R"(finished_reason="stop")"},
    {&Figures::finished_length, counter, "vllm:request_success_total", "",
     R"(finished_reason="length")"},
    {&Figures::finished_cancelled, counter, "vllm:request_success_total", "",
     R"(finished_reason="abort")"},
    {&Figures::failed, counter, "vllm:request_success_total", "", R"(finished_reason="error")"},
    {&Figures::time_to_first_token, histogram, "vllm:time_to_first_token_seconds",
     "From accepted to the first token."},
    {&Figures::time_per_token, histogram, "vllm:inter_token_latency_seconds",
     "Between the tokens of a choice."},
    {&Figures::request_time, histogram, "vllm:e2e_request_latency_seconds",
     "From accepted to the end."},
    {&Figures::queue_time, histogram, "vllm:request_queue_time_seconds",
     "From accepted to running."},
    {&Figures::running_time, histogram, "vllm:request_inference_time_seconds",
     "From running to the end."},
    {&Figures::prefill_time, histogram, "vllm:request_prefill_time_seconds",
     "From running to the first token."},
    {&Figures::decode_time, histogram, "vllm:request_decode_time_seconds",
     "From the first token to the last."},
    {&Figures::prompt_lengths, histogram, "vllm:request_prompt_tokens",
     "Tokens of a request's prompt."},
    {&Figures::answer_lengths, histogram, "vllm:request_generation_tokens",
     "Tokens of a request's choices."},
});

inline constexpr auto gateway_adapters = std::to_array<EngineMetric>({
    {&Figures::adapter_load_time, histogram, "vllm:lora_adapter_load_seconds",
     "A load of an adapter from its files or from host memory."},
});

inline constexpr std::initializer_list<std::span<const EngineMetric>> of_engines = {
    requests,     memory,           adapter_loads,   adapter_memory,
    gateway_load, gateway_requests, gateway_adapters};
static_assert(complete<EngineMetric>(of_engines));

// By adapter.
inline constexpr auto traffic = std::to_array<TrafficMetric>({
    {&AdapterTraffic::finished_stop, counter, "motley_adapter_choices_total",
     "Choices that ended, by adapter and reason; the base has no name.", R"(reason="stop")"},
    {&AdapterTraffic::finished_length, counter, "motley_adapter_choices_total", "",
     R"(reason="length")"},
    {&AdapterTraffic::finished_cancelled, counter, "motley_adapter_choices_total", "",
     R"(reason="cancelled")"},
    {&AdapterTraffic::failed, counter, "motley_adapter_requests_failed_total",
     "Requests that failed, by adapter."},
    {&AdapterTraffic::prompt_tokens, counter, "motley_adapter_prompt_tokens_total",
     "Tokens of prompts, cached ones included, by adapter."},
    {&AdapterTraffic::generated_tokens, counter, "motley_adapter_generated_tokens_total",
     "Tokens generated, by adapter."},
    {&AdapterTraffic::time_to_first_token, summary, "motley_adapter_time_to_first_token_seconds",
     "From accepted to the first token, by adapter."},
    {&AdapterTraffic::time_per_token, summary, "motley_adapter_time_per_token_seconds",
     "Between the tokens of a choice, by adapter."},
});
static_assert(complete<TrafficMetric>({traffic}));

inline constexpr auto ranks = std::to_array<RankMetric>({
    {&RankStats::adapter_pages, gauge, "motley_rank_adapter_memory_pages",
     "Pages of a rank for its parts of adapters."},
    {&RankStats::adapter_pages_free, gauge, "motley_rank_adapter_memory_pages_free",
     "Of these, free."},
});
static_assert(complete<RankMetric>({ranks}));

inline constexpr auto grammars = std::to_array<GrammarMetric>({
    {&grammar::Stats::queued, gauge, "motley_grammars_queued",
     "Grammars that wait to be compiled."},
    {&grammar::Stats::helpers, gauge, "motley_grammar_helpers",
     "Processes that each follow a grammar."},
    {&grammar::Stats::started},
    {&grammar::Stats::compiled, counter, "motley_grammars_compiled_total", "Grammars compiled."},
    {&grammar::Stats::refused, counter, "motley_grammars_refused_total",
     "Grammars whose compilation ended in an error."},
    {&grammar::Stats::failed_time, counter, "motley_grammar_helper_failures_total",
     "Helpers that were ended, and requests that failed by it.", R"(reason="time")"},
    {&grammar::Stats::failed_memory, counter, "motley_grammar_helper_failures_total", "",
     R"(reason="memory")"},
    {&grammar::Stats::failed_crash, counter, "motley_grammar_helper_failures_total", "",
     R"(reason="crash")"},
    {&grammar::Stats::failed_rejected, counter, "motley_grammar_helper_failures_total", "",
     R"(reason="rejected")"},
});
static_assert(complete<GrammarMetric>({grammars}));

}  // namespace metrics
}  // namespace motley::engine
