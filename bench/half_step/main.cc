// Can half a layer of a decode step be one launch? README.md says what it prints.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "check.h"
#include "runs.h"

namespace motley::bench::half_step {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string rungs = "abcdefgi";
  std::vector<ExpertFormat> formats = {ExpertFormat::bf16, ExpertFormat::int4};
  std::vector<int> rows = {1, max_rows};
  int replays = 15;
  int chains = 60;  // of the comparison of bits
  unsigned seconds = 120;
  std::uint64_t limit_ms = 200;  // of a wait
  bool all = false;              // prints every setting and the errors
};

[[noreturn]] void usage() {
  std::printf(
      "bench_half_step [--rung LETTERS] [--format bf16|int4] [--rows 1|4] [--chains N]\n"
      "                [--replays N] [--seconds N] [--limit-ms N] [--all]\n");
  std::exit(2);
}
Options parse(int argc, char** argv) {
  Options o;
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
    } else if (name == "--format" && (value == "bf16" || value == "int4")) {
      o.formats = {value == "bf16" ? ExpertFormat::bf16 : ExpertFormat::int4};
    } else if (name == "--rows" && (number == 1 || number == max_rows)) {
      o.rows = {number};
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

const char* name_of(ExpertFormat format) { return format == ExpertFormat::bf16 ? "bf16" : "int4"; }
const char* name_of(LaunchMode mode) {
  constexpr const char* names[] = {"plain", "cooperative", "programmatic"};
  return names[static_cast<int>(mode)];
}

struct Measured {
  Run run;
  Time time;
  double us() const { return time.failure.empty() ? time.us : 1e9; }
};

class Session {
 public:
  Session(const Options& options, int blocks)
      : options_(options), blocks_(blocks), begin_(Clock::now()) {}

  void run() {
    for (const ExpertFormat format : options_.formats) {
      std::vector<WeightSet> sets;
      for (int i = 0; i < weight_sets; ++i) sets.push_back(make_weights(i, format, blocks_));
      if (bytes_per_us_ == 0) measure_machine();
      for (const int rows : options_.rows) {
        runs_ = std::make_unique<Runs>(Instance{format, rows}, blocks_, options_.limit_ms * 1000000,
                                       sets);
        rungs();
        runs_.reset();
      }
      for (WeightSet& set : sets) free_weights(set);
    }
  }

 private:
  bool wants(char rung) const {
    const double used = std::chrono::duration<double>(Clock::now() - begin_).count();
    return options_.rungs.find(rung) != std::string::npos &&
           used < static_cast<double>(options_.seconds);
  }
  void measure_machine() {
    bytes_per_us_ = read_rate(blocks_) * 1e-6;
    cycles_per_us_ = cycles_per_us();
    std::printf("read %.2f TB/s (the floor's), %.0f cycles a us\n", bytes_per_us_ * 1e-6,
                cycles_per_us_);
  }

  Measured measured(char rung, const Run& run) {
    const Measured m{run, runs_->measure(run, options_.replays)};
    if (options_.all || !m.time.failure.empty()) print(rung, m);
    return m;
  }
  void print(char rung, const Measured& m) const {
    const Instance& instance = runs_->instance();
    const double bytes = dense_bytes() + m.time.live * expert_bytes(instance.format);
    const double floor = bytes / bytes_per_us_;
    std::printf(
        "(%c) %s rows %d ahead %d %-12s %s %6.2f us (%6.2f) %.1f MB floor %.2f x %.2f%s%s\n", rung,
        name_of(instance.format), instance.rows, m.run.rung.ahead, name_of(m.run.mode),
        m.run.in_graph ? "graph" : "eager", m.time.us, m.time.again, bytes * 1e-6, floor,
        m.time.us / floor, m.time.failure.empty() ? "" : " FAILED: ", m.time.failure.c_str());
    std::fflush(stdout);
  }
  // The best mode and, if `fills`, the best number of stages ahead. Prints it.
  Measured best(char rung, Rung what, bool fills) {
    Measured best{{.rung = what}, {.failure = "not run"}};
    for (const int ahead : {0, 2, 4, 6, 7, 8}) {
      if (ahead + 4 > slots_of(runs_->instance()) || (ahead != 0 && !fills)) break;
      what.ahead = ahead;
      for (const LaunchMode mode : {LaunchMode::plain, LaunchMode::programmatic}) {
        const Measured m = measured(rung, {.rung = what, .mode = mode});
        if (m.us() < best.us()) best = m;
      }
    }
    print(rung, best);
    return best;
  }

  void rungs() {
    std::printf("--- %s rows %d\n", name_of(runs_->instance().format), runs_->instance().rows);
    if (wants('a')) best('a', {}, false);
    if (wants('b')) best('b', {.hands_over = true}, false);
    if (wants('c')) best('c', {.hands_over = true, .routes = true}, false);
    if (wants('d')) best('d', {.hands_over = true, .routes = true}, true);
    if (options_.rungs.find_first_of("efgi") == std::string::npos) return;
    best_ = {.rung = {true, true, true}, .mode = LaunchMode::programmatic};
    if (!check(*runs_, best_, options_.all)) std::printf("check FAILED\n");
    if (wants('e')) {
      best_ = best('e', best_.rung, true).run;
      print_phases();
      repeat_chains();
    }
    if (wants('f')) launches();
    if (wants('i')) with_foreign();
    if (wants('g')) beside_a_holder();
  }

  // The time of each phase: the mean of blocks and launches, the least and the most.
  void print_phases() {
    constexpr const char* names[] = {"go",      "o", "x",    "logits", "choice",
                                     "gate_up", "h", "down", "sum",    "qkv"};
    constexpr int first_layer = 4;  // the launches before it fill the pipeline
    const auto at = runs_->stamped_chain(best_);
    std::printf("    phases, us:");
    for (std::size_t phase = 0; phase + 1 < stamps; ++phase) {
      double sum = 0;
      double least = 1e9;
      double most = 0;
      int count = 0;
      for (int layer = first_layer; layer < layers; ++layer) {
        for (int block = 0; block < output_tiles; ++block) {
          const auto i = static_cast<std::size_t>(layer * blocks_ + block) * stamps + phase;
          const double us = static_cast<double>(at[i + 1] - at[i]) / cycles_per_us_;
          sum += us;
          least = std::min(least, us);
          most = std::max(most, us);
          ++count;
        }
      }
      std::printf(" %s %.2f (%.2f-%.2f)", names[phase], sum / count, least, most);
    }
    std::printf("\n");
  }
  // Sums are in a fixed order: repeated chains, whatever the launch, have the same bits.
  void repeat_chains() {
    std::vector<float> wanted;
    int different = 0;
    for (int i = 0; i < options_.chains; ++i) {
      Run run = best_;
      run.mode = static_cast<LaunchMode>(i % 3);
      if (i % 2 == 1) run.rung.ahead = best_.rung.ahead == 0 ? 1 : 0;
      if (!runs_->same_bits(run, wanted)) ++different;
    }
    std::printf("    bits of %d chains of %d half steps: %d differ\n", options_.chains, layers,
                different);
  }

  void launches() {
    std::printf("(f)");
    for (const LaunchMode mode :
         {LaunchMode::plain, LaunchMode::cooperative, LaunchMode::programmatic}) {
      for (const bool in_graph : {false, true}) {
        Run run = best_;
        run.mode = mode;
        run.in_graph = in_graph;
        std::printf(" %s %s %.2f", name_of(mode), in_graph ? "graph" : "eager",
                    measured('f', run).us());
      }
    }
    std::printf("\n");
  }

  // A chain with a foreign kernel after each half step, less a chain of that kernel alone.
  void with_foreign() {
    std::printf("(i)");
    for (const LaunchMode mode : {LaunchMode::plain, LaunchMode::programmatic}) {
      Run run = best_;
      run.mode = mode;
      run.foreign = true;
      const double both = measured('i', run).us();
      run.foreign_only = true;
      const double alone = measured('i', run).us();
      std::printf(" %s %.2f (foreign alone %.2f)", name_of(mode), both - alone, alone);
    }
    std::printf("\n");
  }

  // Half of the multiprocessors are held for a time below or above the limit of a wait.
  void beside_a_holder() {
    constexpr std::uint64_t limit_ms = 2000;
    runs_->set_limit(limit_ms * 1000000);
    for (const std::uint64_t held_ms : {std::uint64_t{300}, std::uint64_t{3000}}) {
      for (const LaunchMode mode :
           {LaunchMode::plain, LaunchMode::cooperative, LaunchMode::programmatic}) {
        if (!wants('g')) return;
        runs_->reset();
        cudaStream_t stream = nullptr;
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        const Clock::time_point begin = Clock::now();
        std::string failure;
        double ms = 0;
        {
          const Holder holder(blocks_ / 2, held_ms * 1000000);
          Run run = best_;
          run.mode = mode;
          runs_->launch_all(run, stream);
          failure = runs_->finish(stream);
          ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        }
        std::printf(
            "(g) %s rows %d %-12s half held for %llu ms, limit %llu ms: ended after %.0f ms, %s\n",
            name_of(runs_->instance().format), runs_->instance().rows, name_of(mode),
            static_cast<unsigned long long>(held_ms), static_cast<unsigned long long>(limit_ms), ms,
            failure.empty() ? "finished" : failure.c_str());
        std::fflush(stdout);
        CHECK_CUDA(cudaStreamDestroy(stream));
      }
    }
    runs_->set_limit(options_.limit_ms * 1000000);
  }

  const Options& options_;
  int blocks_;
  Clock::time_point begin_;
  double bytes_per_us_ = 0;
  double cycles_per_us_ = 1;
  std::unique_ptr<Runs> runs_;
  Run best_;  // of (e)
};

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  alarm(options.seconds + 60);  // ends the program whatever happens
  cudaDeviceProp properties{};
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  const int blocks = properties.multiProcessorCount;
  std::printf(
      "%s, %d multiprocessors, %d MB of L2; us of a half step: the median of %d replays of %d\n",
      properties.name, blocks, properties.l2CacheSize >> 20, options.replays, layers);
  if (properties.major != 9 || blocks < experts) {
    std::printf("needs sm_90 and at least %d multiprocessors\n", experts);
    return 1;
  }
  CHECK_CUDA(prepare());
  Session(options, blocks).run();
  return 0;
}

}  // namespace
}  // namespace motley::bench::half_step

int main(int argc, char** argv) { return motley::bench::half_step::run(argc, argv); }
