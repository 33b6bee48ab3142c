#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lora/files/adapter.h"
#include "moe/problem.h"
#include "tensor/buffer.h"

// The cases of the conformance suite, and the reference from the definition. Every test program
// with the suite runs the backends of one device (runner.h).
namespace motley::moe::conformance {

// Every weight format of the suite.
std::span<const quant::Format> formats();
// Every activation of the suite.
std::span<const ActivationKind> activations();
// Letters, digits and underscores, for test names.
std::string identifier(const quant::Format& format);

struct LayerSpec {
  quant::Format gate_up;
  quant::Format down;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  int experts = 0;
  int top_k = 0;
  ActivationKind activation = ActivationKind::silu_mul;
  bool biases = false;
};
std::string to_string(const LayerSpec& spec);

// Random experts, both as backends take them and as the real numbers that the bytes denote.
struct Layer {
  LayerSpec spec;
  ExpertWeights weights;
  // One for each expert, row-major.
  std::vector<std::vector<double>> gate;
  std::vector<std::vector<double>> up;
  std::vector<std::vector<double>> down;

  Problem problem(bool exact, tensor::DeviceKind device, bool lora = false) const;
};
Layer make_layer(const LayerSpec& spec, tensor::Allocator& allocator, unsigned seed);

// How tokens choose experts.
enum class Routes : std::uint8_t {
  spread,   // K different experts, each as likely
  strange,  // some ids are negative or beyond the experts; one token has no expert at all
  hot,      // every token's first choice is the last expert
  few,      // only the first K experts; the others stay empty
};

struct Term {
  const lora::Adapter* adapter = nullptr;
  float scale = 1;
};

// Rows of activations with their routing. x is exact in bf16.
struct Rows {
  std::int64_t tokens = 0;
  std::vector<float> x;                  // [T, H]
  std::vector<std::int32_t> ids;         // [T, K]
  std::vector<float> routing_weights;    // [T, K]
  std::vector<std::vector<Term>> mixes;  // by token; empty: no token has adapters

  // Only these tokens, in this order.
  Rows pick(std::span<const std::int64_t> which) const;
};
Rows make_rows(const LayerSpec& spec, std::int64_t tokens, Routes routes, unsigned seed);

// The result by definition, in float64. `magnitude` is the same with absolute values in every
// product and sum, and the activation's steepest slope: if every factor has a relative error of
// eps, the value changes by at most eps times its magnitude.
struct Truth {
  std::vector<double> values;     // [T, H]
  std::vector<double> magnitude;  // [T, H]
};
Truth define(const Layer& layer, const Rows& rows);

struct Compute {
  bool exact = true;
  DType x_type = DType::f32;
};

// The largest relative error of a correct backend on such a device, relative to define()'s
// magnitudes.
double tolerance(const LayerSpec& spec, Compute compute, tensor::DeviceKind device);

// The first element outside its tolerance, or nothing.
std::string compare(const std::vector<float>& got, const Truth& truth, double tolerance,
                    std::int64_t hidden);

// The first of these rows whose bits differ (zeros of both signs are equal), or nothing: row i of
// `got` corresponds to row which[i] of `expected`.
std::string compare_bits(const std::vector<float>& got, const std::vector<float>& expected,
                         std::span<const std::int64_t> which, std::int64_t hidden);

}  // namespace motley::moe::conformance
