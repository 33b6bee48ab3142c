#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/system/clock.h"

namespace motley::cli {

// A number of tokens, uniform in a range.
struct TokenRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
};

// The properties of a load's requests.
struct LoadShape {
  TokenRange prompt{.least = 128, .most = 512};
  TokenRange output{.least = 32, .most = 128};
  // Adapter i is requested with probability proportional to (i + 1)^-zipf; 0: uniformly.
  double zipf = 0;
  std::uint64_t seed = 1;
};

struct PlannedRequest {
  std::vector<std::int32_t> tokens;
  std::int64_t max_tokens = 0;
  std::optional<std::size_t> adapter;  // by number; nothing: the base
};

// The sequence of a load's requests. Request i is the same in every load of the same shape, however
// fast they are served.
class LoadPlan {
 public:
  // Prompts are random tokens below `vocabulary`.
  LoadPlan(const LoadShape& shape, std::size_t adapters, std::int64_t vocabulary);

  PlannedRequest next();
  // The time until the next arrival of a Poisson process with this rate.
  Duration gap(double a_second);

 private:
  std::int64_t length(const TokenRange& range);

  LoadShape shape_;
  std::uint64_t vocabulary_;
  std::vector<double> until_;  // cumulative shares of the adapters
  std::uint64_t state_;
  std::uint64_t gap_state_;
};

}  // namespace motley::cli
