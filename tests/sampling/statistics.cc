#include "sampling/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace motley::sampling_tests {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

void apply_mask_and_biases(std::vector<double>& logits, const Setting& setting) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (setting.allowed && !setting.allowed(static_cast<std::int32_t>(id))) logits[id] = nothing;
  }
  for (const engine::LogitBias& bias : setting.params.logit_bias)
    logits[static_cast<std::size_t>(bias.token)] += double{bias.bias};
  if (static_cast<std::int64_t>(setting.answer.size()) >= setting.params.min_tokens) return;
  for (const std::int32_t id : setting.stop_ids) logits[static_cast<std::size_t>(id)] = nothing;
  if (setting.params.ignore_eos) return;
  for (const std::int32_t id : setting.end_ids) logits[static_cast<std::size_t>(id)] = nothing;
}

void apply_penalties(std::vector<double>& logits, const Setting& setting) {
  const engine::SamplingParams& params = setting.params;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const auto times = static_cast<double>(std::ranges::count(setting.answer, id));
    if (times > 0 || std::ranges::count(setting.prompt, id) > 0) {
      const double repetition{params.repetition_penalty};
      logits[i] = logits[i] > 0 ? logits[i] / repetition : logits[i] * repetition;
    }
    logits[i] -= times * double{params.frequency_penalty};
    if (times > 0) logits[i] -= double{params.presence_penalty};
  }
}

// Ids by falling logit, the lower id first among equals.
std::vector<std::size_t> falling(const std::vector<double>& logits) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return logits[a] == logits[b] ? a < b : logits[a] > logits[b];
  });
  return order;
}

}  // namespace

std::vector<double> expected_probabilities(const std::vector<float>& raw, const Setting& setting) {
  std::vector<double> logits(raw.begin(), raw.end());
  apply_mask_and_biases(logits, setting);
  apply_penalties(logits, setting);
  const std::vector<std::size_t> order = falling(logits);
  const double largest = logits[order[0]];
  std::vector<double> probabilities(logits.size(), 0);
  if (largest == nothing) return probabilities;
  const engine::SamplingParams& params = setting.params;
  if (params.temperature == 0) {
    probabilities[order[0]] = 1;
    return probabilities;
  }
  double total = 0;
  std::vector<std::size_t> kept;
  for (const std::size_t id : order) {
    const double share = std::exp((logits[id] - largest) / double{params.temperature});
    if (share == 0 || share < double{params.min_p}) break;
    if (params.top_k > 0 && kept.size() == static_cast<std::size_t>(params.top_k)) break;
    kept.push_back(id);
    probabilities[id] = share;
    total += share;
  }
  double before = 0;
  double left = 0;
  for (const std::size_t id : kept) {
    const double share = probabilities[id];
    if (before >= double{params.top_p} * total) probabilities[id] = 0;
    before += share;
    left += probabilities[id];
  }
  for (double& probability : probabilities) probability /= left;
  return probabilities;
}

double chi_square_tail(double chi_square, int freedom) {
  if (freedom < 1) return 1;
  // Q(a + 1, z) = Q(a, z) + z^a e^-z / gamma(a + 1), from Q(1/2, z) or Q(1, z) up to a = freedom
  // / 2.
  const double z = chi_square / 2;
  if (z == 0) return 1;
  double a = freedom % 2 == 1 ? 0.5 : 1;
  double tail = freedom % 2 == 1 ? std::erfc(std::sqrt(z)) : std::exp(-z);
  for (; a < freedom / 2.0; ++a) tail += std::exp(a * std::log(z) - z - std::lgamma(a + 1));
  return tail;
}

double chi_square_p(const std::vector<double>& probabilities, const std::vector<int>& seen) {
  const double draws = std::accumulate(seen.begin(), seen.end(), 0.0);
  double chi = 0;
  double rare_expected = 0;
  double rare_seen = 0;
  int cells = 0;
  const auto add = [&](double expected, double found) {
    chi += (found - expected) * (found - expected) / expected;
    ++cells;
  };
  for (std::size_t id = 0; id < seen.size(); ++id) {
    const double expected = probabilities[id] * draws;
    if (expected == 0 && seen[id] > 0) return 0;
    if (expected >= 10) {
      add(expected, seen[id]);
    } else {
      rare_expected += expected;
      rare_seen += seen[id];
    }
  }
  if (rare_expected > 0) add(rare_expected, rare_seen);
  return chi_square_tail(chi, cells - 1);
}

}  // namespace motley::sampling_tests
