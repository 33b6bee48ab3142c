#include "server/metrics.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <tuple>
#include <vector>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"

namespace motley::server {
namespace {

using engine::Stats;

constexpr std::size_t max_adapter_lines = 100;
constexpr std::size_t max_listed_adapters = 256;  // in a label

// Writes families of samples. Label values need no escaping: they are names of adapters, routes and
// numbers.
class Page {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void sample(std::string_view labels, auto value, std::string_view suffix = {}) {
    text_ += cat(name_, suffix, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}", " ",
                 value, "\n");
  }
  void gauge(std::string_view name, std::string_view help, auto value) {
    family(name, "gauge", help);
    sample({}, value);
  }
  void counter(std::string_view name, std::string_view help, auto value) {
    family(name, "counter", help);
    sample({}, value);
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
  std::string_view name_;
};

// Writes what engines count: a sample for each, with its label where there are several.
class EnginePage {
 public:
  EnginePage(Page& page, const engine::Stats& stats) : page_(page) {
    for (std::size_t i = 0; i < stats.replicas.size(); ++i)
      parts_.push_back({cat("replica=\"", i, "\""), &stats.replicas[i]});
    if (parts_.empty()) parts_.push_back({"", &stats});
  }

  // `value` is a member of Stats, or a function of it.
  void gauge(std::string_view name, std::string_view help, auto value) {
    page_.family(name, "gauge", help);
    samples({}, value);
  }
  void counter(std::string_view name, std::string_view help, auto value) {
    page_.family(name, "counter", help);
    samples({}, value);
  }
  void samples(std::string_view labels, auto value) {
    for (const Part& part : parts_)
      page_.sample(joined(part, labels), std::invoke(value, *part.stats));
  }
  void histogram(std::string_view name, std::string_view help,
                 engine::DurationHistogram engine::Stats::* member) {
    page_.family(name, "histogram", help);
    for (const Part& part : parts_) {
      const engine::DurationHistogram& durations = part.stats->*member;
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < durations.bounds.size(); ++i) {
        below += durations.counts[i];
        page_.sample(joined(part, cat("le=\"", durations.bounds[i], "\"")), below, "_bucket");
      }
      page_.sample(joined(part, "le=\"+Inf\""), durations.count, "_bucket");
      page_.sample(part.label, durations.sum, "_sum");
      page_.sample(part.label, durations.count, "_count");
    }
  }
  void family(std::string_view name, std::string_view type, std::string_view help) {
    page_.family(name, type, help);
  }
  // `write` gets each engine's numbers, and writes samples with further labels.
  void each(auto write) {
    for (const Part& part : parts_) {
      const auto sample = [&](std::string_view labels, auto value) {
        page_.sample(joined(part, labels), value);
      };
      write(*part.stats, sample);
    }
  }

 private:
  struct Part {
    std::string label;
    const engine::Stats* stats;
  };

  static std::string joined(const Part& part, std::string_view labels) {
    const bool both = !part.label.empty() && !labels.empty();
    return cat(labels, both ? "," : "", part.label);
  }

  Page& page_;
  std::vector<Part> parts_;
};

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

// How many adapters of the average size of the ready ones fit at once.
std::uint64_t adapters_that_fit(const engine::Stats& stats) {
  std::uint64_t ready = 0;
  std::uint64_t pages = 0;
  for (const engine::AdapterInfo& each : stats.adapters) {
    if (each.pages == 0) continue;
    ++ready;
    pages += each.pages;
  }
  if (ready == 0) return stats.adapters.size();
  return std::max(ready, stats.adapter_pages * ready / pages);
}

// Those that come first have a line of their own, the others one together.
void write_largest(std::span<const engine::AdapterInfo* const> adapters,
                   std::uint64_t engine::AdapterInfo::* count, auto sample) {
  std::uint64_t others = 0;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (i < max_adapter_lines)
      sample(cat("adapter=\"", adapters[i]->name, "\""), adapters[i]->*count);
    else
      others += adapters[i]->*count;
  }
  if (others > 0) sample("adapter=\"(others)\"", others);
}

void write_requests(EnginePage& page) {
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

void write_memory(EnginePage& page) {
  page.gauge("motley_kv_pages", "Pages of keys and values.", &Stats::kv_pages);
  page.gauge("motley_kv_pages_used", "Of these, used by running sequences.", &Stats::kv_pages_used);
  page.gauge("motley_kv_pages_cached", "Of these, kept for prompts that begin alike.",
             &Stats::kv_pages_cached);
  page.counter("motley_prefix_lookup_tokens_total", "Tokens of prompts looked up in the cache.",
               &Stats::prefix_lookup_tokens);
  page.counter("motley_prefix_hit_tokens_total", "Of these, found.", &Stats::prefix_hit_tokens);
}

// By adapter, those with the most failures first; the base has no name.
void write_non_finite(EnginePage& page) {
  page.family("motley_non_finite_logits_total", "counter",
              "Requests that ended because logits were not finite, by adapter.");
  page.each([](const Stats& stats, auto sample) {
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

void write_adapter_pages(EnginePage& page) {
  page.family("motley_adapter_pages", "gauge", "Pages of the largest adapters that are ready.");
  page.each([](const Stats& stats, auto sample) {
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

// Ranks have parts of the same adapters, which may take different numbers of pages.
void write_ranks(EnginePage& page) {
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

void write_adapters(EnginePage& page) {
  page.gauge("motley_adapters", "Adapters that requests may name.",
             [](const Stats& stats) { return stats.adapters.size(); });
  page.counter("motley_adapter_loads_total", "Adapters brought to where steps read them.",
               &Stats::adapter_loads);
  page.counter("motley_adapter_load_failures_total", "Loads that failed.",
               &Stats::adapter_load_failures);
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
}

void write_grammars(EnginePage& page) {
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

// Names and labels that gateways for several servers scrape.
void write_gateway(Page& page, const engine::Stats& stats, double now) {
  page.gauge("vllm:num_requests_waiting", "Sequences that wait to run.", stats.waiting);
  page.gauge("vllm:num_requests_running", "Sequences in the batch.", stats.running);
  page.gauge("vllm:kv_cache_usage_perc", "Share of the pages of keys and values in use, 0 to 1.",
             share(stats.kv_pages_used, stats.kv_pages));
  page.family("vllm:cache_config_info", "gauge", "Pages of keys and values.");
  page.sample(cat("block_size=\"", stats.page_tokens, "\",num_gpu_blocks=\"", stats.kv_pages, "\""),
              1);
  page.family("vllm:lora_requests_info", "gauge",
              "Adapters with running and waiting requests; the value is the time of this.");
  page.sample(cat("max_lora=\"", adapters_that_fit(stats), "\",running_lora_adapters=\"",
                  names_of(stats, &engine::AdapterInfo::running), "\",waiting_lora_adapters=\"",
                  names_of(stats, &engine::AdapterInfo::waiting), "\""),
              now);
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

std::string metrics_page(const engine::Stats& stats, const HttpCounts& http, double now,
                         const RequestMemory& memory) {
  Page page;
  EnginePage engines(page, stats);
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
             memory.used_bytes);
  page.gauge("motley_request_memory_limit_bytes", "At most.", memory.limit_bytes);
  write_gateway(page, stats, now);
  return std::move(page).take();
}

std::string process_metrics(const Watchdog* watchdog) {
  Page page;
  page.counter("motley_log_lines_lost_total",
               "Lines of the log that its reader took too slowly, or that no memory was left for.",
               log::lost());
  page.counter("motley_out_of_memory_total", "Times that memory ended in work for one request.",
               out_of_memory_count());
  const auto stalls =
      watchdog == nullptr ? std::array<std::uint64_t, Watchdog::works>{} : watchdog->stalls();
  page.family("motley_watchdog_stalls_total", "counter",
              "Work that took longer than --watchdog, by what it was.");
  for (std::size_t i = 0; i < stalls.size(); ++i)
    page.sample(cat("what=\"", Watchdog::name(static_cast<Watchdog::Work>(i)), "\""), stalls[i]);
  return std::move(page).take();
}

std::string http_metrics(const HttpStats& stats) {
  Page page;
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
