#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/elementary.h"
#include "ops/check.h"

namespace motley::ops {
namespace {

double llama3_frequency(const RopeSpec& spec, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > spec.original_max_positions / spec.low_freq_factor)
    return frequency / spec.factor;
  if (wavelength < spec.original_max_positions / spec.high_freq_factor) return frequency;
  const double part = (spec.original_max_positions / wavelength - spec.low_freq_factor) /
                      (spec.high_freq_factor - spec.low_freq_factor);
  return (1 - part) * frequency / spec.factor + part * frequency;
}

// The dimension whose wave makes `rotations` rotations over the original length.
double yarn_bound(const RopeSpec& spec, double rotations) {
  const double length = spec.original_max_positions / (rotations * 2 * std::numbers::pi);
  return static_cast<double>(spec.dims) * std::log(length) / (2 * std::log(spec.base));
}

struct YarnRamp {
  double low;
  double high;
};

YarnRamp yarn_ramp(const RopeSpec& spec) {
  double low = yarn_bound(spec, spec.beta_fast);
  double high = yarn_bound(spec, spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.dims - 1));
  if (low == high) high += 0.001;
  return {low, high};
}

double yarn_attention_factor(const RopeSpec& spec) {
  if (spec.attention_factor != 0) return spec.attention_factor;
  if (spec.mscale != 0 && spec.mscale_all_dim != 0) {
    return yarn_magnitude(spec.factor, spec.mscale) /
           yarn_magnitude(spec.factor, spec.mscale_all_dim);
  }
  return yarn_magnitude(spec.factor, 1.0);
}

}  // namespace

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeFrequencies rope_frequencies(const RopeSpec& spec) {
  MOTLEY_CHECK(spec.dims > 0 && spec.dims % 2 == 0, "an even number of rotated elements");
  MOTLEY_CHECK(spec.base > 0 && spec.factor > 0, "a base and a factor above zero");
  const bool needs_length =
      spec.scaling == RopeSpec::Scaling::llama3 || spec.scaling == RopeSpec::Scaling::yarn;
  MOTLEY_CHECK(!needs_length || spec.original_max_positions > 0, "the length of first training");

  RopeFrequencies frequencies;
  frequencies.interleaved = spec.pairs == RopeSpec::Pairs::interleaved;
  const std::int64_t pairs = spec.dims / 2;
  frequencies.inverse_frequencies.reserve(static_cast<std::size_t>(pairs));
  const bool yarn = spec.scaling == RopeSpec::Scaling::yarn;
  const YarnRamp ramp = yarn ? yarn_ramp(spec) : YarnRamp{0, 1};
  for (std::int64_t i = 0; i < pairs; ++i) {
    double inverse =
        1.0 / std::pow(spec.base, static_cast<double>(2 * i) / static_cast<double>(spec.dims));
    switch (spec.scaling) {
      case RopeSpec::Scaling::none:
        break;
      case RopeSpec::Scaling::linear:
        inverse /= spec.factor;
        break;
      case RopeSpec::Scaling::llama3:
        inverse = llama3_frequency(spec, inverse);
        break;
      case RopeSpec::Scaling::yarn: {
        const double slow =
            std::clamp((static_cast<double>(i) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
        inverse = inverse / spec.factor * slow + inverse * (1 - slow);
        break;
      }
    }
    frequencies.inverse_frequencies.push_back(static_cast<float>(inverse));
  }
  if (yarn) frequencies.attention_factor = static_cast<float>(yarn_attention_factor(spec));
  return frequencies;
}

void rope_table(const Context& context, const tensor::ConstTensor& inverse_frequencies,
                float attention_factor, const std::int32_t* positions,
                const tensor::Tensor& cos_sin) {
  check_context(context);
  check_float32(cos_sin, 2);
  check_float32(inverse_frequencies, 1);
  const std::int64_t pairs = inverse_frequencies.dim(0);
  MOTLEY_CHECK(cos_sin.is_contiguous() && cos_sin.dim(1) == 2 * pairs,
               "a cosine and a sine for each pair");
  context.kernels->rope_table({.rows = cos_sin.dim(0),
                               .pairs = pairs,
                               .positions = positions,
                               .inverse_frequencies = inverse_frequencies.data<float>(),
                               .factor = attention_factor,
                               .cos_sin = cos_sin.data<float>()},
                              context.stream);
}

}  // namespace motley::ops
