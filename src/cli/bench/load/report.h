#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/load/run.h"

namespace motley::cli {

struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double most = 0;
  double mean = 0;
};

// Of no numbers: zeros.
Percentiles percentiles(std::vector<double> numbers);

// What a load amounted to; requests that failed count as such and nowhere else.
struct LoadSummary {
  std::int64_t requests = 0;
  std::int64_t failed = 0;
  std::string first_error;
  double requests_a_second = 0;
  double tokens_a_second = 0;  // that were generated
  // The same until the last request began: without the end, where fewer and fewer are under way.
  double full_tokens_a_second = 0;
  double prompt_tokens_a_second = 0;
  // Seconds.
  Percentiles first_token;
  Percentiles token;    // between tokens of a request
  Percentiles request;  // to the last token
  // The largest median of any adapter's requests: one that starves shows here.
  double slowest_adapter_first_token = 0;
};

LoadSummary summarize(const LoadResult& result);

// What is reported beside it.
struct LoadCase {
  LoadShape shape;
  LoadSize size;
  std::size_t adapters = 0;
  std::int64_t in_memory = 0;       // adapters that there is memory for; 0: not known
  std::uint64_t adapter_loads = 0;  // of the engine, where it is ours
  std::uint64_t preemptions = 0;
};

std::string load_table_head();
std::string load_table_row(const LoadCase& about, const LoadSummary& summary);
// One line.
std::string load_json(const LoadCase& about, const LoadSummary& summary);

}  // namespace motley::cli
