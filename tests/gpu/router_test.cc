#include "kernels/cuda/elementary/router.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/thread_pool.h"
#include "gpu/device_kernels.h"
#include "gpu/device_memory.h"
#include "moe/router.h"

// The device's router against the host's.
namespace motley::gpu_tests {
namespace {

using moe::RouterKind;
using moe::RouterSpec;

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Routed on_host(const RouterSpec& spec, const std::vector<float>& logits,
               const std::vector<float>& bias) {
  static ThreadPool pool({.threads = 1});
  const auto tokens = static_cast<std::int64_t>(logits.size()) / spec.experts;
  const auto pairs = static_cast<std::size_t>(tokens * spec.top_k);
  Routed routed{std::vector<std::int32_t>(pairs), std::vector<float>(pairs)};
  const auto bytes = [](auto& numbers) { return reinterpret_cast<std::byte*>(numbers.data()); };
  const tensor::ConstTensor view(reinterpret_cast<const std::byte*>(logits.data()), DType::f32,
                                 {tokens, spec.experts});
  moe::route({.spec = spec,
              .logits = view,
              .correction_bias = bias.empty() ? nullptr : bias.data(),
              .ids = {bytes(routed.ids), DType::i32, {tokens, spec.top_k}},
              .weights = {bytes(routed.weights), DType::f32, {tokens, spec.top_k}}},
             {.kernels = &kernels::cpu_table(), .stream = {&pool}});
  return routed;
}

Routed on_device(const RouterSpec& spec, const std::vector<float>& logits,
                 const std::vector<float>& bias) {
  const auto tokens = static_cast<std::int64_t>(logits.size()) / spec.experts;
  const auto pairs = static_cast<std::size_t>(tokens * spec.top_k);
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<float> device_bias(bias);
  const DeviceArray<std::int32_t> ids(pairs);
  const DeviceArray<float> weights(pairs);
  const auto bytes = [](const auto& array) { return reinterpret_cast<std::byte*>(array.data()); };
  moe::route({.spec = spec,
              .logits = {bytes(device_logits), DType::f32, {tokens, spec.experts}},
              .correction_bias = bias.empty() ? nullptr : device_bias.data(),
              .ids = {bytes(ids), DType::i32, {tokens, spec.top_k}},
              .weights = {bytes(weights), DType::f32, {tokens, spec.top_k}}},
             {.kernels = &device_table(), .stream = default_stream()});
  EXPECT_TRUE(launches().ok());
  finish();
  return {ids.read(), weights.read()};
}

void expect_equal(const RouterSpec& spec, const std::vector<float>& logits,
                  const std::vector<float>& bias = {}) {
  ASSERT_TRUE(moe::validate(spec).ok());
  const Routed host = on_host(spec, logits, bias);
  const Routed device = on_device(spec, logits, bias);
  for (std::size_t pair = 0; pair < host.ids.size(); ++pair) {
    ASSERT_EQ(device.ids[pair], host.ids[pair]) << "pair " << pair;
    if (std::isnan(host.weights[pair])) {
      ASSERT_TRUE(std::isnan(device.weights[pair])) << "pair " << pair;
    } else {
      // Sums of up to 1024 terms in two orders, two exponentials and two roundings.
      ASSERT_NEAR(device.weights[pair], host.weights[pair], 6e-6F * std::abs(host.weights[pair]))
          << "pair " << pair;
    }
  }
}

// On a grid of 1/64, so that rounding can't exchange two experts.
std::vector<float> grid_logits(std::int64_t tokens, int experts, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> steps(-200, 200);
  std::vector<float> logits(static_cast<std::size_t>(tokens * experts));
  for (float& logit : logits) logit = static_cast<float>(steps(random)) / 64.0F;
  return logits;
}

std::vector<RouterSpec> specs() {
  std::vector<RouterSpec> all;
  for (const bool renormalise : {false, true}) {
    for (const auto& [experts, top_k] :
         {std::pair{128, 8}, {64, 8}, {8, 2}, {5, 5}, {512, 10}, {1024, 64}, {1, 1}})
      all.push_back({.experts = experts, .top_k = top_k, .renormalise = renormalise});
    all.push_back({.kind = RouterKind::grouped_softmax,
                   .experts = 160,
                   .top_k = 6,
                   .groups = 8,
                   .kept_groups = 3,
                   .renormalise = renormalise,
                   .scale = 16});
    all.push_back({.kind = RouterKind::sigmoid_grouped,
                   .experts = 256,
                   .top_k = 8,
                   .groups = 8,
                   .kept_groups = 4,
                   .renormalise = renormalise,
                   .scale = 2.5F});
    all.push_back({.kind = RouterKind::sigmoid_grouped,
                   .experts = 384,
                   .top_k = 8,
                   .renormalise = renormalise,
                   .scale = 2.827F});
  }
  all.push_back({.kind = RouterKind::topk_then_softmax, .experts = 32, .top_k = 4});
  return all;
}

TEST(Router, AgreesWithTheHost) {
  unsigned seed = 1;
  for (const RouterSpec& spec : specs()) {
    for (const std::int64_t tokens : {1, 3, 64, 1000}) {
      SCOPED_TRACE(cat("kind ", static_cast<int>(spec.kind), ", ", spec.experts, " experts, top ",
                       spec.top_k, ", ", tokens, " tokens"));
      expect_equal(spec, grid_logits(tokens, spec.experts, seed++));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
  std::vector<float> bias(256);
  std::mt19937 random(7);
  for (float& value : bias)
    value = static_cast<float>(static_cast<int>(random() % 400) - 200) / 256;
  expect_equal({.kind = RouterKind::sigmoid_grouped,
                .experts = 256,
                .top_k = 8,
                .groups = 8,
                .kept_groups = 4,
                .renormalise = true},
               grid_logits(100, 256, 8), bias);
}

TEST(Router, StrangeLogitsRankAsOnTheHost) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(9);
  for (RouterSpec spec : specs()) {
    std::vector<float> logits = grid_logits(50, spec.experts, 10);
    for (float& logit : logits) {
      const float strange[] = {nan, infinity, -infinity, 0.0F, -0.0F, logit, logit, logit};
      logit = strange[random() % 8];
    }
    SCOPED_TRACE(cat("kind ", static_cast<int>(spec.kind), ", ", spec.experts, " experts"));
    expect_equal(spec, logits);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace motley::gpu_tests
