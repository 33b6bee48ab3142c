// Can half a layer of a decode step be one launch? README.md says what it prints.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "check.h"
#include "machine.h"
#include "runs.h"

namespace {

using namespace motley::bench::half_step;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string rungs = "abcdefg";
  std::vector<ExpertFormat> formats = {ExpertFormat::bf16, ExpertFormat::int4};
  std::vector<int> rows = {1, max_rows};
  int ahead = -1;  // of (e) and (f); -1: the best of several
  int replays = 15;
  unsigned seconds = 120;
  std::uint64_t limit_ms = 200;  // of a wait
};

[[noreturn]] void usage() {
  std::printf(
      "bench_half_step [--rung LETTERS] [--format bf16|int4] [--rows 1|4] [--ahead STAGES]\n"
      "                [--replays N] [--seconds N] [--limit-ms N]\n");
  std::exit(2);
}
Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) usage();
    const std::string value = argv[i + 1];
    if (name == "--rung") {
      o.rungs = value;
    } else if (name == "--format" && (value == "bf16" || value == "int4")) {
      o.formats = {value == "bf16" ? ExpertFormat::bf16 : ExpertFormat::int4};
    } else if (name == "--rows" && (value == "1" || value == "4")) {
      o.rows = {std::atoi(value.c_str())};
    } else if (name == "--ahead") {
      o.ahead = std::atoi(value.c_str());
    } else if (name == "--replays") {
      o.replays = std::atoi(value.c_str());
    } else if (name == "--seconds") {
      o.seconds = static_cast<unsigned>(std::atoi(value.c_str()));
    } else if (name == "--limit-ms") {
      o.limit_ms = static_cast<std::uint64_t>(std::atoi(value.c_str()));
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

class Session {
 public:
  Session(const Options& options, int blocks)
      : options_(options), blocks_(blocks), begin_(Clock::now()) {}

  void run() {
    for (const ExpertFormat format : options_.formats) {
      std::vector<WeightSet> sets;
      for (int i = 0; i < weight_sets; ++i) sets.push_back(make_weights(i, format, blocks_));
      if (bytes_per_us_ == 0) measure_machine(sets[0]);
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
  void measure_machine(const WeightSet& set) {
    void* const data = const_cast<unsigned char*>(set.packed.gate_up);
    const std::size_t bytes = std::size_t{experts} * 2 * inner * hidden / 2;
    const double read = read_rate(data, bytes, blocks_);
    double copy = 0;
    {
      void* scratch = nullptr;
      CHECK_CUDA(cudaMalloc(&scratch, std::size_t{4} << 30));
      CHECK_CUDA(cudaMemset(scratch, 1, std::size_t{4} << 30));
      copy = copy_rate(scratch, std::size_t{4} << 30);
      const double long_read = read_rate(scratch, std::size_t{4} << 30, blocks_);
      bytes_per_us_ = std::max(read, long_read) * 1e-6;
      CHECK_CUDA(cudaFree(scratch));
    }
    cycles_per_us_ = cycles_per_us();
    std::printf(
        "read %.2f TB/s (the floor's), copy %.2f TB/s (reads and writes), %.0f cycles a us\n",
        bytes_per_us_ * 1e-6, copy * 1e-12, cycles_per_us_);
  }

  // Prints a line; the time in a graph.
  double line(char rung, const Run& run) {
    const Time time = runs_->measure(run, options_.replays);
    const Instance& instance = runs_->instance();
    const double bytes = dense_bytes() + time.live * expert_bytes(instance.format);
    const double floor = bytes / bytes_per_us_;
    std::printf(
        "(%c) %s rows %d ahead %2d%s%s %-12s %-5s %7.2f us (%7.2f) %6.1f MB floor %5.2f x "
        "%.2f%s%s\n",
        rung, name_of(instance.format), instance.rows, run.rung.ahead,
        run.rung.fetch_rest ? " +rest" : "", run.rung.fetch_next ? " +next" : "", name_of(run.mode),
        run.in_graph ? "graph" : "eager", time.us, time.again, bytes * 1e-6, floor, time.us / floor,
        time.failure.empty() ? "" : " FAILED: ", time.failure.c_str());
    std::fflush(stdout);
    return time.failure.empty() ? time.us : 1e9;
  }
  double both_modes(char rung, const Rung& what) {
    return std::min(line(rung, {.rung = what, .mode = LaunchMode::plain}),
                    line(rung, {.rung = what, .mode = LaunchMode::programmatic}));
  }

  std::vector<Rung> fillings(bool computes) const {
    const int slots = slots_of(runs_->instance());
    std::vector<Rung> all;
    for (const int ahead : {0, 2, 4, 6, 7, 8}) {
      if (ahead + 4 <= slots) all.push_back({true, true, computes, ahead});
    }
    all.push_back({true, true, computes, 0, true});
    all.push_back({true, true, computes, slots / 2 - 1, true});
    all.push_back({true, true, computes, slots / 2, true, true});
    all.push_back({true, true, computes, 0, true, true});
    return all;
  }

  void rungs() {
    if (wants('a')) both_modes('a', {});
    if (wants('b')) both_modes('b', {.hands_over = true});
    if (wants('c')) both_modes('c', {.hands_over = true, .routes = true});
    if (wants('d')) {
      for (const Rung& rung : fillings(false)) both_modes('d', rung);
    }
    best_ = {true, true, true,
             options_.ahead >= 0 ? options_.ahead : slots_of(runs_->instance()) / 2};
    if (wants('e')) products();
    if (wants('f')) launches();
    if (wants('g')) beside_a_holder();
  }

  void products() {
    if (!check(*runs_, {.rung = best_})) std::printf("check FAILED\n");
    double best = 1e9;
    for (const Rung& rung : fillings(true)) {
      if (options_.ahead >= 0 && rung.ahead != options_.ahead) continue;
      const double us = both_modes('e', rung);
      if (us < best && !rung.fetch_next) {
        best = us;
        best_ = rung;
      }
    }
    print_stamps();
    same_bits();
  }
  void print_stamps() {
    constexpr const char* names[] = {"previous grid", "o", "x",    "logits", "choice",
                                     "gate_up",       "h", "down", "sum",    "qkv"};
    const auto at = runs_->cycles({.rung = best_, .mode = LaunchMode::programmatic});
    std::printf("    us from a block's start until, mean of the blocks:");
    for (int i = 0; i < 10; ++i)
      std::printf(" %s %.2f", names[i], at[static_cast<std::size_t>(i) + 1] / cycles_per_us_);
    std::printf("\n");
  }
  // Sums are in a fixed order: repeated chains, whatever the launch, have the same bits.
  void same_bits() {
    std::string failure;
    const std::uint64_t wanted = runs_->fingerprint({.rung = best_}, failure);
    int different = 0;
    constexpr int repeats = 60;
    for (int i = 0; i < repeats; ++i) {
      Run run{.rung = best_, .mode = static_cast<LaunchMode>(i % 3)};
      if (i % 2 == 1) run.rung.ahead = 0;
      if (runs_->fingerprint(run, failure) != wanted) ++different;
    }
    std::printf("    bits of %d chains of %d half steps: %d differ%s\n", repeats, layers, different,
                failure.c_str());
  }

  void launches() {
    for (const LaunchMode mode :
         {LaunchMode::plain, LaunchMode::cooperative, LaunchMode::programmatic}) {
      for (const bool in_graph : {false, true})
        line('f', {.rung = best_, .mode = mode, .in_graph = in_graph});
    }
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
          runs_->launch_all({.rung = best_, .mode = mode}, stream);
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
  Rung best_;
};

}  // namespace

int main(int argc, char** argv) {
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
}
