// Can half a layer of a decode step be one launch? README.md says what it prints.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "options.h"

namespace {

using motley::bench::HalfStepOptions;

[[noreturn]] void usage() {
  std::printf(
      "bench_half_step [--rung LETTERS] [--shape qwen3|qwen35] [--format bf16|int4] [--rows 1|4]\n"
      "                [--design whole|split|paired] [--chains N] [--replays N] [--seconds N]\n"
      "                [--limit-ms N] [--all]\n");
  std::exit(2);
}
HalfStepOptions parse(int argc, char** argv) {
  HalfStepOptions o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--all") {
      o.all = true;
      continue;
    }
    if (++i >= argc) usage();
    const std::string value = argv[i];
    const int number = std::atoi(value.c_str());
    if (name == "--rung") {
      o.rungs = value;
    } else if (name == "--shape" && (value == "qwen3" || value == "qwen35")) {
      o.shapes = {value};
    } else if (name == "--format" && (value == "bf16" || value == "int4")) {
      o.formats = {value};
    } else if (name == "--rows" && (number == 1 || number == 4)) {
      o.rows = {number};
    } else if (name == "--design") {
      o.designs = {value};
    } else if (name == "--chains") {
      o.chains = number;
    } else if (name == "--replays") {
      o.replays = number;
    } else if (name == "--seconds") {
      o.seconds = static_cast<unsigned>(number);
    } else if (name == "--limit-ms") {
      o.limit_ms = static_cast<std::uint64_t>(number);
    } else {
      usage();
    }
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const HalfStepOptions options = parse(argc, argv);
  alarm(options.seconds + 60);  // ends the program whatever happens
  const auto end = motley::bench::HalfStepClock::now() + std::chrono::seconds(options.seconds);
  for (const std::string& shape : options.shapes) {
    if (shape == "qwen35") {
      motley::bench::half_step_qwen35::run_session(options, end);
    } else {
      motley::bench::half_step_qwen3::run_session(options, end);
    }
  }
}
