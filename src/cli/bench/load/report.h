#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "cli/bench/load/run.h"

namespace motley::cli {

struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double most = 0;
  double mean = 0;
};

// Zeros if there are no numbers.
Percentiles percentiles(std::vector<double> numbers);
json::Object to_json(const Percentiles& of);

// The result of a load. Failed requests are only counted as failed.
struct LoadSummary {
  std::int64_t requests = 0;
  std::int64_t failed = 0;
  std::string first_error;
  double requests_a_second = 0;
  double tokens_a_second = 0;  // generated tokens
  // The same up to the last request's begin: without the end of the load, where concurrency falls.
  double full_tokens_a_second = 0;
  double prompt_tokens_a_second = 0;
  // Seconds.
  Percentiles first_token;
  Percentiles token;    // between tokens of a request
  Percentiles request;  // to the last token
  // The largest median of any adapter's requests, which shows starvation.
  double slowest_adapter_first_token = 0;
};

LoadSummary summarize(const LoadResult& result);

// The parameters reported with it.
struct LoadCase {
  LoadShape shape;
  LoadSize size;
  std::size_t adapters = 0;
  std::int64_t in_memory = 0;       // the number of adapters with memory; 0: unknown
  std::uint64_t adapter_loads = 0;  // by the engine in this process
  std::uint64_t preemptions = 0;
};

std::string load_table_head();
std::string load_table_row(const LoadCase& about, const LoadSummary& summary);
// One line.
std::string load_json(const LoadCase& about, const LoadSummary& summary);

}  // namespace motley::cli
