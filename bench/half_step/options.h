// What the command line asks for; the same for all shapes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace motley::bench {

struct HalfStepOptions {
  std::string rungs = "abcefgis";
  std::vector<std::string> shapes = {"qwen3"};
  std::vector<std::string> formats = {"bf16", "int4"};
  std::vector<int> rows = {1, 4};
  std::vector<std::string> designs = {"whole", "split", "paired"};
  int replays = 15;
  int chains = 240;  // of the comparison of bits, for each design
  unsigned seconds = 200;
  std::uint64_t limit_ms = 200;  // of a wait
  bool all = false;              // prints every line
};

using HalfStepClock = std::chrono::steady_clock;

}  // namespace motley::bench

// Runs the rungs for a shape, until `end`.
namespace motley::bench::half_step_qwen3 {
void run_session(const HalfStepOptions& options, HalfStepClock::time_point end);
}
namespace motley::bench::half_step_qwen35 {
void run_session(const HalfStepOptions& options, HalfStepClock::time_point end);
}
