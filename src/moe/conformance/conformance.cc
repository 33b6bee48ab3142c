#include "moe/conformance/conformance.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/cat.h"
#include "base/check.h"
#include "quant/formats.h"
#include "quant/test_weights.h"

namespace motley::moe::conformance {
namespace {

using Scales = quant::Format::Scales;
using Random = std::mt19937;

// All but those that round inputs: rounding makes jumps of the smallest differences, which no
// tolerance by magnitude covers.
const std::vector<quant::Format>& all_formats() {
  static const std::vector<quant::Format> all = [] {
    std::vector<quant::Format> chosen;
    for (const quant::KnownFormat& known : quant::known_formats()) {
      if (known.format.inputs == kernels::InputRounding::Scales::none)
        chosen.push_back(known.format);
    }
    return chosen;
  }();
  return all;
}

constexpr std::array all_activations{ActivationKind::silu_mul, ActivationKind::clamped_swiglu};

// Nearly normal: the sum of four draws of 16 bits, a fifth of the time of a logarithm's.
float normal(Random& random, double deviation) {
  const std::uint32_t draws[] = {static_cast<std::uint32_t>(random()),
                                 static_cast<std::uint32_t>(random())};
  std::int64_t sum = -2 * 65535;
  for (const std::uint32_t draw : draws) sum += (draw >> 16) + (draw & 0xFFFF);
  constexpr double deviation_of_sum = 65536 / 1.7320508075688772;  // sqrt(4 / 12) of a draw's range
  return static_cast<float>(deviation * static_cast<double>(sum) / deviation_of_sum);
}

struct Matrix {
  const quant::Format& format;
  quant::TrueSize size;
  // Gate, whose order of inputs up has.
  const std::vector<quant::Weight>* inputs_of = nullptr;
  bool filled = false;  // in an order of inputs there are columns that mean zero
};
void add_expert(const Matrix& matrix, tensor::Allocator& allocator, Random& random,
                std::vector<quant::Weight>& weights, std::vector<std::vector<double>>& meanings) {
  const auto [out, in] = matrix.size;
  std::vector<float> wanted(static_cast<std::size_t>(out * in));
  const double deviation = 1 / std::sqrt(static_cast<double>(in));
  for (float& number : wanted) number = normal(random, deviation);
  quant::TestPacker packer(matrix.format, matrix.size, allocator, random);
  if (matrix.inputs_of != nullptr) packer.in_order_of(matrix.inputs_of->back());
  if (matrix.filled && matrix.format.input_order) packer.fill_up_to((in + 31) / 32 * 32 + 128);
  quant::TestWeight made = packer.pack(wanted);
  weights.push_back(std::move(made.weight));
  meanings.push_back(std::move(made.meaning));
}

std::vector<float> random_bias(bool wanted, std::int64_t length, Random& random) {
  std::vector<float> bias(static_cast<std::size_t>(wanted ? length : 0));
  for (float& number : bias) number = normal(random, 0.5);
  return bias;
}

// A value and its magnitude.
struct Number {
  double value = 0;
  double magnitude = 0;

  void add(double by) {
    value += by;
    magnitude += std::abs(by);
  }
  void add(double factor, const Number& by) {
    value += factor * by.value;
    magnitude += std::abs(factor) * by.magnitude;
  }
};

using Numbers = std::vector<Number>;

// y += W x
void multiply(std::span<const double> w, const Numbers& x, Numbers& y) {
  // Through pointers, because sanitized builds check every index of the containers. Rows go four at
  // a time: each sum waits for its last term, so the processor has others to add meanwhile.
  constexpr std::size_t at_once = 4;
  const std::size_t width = x.size();
  const Number* const numbers = x.data();
  Number* const sums = y.data();
  std::size_t o = 0;
  for (; o + at_once <= y.size(); o += at_once) {
    const double* const rows = w.data() + o * width;
    for (std::size_t i = 0; i < width; ++i) {
      for (std::size_t each = 0; each < at_once; ++each)
        sums[o + each].add(rows[each * width + i], numbers[i]);
    }
  }
  for (; o < y.size(); ++o) {
    for (std::size_t i = 0; i < width; ++i) sums[o].add(w[o * width + i], numbers[i]);
  }
}

const lora::SiteDelta* find(const lora::Adapter& adapter, lora::Projection projection) {
  for (const lora::SiteDelta& delta : adapter.sites)
    if (delta.site.projection == projection) return &delta;
  return nullptr;
}

// y += scale B A x for every term.
void add_deltas(std::span<const Term> terms, lora::Projection projection, std::size_t expert,
                const Numbers& x, Numbers& y) {
  for (const Term& term : terms) {
    const lora::SiteDelta* const delta = find(*term.adapter, projection);
    if (delta == nullptr || !delta->factors[expert].present()) continue;
    const lora::Factors& factors = delta->factors[expert];
    const auto matrix = [&](int place) -> std::vector<double> {
      const auto& values = term.adapter->matrices[static_cast<std::size_t>(place)].values;
      return {values.begin(), values.end()};
    };
    Numbers low(static_cast<std::size_t>(factors.rank));
    multiply(matrix(factors.a), x, low);
    const double scale = static_cast<double>(factors.scale) * static_cast<double>(term.scale);
    Numbers scaled(low.size());
    for (std::size_t r = 0; r < low.size(); ++r) scaled[r].add(scale, low[r]);
    multiply(matrix(factors.b), scaled, y);
  }
}

void add_bias(const std::vector<float>& bias, std::size_t expert, Numbers& y) {
  if (bias.empty()) return;
  for (std::size_t o = 0; o < y.size(); ++o) y[o].add(bias[expert * y.size() + o]);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Number activate(const ExpertWeights& weights, const Number& gate, const Number& up) {
  // |d/dg g sigma(a g)| <= 1.1 for every a; a clamp is never steeper than 1.
  constexpr double slope = 1.1;
  double g = gate.value;
  double u = up.value;
  double swish = g * sigmoid(g);
  if (weights.activation == ActivationKind::clamped_swiglu) {
    const double limit = static_cast<double>(weights.swiglu_limit);
    g = std::min(g, limit);
    u = std::clamp(u, -limit, limit) + 1;
    swish = g * sigmoid(static_cast<double>(weights.swiglu_alpha) * g);
  }
  return {.value = swish * u,
          .magnitude = slope * std::abs(u) * gate.magnitude + std::abs(swish) * up.magnitude +
                       std::abs(swish * u)};
}

}  // namespace

std::span<const quant::Format> formats() { return all_formats(); }
std::span<const ActivationKind> activations() { return all_activations; }

std::string identifier(const quant::Format& format) {
  std::string text = quant::to_string(format);
  std::ranges::replace_if(
      text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  // Not all of it stands in the text.
  if (format.scales != Scales::none && format.element != DType::f4)
    text += cat("_", name(format.scale_type));
  if (format.power_of_two_inputs) text += "_powers_of_two";
  return text;
}

std::string to_string(const LayerSpec& spec) {
  return cat("gate_up ", identifier(spec.gate_up), ", down ", identifier(spec.down), ", H ",
             spec.hidden, ", I ", spec.intermediate, ", E ", spec.experts, ", K ", spec.top_k, ", ",
             name(spec.activation), spec.biases ? ", biases" : "");
}

Problem Layer::problem(bool exact, tensor::DeviceKind device, bool lora) const {
  return problem_of(weights, {.top_k = spec.top_k, .lora = lora, .exact = exact, .device = device});
}

Layer make_layer(const LayerSpec& spec, tensor::Allocator& allocator, unsigned seed) {
  Random random(seed);
  Layer layer;
  layer.spec = spec;
  ExpertWeights& weights = layer.weights;
  weights.experts = spec.experts;
  weights.hidden = spec.hidden;
  weights.intermediate = spec.intermediate;
  weights.activation = spec.activation;
  // Low enough that many numbers are clamped.
  weights.swiglu_limit = 0.9F;
  const quant::TrueSize wide{.out = spec.intermediate, .in = spec.hidden};
  const quant::TrueSize narrow{.out = spec.hidden, .in = spec.intermediate};
  for (int expert = 0; expert < spec.experts; ++expert) {
    add_expert({spec.gate_up, wide}, allocator, random, weights.gate, layer.gate);
    add_expert({spec.gate_up, wide, &weights.gate}, allocator, random, weights.up, layer.up);
    add_expert({.format = spec.down, .size = narrow, .filled = true}, allocator, random,
               weights.down, layer.down);
  }
  weights.gate_bias = random_bias(spec.biases, spec.experts * spec.intermediate, random);
  weights.up_bias = random_bias(spec.biases, spec.experts * spec.intermediate, random);
  weights.down_bias = random_bias(spec.biases, spec.experts * spec.hidden, random);
  MOTLEY_CHECK(validate(weights).ok(), "a layer that validate() takes");
  return layer;
}

Rows Rows::pick(std::span<const std::int64_t> which) const {
  Rows picked;
  picked.tokens = static_cast<std::int64_t>(which.size());
  const auto copy = [&](const auto& from, auto& to) {
    const auto width = static_cast<std::int64_t>(from.size()) / tokens;
    for (const std::int64_t token : which)
      to.insert(to.end(), from.begin() + token * width, from.begin() + (token + 1) * width);
  };
  copy(x, picked.x);
  copy(ids, picked.ids);
  copy(routing_weights, picked.routing_weights);
  if (!mixes.empty()) copy(mixes, picked.mixes);
  return picked;
}

Rows make_rows(const LayerSpec& spec, std::int64_t tokens, Routes routes, unsigned seed) {
  Random random(seed);
  Rows rows;
  rows.tokens = tokens;
  for (std::int64_t i = 0; i < tokens * spec.hidden; ++i)
    rows.x.push_back(bf16::from(normal(random, 1)).to_float());
  std::vector<std::int32_t> experts(static_cast<std::size_t>(spec.experts));
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::iota(experts.begin(), experts.end(), 0);
    if (routes != Routes::few) std::shuffle(experts.begin(), experts.end(), random);
    if (routes == Routes::hot) std::swap(experts[0], *std::ranges::find(experts, spec.experts - 1));
    for (int slot = 0; slot < spec.top_k; ++slot) {
      std::int32_t id = experts[static_cast<std::size_t>(slot)];
      if (routes == Routes::strange && (token == tokens / 2 || random() % 3 == 0)) {
        const std::int32_t strange[] = {-1, spec.experts, spec.experts + 7,
                                        std::numeric_limits<std::int32_t>::min(),
                                        std::numeric_limits<std::int32_t>::max()};
        id = strange[random() % std::size(strange)];
      }
      rows.ids.push_back(id);
      rows.routing_weights.push_back(std::uniform_real_distribution<float>(0.05F, 1)(random));
    }
  }
  return rows;
}

Truth define(const Layer& layer, const Rows& rows) {
  const LayerSpec& spec = layer.spec;
  const auto hidden = static_cast<std::size_t>(spec.hidden);
  const auto top_k = static_cast<std::size_t>(spec.top_k);
  Truth truth;
  for (std::size_t token = 0; token < static_cast<std::size_t>(rows.tokens); ++token) {
    Numbers x(hidden);
    for (std::size_t i = 0; i < hidden; ++i) x[i].add(rows.x[token * hidden + i]);
    const std::span<const Term> mix =
        rows.mixes.empty() ? std::span<const Term>() : rows.mixes[token];
    Numbers out(hidden);
    for (std::size_t pair = token * top_k; pair < (token + 1) * top_k; ++pair) {
      if (rows.ids[pair] < 0 || rows.ids[pair] >= spec.experts) continue;
      const auto expert = static_cast<std::size_t>(rows.ids[pair]);
      Numbers gate(static_cast<std::size_t>(spec.intermediate));
      Numbers up(gate.size());
      multiply(layer.gate[expert], x, gate);
      multiply(layer.up[expert], x, up);
      add_deltas(mix, lora::Projection::expert_gate, expert, x, gate);
      add_deltas(mix, lora::Projection::expert_up, expert, x, up);
      add_bias(layer.weights.gate_bias, expert, gate);
      add_bias(layer.weights.up_bias, expert, up);
      Numbers h(gate.size());
      for (std::size_t i = 0; i < h.size(); ++i) h[i] = activate(layer.weights, gate[i], up[i]);
      Numbers down(hidden);
      multiply(layer.down[expert], h, down);
      add_deltas(mix, lora::Projection::expert_down, expert, h, down);
      add_bias(layer.weights.down_bias, expert, down);
      for (std::size_t i = 0; i < hidden; ++i)
        out[i].add(static_cast<double>(rows.routing_weights[pair]), down[i]);
    }
    for (const Number& number : out) {
      truth.values.push_back(number.value);
      truth.magnitude.push_back(number.magnitude);
    }
  }
  return truth;
}

double tolerance(const LayerSpec& spec, Compute compute, tensor::DeviceKind device) {
  // Float32: half an ulp for each term of the two chained sums (H of gate and up, I of down, K of
  // the combination, and up to 64 more for ranks, scales, biases and the activation), all in one
  // direction.
  const auto terms = static_cast<double>(spec.hidden + spec.intermediate + spec.top_k + 64);
  const double sums = terms * std::ldexp(1.0, -24);
  if (compute.exact) return sums;
  // bf16: half an ulp, 2^-9, for each rounding on the longest path, which has two weights and h; a
  // rounded row in rank space takes the place of its weight.
  const double half_ulp = std::ldexp(1.0, -9);
  if (device == tensor::DeviceKind::cpu) {
    // Decoded weights are rounded, and x unless it is bf16.
    return sums + 4 * half_ulp;
  }
  // Rounded are decoded weights, scales of int4, and an expert's output.
  const auto roundings = [](const quant::Format& format) {
    return format.scales == Scales::group ? 2 : 1;
  };
  return sums + (roundings(spec.gate_up) + 1 + roundings(spec.down) + 1) * half_ulp;
}

std::string compare(const std::vector<float>& got, const Truth& truth, double tolerance,
                    std::int64_t hidden) {
  if (got.size() != truth.values.size())
    return cat(got.size(), " values, not ", truth.values.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - truth.values[i]);
    // Written so that NaN fails.
    if (error <= tolerance * truth.magnitude[i]) continue;
    return cat("token ", i / static_cast<std::size_t>(hidden), ", element ",
               i % static_cast<std::size_t>(hidden), ": ", got[i], ", not ", truth.values[i],
               ", beyond ", tolerance * truth.magnitude[i]);
  }
  return {};
}

std::string compare_bits(const std::vector<float>& got, const std::vector<float>& expected,
                         std::span<const std::int64_t> which, std::int64_t hidden) {
  for (std::size_t row = 0; row < which.size(); ++row) {
    for (std::int64_t i = 0; i < hidden; ++i) {
      const float a = got[row * static_cast<std::size_t>(hidden) + static_cast<std::size_t>(i)];
      const float b = expected[static_cast<std::size_t>(which[row] * hidden + i)];
      if (a == b) continue;
      return cat("row ", row, " (token ", which[row], "), element ", i, ": ", a, ", not ", b);
    }
  }
  return {};
}

}  // namespace motley::moe::conformance
