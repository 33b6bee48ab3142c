#include "server/metrics/metrics.h"

#include <algorithm>

#include "base/cat.h"
#include "server/metrics/adapter_metrics.h"
#include "server/metrics/gateway_metrics.h"
#include "server/metrics/page.h"

namespace motley::server {
namespace {

using engine::Stats;

void write_requests(EngineMetrics& page) {
  page.gauge("motley_sequences_waiting", "Sequences that wait to run.", &Stats::waiting);
  page.gauge("motley_sequences_waiting_for_adapters", "Of these, for an adapter to be ready.",
             &Stats::waiting_for_adapters);
  page.gauge("motley_sequences_running", "Sequences in the batch.", &Stats::running);
  page.counter("motley_requests_total", "Requests accepted.", &Stats::requests);
  page.counter("motley_requests_failed_total", "Requests that failed.", &Stats::failed);
  page.family("motley_choices_total", "counter", "Choices that ended, by reason.");
  page.samples("reason=\"stop\"", &Stats::finished_stop);
  page.samples("reason=\"length\"", &Stats::finished_length);
  page.samples("reason=\"cancelled\"", &Stats::finished_cancelled);
  page.counter("motley_prompt_tokens_total", "Tokens of prompts computed.", &Stats::prompt_tokens);
  page.counter("motley_generated_tokens_total", "Tokens generated.", &Stats::generated_tokens);
  page.counter("motley_preemptions_total", "Sequences pushed back for want of pages.",
               &Stats::preemptions);
  page.counter("motley_steps_total", "Steps of the model.", &Stats::steps);
  page.counter("motley_broken_invariants_total", "Invariants found broken: always 0.",
               &Stats::broken_invariants);
  page.histogram("motley_queue_seconds", "From accepted to running.", &Stats::queue_time);
  page.histogram("motley_time_to_first_token_seconds", "From accepted to the first token.",
                 &Stats::time_to_first_token);
  page.histogram("motley_time_per_token_seconds", "Between the tokens of a choice.",
                 &Stats::time_per_token);
  page.histogram("motley_request_seconds", "From accepted to the end.", &Stats::request_time);
  page.histogram("motley_step_seconds", "A step of the model.", &Stats::step_time);
}

void write_memory(EngineMetrics& page) {
  page.gauge("motley_kv_pages", "Pages of keys and values.", &Stats::kv_pages);
  page.gauge("motley_kv_pages_used", "Of these, used by running sequences.", &Stats::kv_pages_used);
  page.gauge("motley_kv_pages_cached", "Of these, kept for prompts that begin alike.",
             &Stats::kv_pages_cached);
  page.counter("motley_prefix_lookup_tokens_total", "Tokens of prompts looked up in the cache.",
               &Stats::prefix_lookup_tokens);
  page.counter("motley_prefix_hit_tokens_total", "Of these, found.", &Stats::prefix_hit_tokens);
  page.counter(
      "motley_prefix_state_missed_tokens_total",
      "Tokens that were found, and computed again because no state of recurrent layers was left.",
      &Stats::prefix_state_missed_tokens);
}

// Ranks have parts of the same adapters, which may take different numbers of pages.
void write_ranks(EngineMetrics& page) {
  const auto gauge = [&](std::string_view name, std::string_view help, auto member) {
    page.family(name, "gauge", help);
    page.each([&](const Stats& stats, const auto& sample) {
      for (std::size_t rank = 0; rank < stats.ranks.size(); ++rank)
        sample(cat("rank=\"", rank, "\""), stats.ranks[rank].*member);
    });
  };
  gauge("motley_rank_adapter_memory_pages", "Pages of a rank for its parts of adapters.",
        &engine::RankStats::adapter_pages);
  gauge("motley_rank_adapter_memory_pages_free", "Of these, free.",
        &engine::RankStats::adapter_pages_free);
}

void write_grammars(EngineMetrics& page) {
  const auto of = [](auto member) {
    return [member](const Stats& stats) { return stats.grammars.*member; };
  };
  using engine::GrammarStats;
  page.gauge("motley_grammars_queued", "Grammars that wait to be compiled.",
             of(&GrammarStats::queued));
  page.gauge("motley_grammar_helpers", "Processes that each follow a grammar.",
             of(&GrammarStats::helpers));
  page.counter("motley_grammars_compiled_total", "Grammars compiled.", of(&GrammarStats::compiled));
  page.counter("motley_grammars_refused_total", "Grammars whose compilation ended in an error.",
               of(&GrammarStats::refused));
  page.family("motley_grammar_helper_failures_total", "counter",
              "Helpers that were ended, and requests that failed by it.");
  page.samples("reason=\"time\"", of(&GrammarStats::failed_time));
  page.samples("reason=\"memory\"", of(&GrammarStats::failed_memory));
  page.samples("reason=\"crash\"", of(&GrammarStats::failed_crash));
  page.samples("reason=\"rejected\"", of(&GrammarStats::failed_rejected));
}

}  // namespace

void HttpCounts::count(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++counts_[{std::string(route), status}];
}

void HttpCounts::refuse(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++refusals_[std::string(reason)];
}

std::map<std::string, std::uint64_t> HttpCounts::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

std::map<std::pair<std::string, int>, std::uint64_t> HttpCounts::snapshot() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string metrics_page(const engine::Stats& stats, const HttpCounts& http,
                         const ServerFigures& server) {
  MetricsPage page;
  EngineMetrics engines(page, stats);
  if (!stats.replicas.empty())
    engines.gauge("motley_replica_up", "Whether the replica serves; 0: its device has failed.",
                  [](const Stats& replica) { return replica.stopped ? 0 : 1; });
  write_requests(engines);
  write_memory(engines);
  write_adapters(engines);
  const bool has_ranks =
      !stats.ranks.empty() ||
      std::ranges::any_of(stats.replicas, [](const Stats& one) { return !one.ranks.empty(); });
  if (has_ranks) write_ranks(engines);
  write_grammars(engines);
  page.family("motley_http_requests_total", "counter", "Answers by route and status.");
  for (const auto& [key, count] : http.snapshot())
    page.sample(cat("route=\"", key.first, "\",status=\"", key.second, "\""), count);
  page.family("motley_requests_refused_total", "counter",
              "Requests refused for want of room, by reason.");
  page.sample("reason=\"queue\"", stats.refused_queue);
  for (const auto& [reason, count] : http.refusals())
    page.sample(cat("reason=\"", reason, "\""), count);
  page.gauge("motley_request_memory_bytes", "Memory that requests are charged for.",
             server.used_bytes);
  page.gauge("motley_request_memory_limit_bytes", "At most.", server.limit_bytes);
  return std::move(page).take() + gateway_metrics(stats, server.model, server.now);
}

std::string http_metrics(const HttpStats& stats) {
  MetricsPage page;
  page.gauge("motley_http_connections", "Connections that are open.", stats.connections);
  page.family("motley_http_connections_refused_total", "counter",
              "Connections turned away because there were too many, in all or from their address.");
  page.sample("limit=\"all\"", stats.refused_full);
  page.sample("limit=\"address\"", stats.refused_address);
  page.counter("motley_http_connections_evicted_total",
               "Connections closed to make room while they waited for their client.",
               stats.evicted);
  page.gauge("motley_http_body_bytes", "Memory that the bodies of requests hold.",
             stats.body_bytes);
  return std::move(page).take();
}

}  // namespace motley::server
