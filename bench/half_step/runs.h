// Chains of half steps over rotating weight sets: their state, launches and times.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"
#include "world.h"

namespace motley::bench::half_step {

inline constexpr int layers = 16;
inline constexpr int weight_sets = 4;

struct Run {
  Rung rung;
  LaunchMode mode = LaunchMode::plain;
  bool in_graph = true;
  bool foreign = false;       // a foreign kernel after each half step
  bool foreign_only = false;  // and no half step
};

struct Time {
  double us = 0;     // of a half step: the median
  double again = 0;  // a second measurement
  double live = 0;   // experts, the mean over the layers
  std::string failure;
};

class Runs {
 public:
  Runs(const Instance& instance, int blocks, std::uint64_t limit_ns,
       const std::vector<WeightSet>& sets);
  ~Runs();
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  const Instance& instance() const { return instance_; }
  int blocks() const { return blocks_; }
  const WeightSet& set(int layer) const {
    return sets_[static_cast<std::size_t>(layer) % weight_sets];
  }

  // The state before the first layer; the same each time.
  void reset();
  void launch_layer(int layer, const Run& run, cudaStream_t stream);
  void launch_all(const Run& run, cudaStream_t stream);
  // Waits for the stream. What a wait that expired was for, or nothing.
  std::string finish(cudaStream_t stream);

  Time measure(const Run& run, int replays);
  // Whether a chain from the first state ends with the same bits as `wanted`, which the first call
  // fills.
  bool same_bits(const Run& run, std::vector<float>& wanted);
  // Clocks of a chain: [layers, blocks, stamps].
  std::vector<long long> stamped_chain(const Run& run);

  std::vector<Bf16> projections() const;
  std::vector<float> residual() const;
  // The cells that the latest launch used.
  std::vector<std::uint32_t> used_cells() const;
  void set_limit(std::uint64_t limit_ns) { limit_ns_ = limit_ns; }

 private:
  HalfStep step(int layer, const Run& run) const;
  void make_choices();
  double replay_time(cudaGraphExec_t graph, const Run& run, int replays, cudaStream_t stream);

  Instance instance_;
  int blocks_;
  std::uint64_t limit_ns_;
  const std::vector<WeightSet>& sets_;
  Bf16* projections_ = nullptr;
  float* residual_ = nullptr;
  std::uint32_t* cells_ = nullptr;
  std::uint32_t* epoch_ = nullptr;
  std::uint32_t* failure_ = nullptr;
  std::uint32_t* host_failure_ = nullptr;
  float* logits_ = nullptr;
  int* lists_ = nullptr;
  int* live_ = nullptr;
  long long* stamps_ = nullptr;
  bool stamping_ = false;
  std::unique_ptr<Foreign> foreign_;
  std::vector<Bf16> first_projections_;
  std::vector<float> first_residual_;
};

}  // namespace motley::bench::half_step
