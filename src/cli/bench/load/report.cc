#include "cli/bench/load/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/cat.h"
#include "cli/bench/columns.h"

namespace motley::cli {
namespace {

// The smallest number such that this share of all numbers is not above it.
double at_share(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

std::string level(const LoadSize& size) {
  const bool whole = size.level == std::floor(size.level);
  const std::string number = decimals(size.level, whole ? 0 : 2);
  return size.arrivals == LoadSize::Arrivals::closed ? cat(number, " at once")
                                                     : cat(number, " a second");
}

std::string milliseconds(double seconds, std::size_t width) {
  return padded(decimals(seconds * 1e3, seconds < 0.1 ? 2 : 0), width);
}

// The tokens that arrived until then, if they arrived one by one.
std::int64_t tokens_until(const Flight& flight, TimePoint then) {
  double left = seconds(then - flight.first);
  if (flight.tokens == 0 || left < 0) return 0;
  std::int64_t tokens = 1;
  for (const float gap : flight.gaps) {
    left -= gap;
    if (left < 0) break;
    ++tokens;
  }
  return tokens;
}

}  // namespace

Percentiles percentiles(std::vector<double> numbers) {
  if (numbers.empty()) return {};
  std::ranges::sort(numbers);
  double sum = 0;
  for (const double number : numbers) sum += number;
  return {.p50 = at_share(numbers, 0.5),
          .p90 = at_share(numbers, 0.9),
          .p99 = at_share(numbers, 0.99),
          .most = numbers.back(),
          .mean = sum / static_cast<double>(numbers.size())};
}

json::Object to_json(const Percentiles& of) {
  json::Object object;
  object.add("p50", of.p50);
  object.add("p90", of.p90);
  object.add("p99", of.p99);
  object.add("max", of.most);
  object.add("mean", of.mean);
  return object;
}

LoadSummary summarize(const LoadResult& result) {
  LoadSummary summary{.requests = static_cast<std::int64_t>(result.flights.size())};
  std::vector<double> first_token;
  std::vector<double> token;
  std::vector<double> request;
  std::map<std::optional<std::size_t>, std::vector<double>> by_adapter;
  std::int64_t tokens = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t full_tokens = 0;
  const TimePoint last_begin = result.flights.empty() ? TimePoint() : result.flights.back().due;
  for (const Flight& flight : result.flights) {
    if (flight.error) {
      if (summary.failed++ == 0) summary.first_error = flight.error->message();
      continue;
    }
    first_token.push_back(seconds(flight.first - flight.due));
    by_adapter[flight.adapter].push_back(first_token.back());
    token.insert(token.end(), flight.gaps.begin(), flight.gaps.end());
    request.push_back(seconds(flight.last - flight.due));
    tokens += flight.tokens;
    prompt_tokens += flight.prompt_tokens;
    full_tokens += tokens_until(flight, last_begin);
  }
  if (result.seconds > 0) {
    summary.requests_a_second = static_cast<double>(request.size()) / result.seconds;
    summary.tokens_a_second = static_cast<double>(tokens) / result.seconds;
    summary.prompt_tokens_a_second = static_cast<double>(prompt_tokens) / result.seconds;
  }
  if (!result.flights.empty() && last_begin > result.flights.front().due)
    summary.full_tokens_a_second =
        static_cast<double>(full_tokens) / seconds(last_begin - result.flights.front().due);
  summary.first_token = percentiles(std::move(first_token));
  summary.token = percentiles(std::move(token));
  summary.request = percentiles(std::move(request));
  for (auto& [adapter, waits] : by_adapter)
    summary.slowest_adapter_first_token =
        std::max(summary.slowest_adapter_first_token, percentiles(std::move(waits)).p50);
  return summary;
}

std::string load_table_head() {
  return "                                                                    first token, ms      "
         "    "
         "           token, ms       request, s\n"
         "load            adapters   zipf  requests/s  tokens/s  when full     p50     p90     p99 "
         "    max  "
         "slowest"
         "     p50     p99     p50     p99   loads\n";
}

std::string load_table_row(const LoadCase& about, const LoadSummary& summary) {
  const std::string adapters =
      about.in_memory > 0 ? cat(about.adapters, " in ", about.in_memory) : cat(about.adapters);
  const Percentiles& first = summary.first_token;
  std::string row = level(about.size);
  row.resize(std::max<std::size_t>(row.size(), 14), ' ');
  row +=
      cat(padded(adapters, 10), padded(cat(about.shape.zipf), 7),
          padded(decimals(summary.requests_a_second, 2), 12),
          padded(decimals(summary.tokens_a_second, 0), 10),
          padded(decimals(summary.full_tokens_a_second, 0), 11), milliseconds(first.p50, 8),
          milliseconds(first.p90, 8), milliseconds(first.p99, 8), milliseconds(first.most, 8),
          milliseconds(summary.slowest_adapter_first_token, 9), milliseconds(summary.token.p50, 8),
          milliseconds(summary.token.p99, 8), padded(decimals(summary.request.p50, 2), 8),
          padded(decimals(summary.request.p99, 2), 8), padded(cat(about.adapter_loads), 8));
  if (summary.failed > 0) row += cat("  (", summary.failed, " failed)");
  return row + "\n";
}

std::string load_json(const LoadCase& about, const LoadSummary& summary) {
  json::Object object;
  const bool closed = about.size.arrivals == LoadSize::Arrivals::closed;
  object.add("arrivals", closed ? "closed" : "poisson");
  object.add(closed ? "concurrency" : "requests_per_second_wanted", about.size.level);
  object.add("adapters", static_cast<std::int64_t>(about.adapters));
  object.add("adapters_in_memory",
             about.in_memory > 0 ? json::Value(about.in_memory) : json::Value());
  object.add("zipf", about.shape.zipf);
  object.add("requests", summary.requests);
  object.add("failed", summary.failed);
  object.add("requests_per_second", summary.requests_a_second);
  object.add("tokens_per_second", summary.tokens_a_second);
  object.add("full_tokens_per_second", summary.full_tokens_a_second);
  object.add("prompt_tokens_per_second", summary.prompt_tokens_a_second);
  object.add("first_token_seconds", to_json(summary.first_token));
  object.add("slowest_adapter_first_token_seconds", summary.slowest_adapter_first_token);
  object.add("token_seconds", to_json(summary.token));
  object.add("request_seconds", to_json(summary.request));
  object.add("adapter_loads", static_cast<std::int64_t>(about.adapter_loads));
  object.add("preemptions", static_cast<std::int64_t>(about.preemptions));
  return json::write(object) + "\n";
}

}  // namespace motley::cli
