#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling/sampling_batch.h"
#include "engine/sampling/sampling_state.h"
#include "sampling/statistics.h"
#include "tensor/arena.h"
#include "tensor/device/device.h"

// Draws as the engine makes them, on the device that the program tests.
namespace motley::sampling_tests {

// The one whose sampler is tested: a file for each program says which.
tensor::Device& device();
const kernels::ElementaryTable& device_kernels();

// Every draw is fixed by its seed: what follows the expectation once does so always. One in ten
// thousand right samplers would fall below.
inline constexpr double least_p = 1e-4;

// Steps that draw from one row of logits, the same for every sequence.
class Draws {
 public:
  static constexpr std::size_t rows = 512;

  explicit Draws(const std::vector<float>& logits);

  // A token for each of at most `rows` states, which take it.
  std::vector<std::int32_t> step(std::span<engine::SamplingState* const> states);

  // How often each token is drawn by so many sequences in this setting, with a seed for each.
  std::vector<int> histogram(const Setting& setting, int draws, std::uint64_t first_seed = 1);

  const std::vector<float>& logits() const { return logits_; }

 private:
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(logits_.size()); }

  std::vector<float> logits_;
  std::unique_ptr<tensor::Stream> stream_;
  tensor::Buffer device_logits_;  // [rows, vocabulary]
  std::optional<tensor::Arena> scratch_;
  ops::Context context_;
  std::unique_ptr<engine::SamplingBatch> batch_;
};

// A sequence in this setting, about to draw.
engine::SamplingState state_in(const Setting& setting, std::uint64_t seed);

// The tokens that a histogram holds, by rising id.
std::vector<std::int32_t> support_of(const std::vector<int>& seen);

// Draws from these logits follow the definitions: no token that they rule out, every one that they
// make likely, and each as often as it should be.
void expect_draws(const std::vector<float>& logits, const Setting& setting, int draws = 20'000);

// The only tokens that are drawn, each of them at least once.
std::vector<std::int32_t> drawn_tokens(const std::vector<float>& logits, const Setting& setting,
                                       int draws = 2048);

std::vector<float> random_logits(std::size_t count, std::uint32_t seed, float spread = 2);

}  // namespace motley::sampling_tests
