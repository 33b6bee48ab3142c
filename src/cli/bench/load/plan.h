#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/system/clock.h"

namespace motley::cli {

// How many tokens: any number from one to the other, all as likely.
struct TokenRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
};

// What the requests of a load look like.
struct LoadShape {
  TokenRange prompt{.least = 128, .most = 512};
  TokenRange output{.least = 32, .most = 128};
  // Adapter i is asked for in proportion to (i + 1)^-zipf; 0: all alike.
  double zipf = 0;
  std::uint64_t seed = 1;
};

struct PlannedRequest {
  std::vector<std::int32_t> tokens;
  std::int64_t max_tokens = 0;
  std::optional<std::size_t> adapter;  // by number; none: the base
};

// The requests of a load, one after the other. Number i is the same in every load of the same
// shape, however fast they are served.
class LoadPlan {
 public:
  // Prompts are random tokens below `vocabulary`.
  LoadPlan(const LoadShape& shape, std::size_t adapters, std::int64_t vocabulary);

  PlannedRequest next();
  // To the next arrival where so many come a second, each independent of the others (Poisson).
  Duration gap(double a_second);

 private:
  std::int64_t length(const TokenRange& range);

  LoadShape shape_;
  std::uint64_t vocabulary_;
  std::vector<double> until_;  // the share of the adapters up to and with this one
  std::uint64_t state_;
  std::uint64_t gap_state_;
};

}  // namespace motley::cli
