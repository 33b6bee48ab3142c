// What GET /metrics shows.

#include "server/metrics/metrics.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "engine/replicas/total_stats.h"
#include "server/metrics/page.h"

namespace motley::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// Every member has another number, so that one that is shown under a wrong name is found.
engine::Stats filled(std::uint64_t factor) {
  std::uint64_t last = 0;
  const auto set = [&](auto&... numbers) { ((numbers = ++last * factor), ...); };
  const auto observe = [&](auto&... sums) {
    (sums.observe(std::chrono::milliseconds(125 * ++last * factor)), ...);
  };
  const auto fill = [&](engine::AdapterTraffic& of) {
    set(of.finished_stop, of.finished_length, of.finished_cancelled, of.failed, of.prompt_tokens,
        of.generated_tokens);
    observe(of.time_to_first_token, of.time_per_token);
  };
  engine::Stats all;
  set(all.waiting, all.waiting_for_adapters, all.running, all.page_tokens, all.kv_pages,
      all.kv_pages_used, all.kv_pages_cached, all.prefix_lookup_tokens, all.prefix_hit_tokens,
      all.prefix_state_missed_tokens, all.requests, all.refused_queue, all.finished_stop,
      all.finished_length, all.finished_cancelled, all.failed, all.non_finite_logits,
      all.prompt_tokens, all.begun_tokens, all.generated_tokens, all.preemptions, all.steps,
      all.broken_invariants);
  observe(all.queue_time, all.time_to_first_token, all.time_per_token, all.request_time,
          all.prefill_time, all.decode_time, all.running_time, all.step_time);
  all.prompt_lengths.observe(static_cast<double>(++last * factor));
  all.answer_lengths.observe(static_cast<double>(++last * factor));
  set(all.adapter_loads, all.adapter_load_failures, all.adapter_replacements, all.adapter_evictions,
      all.adapter_pages, all.adapter_pages_free, all.adapter_pages_pinned, all.adapter_page_bytes,
      all.adapter_host_bytes, all.adapter_host_limit_bytes);
  observe(all.adapter_load_time, all.adapter_wait);
  engine::AdapterTraffic traffic;
  fill(traffic);
  all.adapters = {{.name = "broken", .rank = 4, .pages = 2, .broken = true, .non_finite_logits = 3},
                  {.name = "ready",
                   .pinned = true,
                   .rank = 8,
                   .on_device = true,
                   .in_host = true,
                   .pages = 5 * factor,
                   .running = 1,
                   .waiting = 2,
                   .traffic = std::make_shared<engine::AdapterTraffic>(traffic)}};
  fill(all.base_traffic);
  fill(all.other_adapters);
  grammar::Stats& grammars = all.grammars;
  set(grammars.queued, grammars.helpers, grammars.started, grammars.compiled, grammars.refused,
      grammars.failed_time, grammars.failed_memory, grammars.failed_crash,
      grammars.failed_rejected);
  all.ranks.resize(2);
  for (engine::RankStats& rank : all.ranks) set(rank.adapter_pages, rank.adapter_pages_free);
  set(all.snapshots, all.snapshots_used, all.host_snapshots, all.host_snapshots_used,
      all.snapshot_loads);
  set(all.adapter_pages_replaced);
  return all;
}

// The lines without buckets, which would be most of them.
std::string without_buckets(const std::string& page) {
  std::istringstream lines(page);
  std::string kept;
  for (std::string line; std::getline(lines, line);)
    if (line.find("_bucket{") == std::string::npos) kept += line + '\n';
  return kept;
}

// The whole page, of two replicas and of their sums: names, help, order and numbers are what users
// rely on.
TEST(Metrics, PageIsAsRecorded) {
  HttpCounts http;
  http.count("/v1/models", 200);
  http.refuse(ErrorCode::busy);
  const ServerFigures server = {.model = "base", .now = 1.5, .used_bytes = 7, .limit_bytes = 9};
  engine::Stats all = engine::total_stats({filled(1), filled(1000)});
  const std::string replicas = metrics_page(all, http, server);
  all.replicas.clear();
  const std::string sums = metrics_page(all, http, server);
  const auto recorded = read_text(MOTLEY_METRICS_PAGE, 1 << 20);
  ASSERT_TRUE(recorded.ok()) << recorded.error().message();
  EXPECT_EQ(without_buckets(cat(replicas, "\n", sums)), *recorded);
}

TEST(Metrics, LinesOfAdaptersAreBounded) {
  engine::Stats stats;
  for (int i = 0; i < 300; ++i)
    stats.adapters.push_back({.name = cat("a", i), .pages = 1, .running = i < 2 ? 1 : 0});
  stats.adapters[250].pages = 9;
  const std::string page = metrics_page(stats, HttpCounts(), {.model = "base", .now = 1.5});
  EXPECT_THAT(page, HasSubstr("motley_adapter_pages{adapter=\"a250\"} 9\n"));
  EXPECT_THAT(page, HasSubstr("motley_adapter_pages{adapter=\"(others)\"} 200\n"));
  EXPECT_THAT(page, Not(HasSubstr("adapter=\"a299\"")));
  EXPECT_THAT(page, HasSubstr("running_lora_adapters=\"a0,a1\",waiting_lora_adapters=\"\"} 1.5\n"));
}

TEST(Metrics, ReplicasHaveALabel) {
  engine::Stats one;
  one.waiting = 3;
  one.steps = 5;
  one.adapters = {{.name = "a", .pages = 2, .running = 1}};
  one.step_time.observe(std::chrono::milliseconds(3));
  EXPECT_THAT(metrics_page(one, HttpCounts(), {.model = "base", .now = 1.5}),
              Not(HasSubstr("replica")));
  engine::Stats other = one;
  other.waiting = 4;
  other.stopped = true;
  const engine::Stats all = engine::total_stats({one, other});
  const std::string page = metrics_page(all, HttpCounts(), {.model = "base", .now = 1.5});
  for (const char* const line :
       {"motley_sequences_waiting{replica=\"0\"} 3", "motley_sequences_waiting{replica=\"1\"} 4",
        "motley_steps_total{replica=\"1\"} 5", "motley_replica_up{replica=\"0\"} 1",
        "motley_replica_up{replica=\"1\"} 0",
        "motley_choices_total{reason=\"stop\",replica=\"1\"} 0",
        "motley_step_seconds_bucket{le=\"0.005\",replica=\"0\"} 1",
        "motley_step_seconds_count{replica=\"1\"} 1",
        "motley_adapter_pages{adapter=\"a\",replica=\"1\"} 2",
        "vllm:num_requests_waiting{model_name=\"base\"} 7"})
    EXPECT_THAT(page, HasSubstr(cat("\n", line, "\n")));
  EXPECT_THAT(page, HasSubstr("running_lora_adapters=\"a\""));
}

TEST(Metrics, NamesInALabelAreBounded) {
  engine::Stats stats;
  for (int i = 0; i < 1000; ++i)
    stats.adapters.push_back({.name = cat("a", i + 1000), .waiting = i < 800 ? 1 : 2});
  const std::string page = metrics_page(stats, HttpCounts(), {.model = "base", .now = 1.5});
  const std::size_t begin = page.find("waiting_lora_adapters=\"");
  const std::string label = page.substr(begin, page.find('}', begin) - begin);
  EXPECT_EQ(std::ranges::count(label, ','), 255);
  // All those that two sequences wait for, and the first of the others.
  EXPECT_THAT(label, HasSubstr("=\"a1000,a1001,"));
  EXPECT_THAT(label, HasSubstr(",a1055,a1800,"));
  EXPECT_TRUE(label.ends_with(",a1999\""));
}

TEST(Metrics, SayWhereAdaptersAre) {
  engine::Stats stats;
  stats.adapter_pages = 12;
  stats.adapters = {{.name = "absent", .rank = 4, .pages = 40},
                    {.name = "host", .rank = 8, .in_host = true},
                    {.name = "ready",
                     .pinned = true,
                     .rank = 16,
                     .on_device = true,
                     .in_host = true,
                     .pages = 4}};
  stats.adapter_load_time.observe(std::chrono::milliseconds(30));
  const std::string page = metrics_page(stats, HttpCounts(), {.model = "b\"1\"", .now = 1.5});
  const std::string model = R"(model_name="b\"1\"")";
  for (const std::string& line :
       {cat("vllm:lora_adapter_loaded{", model,
            R"(,adapter_name="ready",level="gpu",pinned="true",rank="16"} 1)"),
        cat("vllm:lora_adapter_loaded{", model,
            R"(,adapter_name="host",level="cpu",pinned="false",rank="8"} 1)"),
        cat("vllm:num_gpu_loaded_lora_adapters{", model, "} 1"),
        cat("vllm:num_cpu_loaded_lora_adapters{", model, "} 2"),
        cat("vllm:max_gpu_lora_adapters{", model, "} 3"),
        cat("vllm:lora_adapter_load_seconds_bucket{", model, R"(,le="0.02"} 0)"),
        cat("vllm:lora_adapter_load_seconds_bucket{", model, R"(,le="0.03"} 1)"),
        cat("vllm:lora_adapter_load_seconds_count{", model, "} 1")})
    EXPECT_THAT(page, HasSubstr(cat("\n", line, "\n")));
  EXPECT_THAT(page, Not(HasSubstr("adapter_name=\"absent\"")));
  // Without adapters there is room all the same.
  stats.adapters.clear();
  EXPECT_THAT(metrics_page(stats, HttpCounts(), {.model = "b"}),
              HasSubstr("vllm:max_gpu_lora_adapters{model_name=\"b\"} 12\n"));
}

TEST(Metrics, CountTheRequestsOfEachAdapter) {
  engine::AdapterTraffic traffic;
  traffic.finished_stop = 2;
  traffic.failed = 1;
  traffic.prompt_tokens = 30;
  traffic.generated_tokens = 7;
  traffic.time_to_first_token.observe(std::chrono::milliseconds(250));
  traffic.time_per_token.observe(std::chrono::milliseconds(125));
  engine::Stats stats;
  stats.adapters = {
      {.name = "quiet"},
      {.name = "tenant", .traffic = std::make_shared<engine::AdapterTraffic>(traffic)}};
  stats.base_traffic.generated_tokens = 11;
  stats.other_adapters.finished_length = 3;
  const std::string page = metrics_page(stats, HttpCounts(), {.model = "base", .now = 1.5});
  for (const char* const line :
       {R"(motley_adapter_choices_total{adapter="tenant",reason="stop"} 2)",
        R"x(motley_adapter_choices_total{adapter="(others)",reason="length"} 3)x",
        R"(motley_adapter_requests_failed_total{adapter="tenant"} 1)",
        R"(motley_adapter_prompt_tokens_total{adapter="tenant"} 30)",
        R"(motley_adapter_generated_tokens_total{adapter="tenant"} 7)",
        R"(motley_adapter_generated_tokens_total{adapter=""} 11)",
        R"(motley_adapter_time_to_first_token_seconds_sum{adapter="tenant"} 0.25)",
        R"(motley_adapter_time_to_first_token_seconds_count{adapter="tenant"} 1)",
        R"(motley_adapter_time_per_token_seconds_sum{adapter="tenant"} 0.125)"})
    EXPECT_THAT(page, HasSubstr(cat("\n", line, "\n")));
  EXPECT_THAT(page, Not(HasSubstr("adapter=\"quiet\"")));
}

TEST(Metrics, AdaptersOfReplicasAreCountedTogetherForGateways) {
  engine::AdapterTraffic traffic;
  traffic.generated_tokens = 2;
  const auto shared = std::make_shared<engine::AdapterTraffic>(traffic);
  engine::Stats one;
  one.adapters = {{.name = "a", .rank = 8, .on_device = true, .traffic = shared}};
  engine::Stats other;
  other.adapters = {{.name = "a", .rank = 8, .in_host = true, .traffic = shared}};
  const engine::Stats all = engine::total_stats({one, other});
  EXPECT_EQ(all.adapters.front().traffic->generated_tokens, 4U);
  const std::string page = metrics_page(all, HttpCounts(), {.model = "base", .now = 1.5});
  EXPECT_THAT(page, HasSubstr("vllm:num_gpu_loaded_lora_adapters{model_name=\"base\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("level=\"gpu\",pinned=\"false\",rank=\"8\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("motley_adapter_generated_tokens_total{adapter=\"a\",replica=\"1\"} 2\n"));
}

TEST(Metrics, ValuesOfLabelsAreEscaped) {
  EXPECT_EQ(metric_label("a", "x"), R"(a="x")");
  EXPECT_EQ(metric_label("a", "\\ \" \n"), R"(a="\\ \" \n")");
}

TEST(Metrics, OfTheProcessHaveTheirUsualNames) {
  const std::string page = process_metrics(nullptr);
  for (const char* const name :
       {"motley_build_info{version=\"", "process_cpu_seconds_total ", "process_start_time_seconds ",
        "process_resident_memory_bytes ", "process_virtual_memory_bytes ", "process_open_fds ",
        "process_max_fds ", "process_threads "})
    EXPECT_THAT(page, HasSubstr(cat("\n", name)));
}

}  // namespace
}  // namespace motley::server
