// Runs the rungs for one shape.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "options.h"
#include "runs.h"
#include "stamps.h"

namespace motley::bench::HALF_STEP_NAMESPACE {
namespace {

constexpr const char* mode_names[] = {"plain", "cooperative", "programmatic"};
constexpr const char* design_names[] = {"whole", "split", "paired"};
const char* name_of(LaunchMode mode) { return mode_names[static_cast<int>(mode)]; }
const char* name_of(Design design) { return design_names[static_cast<int>(design)]; }
const char* name_of(ExpertFormat format) { return format == ExpertFormat::bf16 ? "bf16" : "int4"; }

struct Measured {
  Run run;
  double us = 1e9;
};

class Session {
 public:
  Session(const HalfStepOptions& options, HalfStepClock::time_point end, int blocks)
      : options_(options), end_(end), blocks_(blocks) {}

  void run() {
    if (wants('s')) stale_reads();
    for (const ExpertFormat format : {ExpertFormat::bf16, ExpertFormat::int4}) {
      const auto& formats = options_.formats;
      if (std::find(formats.begin(), formats.end(), name_of(format)) == formats.end()) continue;
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
    return options_.rungs.find(rung) != std::string::npos && HalfStepClock::now() < end_;
  }
  bool wants(Design design, bool computes) const {
    const auto& all = options_.designs;
    return has_design(design, computes) &&
           std::find(all.begin(), all.end(), name_of(design)) != all.end();
  }
  std::vector<Design> designs(bool computes) const {
    std::vector<Design> all;
    for (const Design design : {Design::whole, Design::split, Design::paired}) {
      if (wants(design, computes)) all.push_back(design);
    }
    return all;
  }

  void measure_machine() {
    constexpr std::size_t bytes = std::size_t{4} << 30;
    void* scratch = nullptr;
    CHECK_CUDA(cudaMalloc(&scratch, bytes));
    CHECK_CUDA(cudaMemset(scratch, 1, bytes));
    bytes_per_us_ = read_rate(scratch, bytes, blocks_) * 1e-6;
    const double copy = copy_rate(scratch, bytes);
    CHECK_CUDA(cudaFree(scratch));
    cycles_per_us_ = cycles_per_us();
    std::printf(
        "read %.2f TB/s (the floor's), copy %.2f TB/s (reads and writes), %.0f cycles a us\n",
        bytes_per_us_ * 1e-6, copy * 1e-12, cycles_per_us_);
  }

  // Measures and, with --all, prints.
  Measured measured(char rung, const Run& run) {
    const Time time = runs_->measure(run, options_.replays);
    if (options_.all || !time.failure.empty()) print(rung, run, time);
    return {run, time.failure.empty() ? std::min(time.us, time.again) : 1e9};
  }
  void print(char rung, const Run& run, const Time& time) const {
    const Instance& instance = runs_->instance();
    const double bytes = dense_bytes() + time.live * expert_bytes(instance.format);
    const double floor = bytes / bytes_per_us_;
    std::printf(
        "(%c) %s rows %d %-6s ahead %d copies %d pause %2d %s %s%s %6.2f us (%6.2f) %.1f MB floor "
        "%.2f x %.2f%s%s\n",
        rung, name_of(instance.format), instance.rows, name_of(run.design), run.rung.ahead,
        run.rung.copies, run.rung.pause_ns, name_of(run.mode), run.in_graph ? "graph" : "eager",
        run.foreign_only ? " foreign alone"
        : run.foreign    ? " with foreign"
                         : "",
        time.us, time.again, bytes * 1e-6, floor, time.us / floor,
        time.failure.empty() ? "" : " FAILED: ", time.failure.c_str());
    std::fflush(stdout);
  }
  Measured best_mode(char rung, Run run) {
    run.mode = LaunchMode::plain;
    const Measured plain = measured(rung, run);
    run.mode = LaunchMode::programmatic;
    const Measured programmatic = measured(rung, run);
    return plain.us < programmatic.us ? plain : programmatic;
  }

  void rungs() {
    std::printf("--- %s %s rows %d\n", shape_name, name_of(runs_->instance().format),
                runs_->instance().rows);
    bytes_only('a', {});
    bytes_only('b', {.hands_over = true});
    bytes_only('c', {.hands_over = true, .routes = true});
    best_.clear();
    for (const Design design : designs(true)) products(design);
    if (best_.empty()) return;
    if (wants('f')) launches();
    if (wants('i')) beside_foreign();
    if (wants('g')) beside_a_holder();
  }
  void bytes_only(char rung, const Rung& what) {
    if (!wants(rung)) return;
    std::printf("(%c)", rung);
    for (const Design design : designs(false)) {
      const Measured best = best_mode(rung, {.rung = what, .design = design});
      std::printf(" %s %.2f us %s,", name_of(design), best.us, name_of(best.run.mode));
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  // The best copies and pause, then the best number of stages ahead.
  void products(Design design) {
    Run run{.rung = {true, true, true}, .design = design, .mode = LaunchMode::programmatic};
    if (!check(*runs_, run, options_.all)) std::printf("check FAILED: %s\n", name_of(design));
    Measured best{run};
    if (!wants('e')) {
      best_.push_back(best);
      return;
    }
    const auto take = [&](const Run& other) {
      const Measured m = measured('e', other);
      if (m.us < best.us) best = m;
    };
    for (const int copies : {1, max_copies}) {
      for (const int pause_ns : {0, 40}) {
        run.rung.copies = copies;
        run.rung.pause_ns = pause_ns;
        take(run);
      }
    }
    run = best.run;
    for (const int ahead : {1, 2, 4, 6, 8}) {
      run.rung.ahead = ahead;
      if (ahead + 4 <= slots_of(runs_->instance(), design)) take(run);
    }
    best_.push_back(best);
    print('e', best.run, runs_->measure(best.run, options_.replays));
    print_phases(*runs_, best.run, cycles_per_us_);
    same_bits(best.run);
  }
  // Sums are in a fixed order: repeated chains, whatever the launch, have the same bits.
  void same_bits(const Run& best) {
    std::vector<Run> ways;
    for (const LaunchMode mode :
         {LaunchMode::plain, LaunchMode::programmatic, LaunchMode::cooperative}) {
      for (const bool other : {false, true}) {
        ways.push_back(best);
        ways.back().mode = mode;
        if (!other) continue;
        ways.back().rung.ahead = best.rung.ahead == 0 ? 1 : 0;
        ways.back().rung.copies = best.rung.copies == 1 ? max_copies : 1;
      }
    }
    const int different = count_different_chains(*runs_, ways, options_.chains);
    if (different != 0 || options_.all)
      std::printf("    BITS of %d chains of %d half steps: %d differ\n", options_.chains, layers,
                  different);
    std::fflush(stdout);
  }

  void launches() {
    for (const Measured& best : best_) {
      std::printf("(f) %s", name_of(best.run.design));
      for (const LaunchMode mode :
           {LaunchMode::plain, LaunchMode::cooperative, LaunchMode::programmatic}) {
        for (const bool in_graph : {false, true}) {
          Run run = best.run;
          run.mode = mode;
          run.in_graph = in_graph;
          std::printf(" %s %s %.2f,", name_of(mode), in_graph ? "graph" : "eager",
                      measured('f', run).us);
        }
      }
      std::printf("\n");
    }
  }

  // A chain with a kernel like attention after each half step, less a chain of that kernel alone.
  void beside_foreign() {
    for (const LaunchMode mode : {LaunchMode::plain, LaunchMode::programmatic}) {
      const double alone =
          measured('i', {.rung = best_[0].run.rung, .mode = mode, .foreign_only = true}).us;
      std::printf("(i) %s, foreign alone %.2f us; with half steps less that:", name_of(mode),
                  alone);
      for (const Measured& best : best_) {
        Run run = best.run;
        run.mode = mode;
        run.foreign = true;
        std::printf(" %s %.2f,", name_of(run.design), measured('i', run).us - alone);
      }
      std::printf("\n");
    }
  }

  // Half of the multiprocessors are held for a time below or above the limit of a wait.
  void beside_a_holder() {
    constexpr std::uint64_t limit_ms = 1000;
    const Run& run = best_.back().run;
    runs_->set_limit(limit_ms * 1000000);
    for (const std::uint64_t held_ms : {std::uint64_t{200}, std::uint64_t{1500}}) {
      if (!wants('g')) break;
      runs_->reset();
      cudaStream_t stream = nullptr;
      CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      const auto begin = HalfStepClock::now();
      std::string failure;
      double ms = 0;
      {
        const Holder holder(blocks_ / 2, held_ms * 1000000);
        runs_->launch_all(run, stream);
        failure = runs_->finish(stream);
        ms = std::chrono::duration<double, std::milli>(HalfStepClock::now() - begin).count();
      }
      std::printf("(g) %s %s half held for %llu ms, limit %llu ms: ended after %.0f ms, %s\n",
                  name_of(run.design), name_of(run.mode), static_cast<unsigned long long>(held_ms),
                  static_cast<unsigned long long>(limit_ms), ms,
                  failure.empty() ? "finished" : failure.c_str());
      std::fflush(stdout);
      CHECK_CUDA(cudaStreamDestroy(stream));
    }
    runs_->set_limit(options_.limit_ms * 1000000);
  }

  void stale_reads() const {
    constexpr int launches = 30000;
    for (const bool programmatic : {false, true}) {
      for (const bool weak : {false, true}) {
        const StaleReads reads = count_stale_reads(blocks_, programmatic, weak, launches);
        std::printf("(s) %s, %s loads: %ld of %ld reads of the launch before's values were stale\n",
                    programmatic ? "programmatic" : "plain", weak ? "plain" : "relaxed",
                    reads.stale, reads.reads);
      }
    }
    std::fflush(stdout);
  }

  const HalfStepOptions& options_;
  HalfStepClock::time_point end_;
  int blocks_;
  double bytes_per_us_ = 0;
  double cycles_per_us_ = 1;
  std::unique_ptr<Runs> runs_;
  std::vector<Measured> best_;  // of each design
};

}  // namespace

void run_session(const HalfStepOptions& options, HalfStepClock::time_point end) {
  cudaDeviceProp properties{};
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  const int blocks = properties.multiProcessorCount;
  if (properties.major != 9 || blocks < min_blocks || blocks > max_blocks) {
    std::printf("needs sm_90 and %d to %d multiprocessors\n", min_blocks, max_blocks);
    return;
  }
  std::printf("=== %s on %s, %d multiprocessors; us of a half step: median of %d replays of %d\n",
              shape_name, properties.name, blocks, options.replays, layers);
  CHECK_CUDA(prepare());
  Session(options, end, blocks).run();
}

}  // namespace motley::bench::HALF_STEP_NAMESPACE
