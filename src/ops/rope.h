#pragma once

#include <cstdint>
#include <vector>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

// How a family rotates its queries and keys by position.
struct RopeSpec {
  enum class Pairs : std::uint8_t { half, interleaved };
  enum class Scaling : std::uint8_t { none, linear, llama3, yarn };

  Pairs pairs = Pairs::half;
  std::int64_t dims = 0;  // how many of a head's elements are rotated; even
  double base = 10000.0;
  Scaling scaling = Scaling::none;
  double factor = 1.0;

  // llama3 and yarn: the length for which the model was first trained.
  double original_max_positions = 0.0;

  // llama3.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;

  // yarn. Zero: the configuration lacks the key.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  double attention_factor = 0.0;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;

  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

// The result of a spec: cos and sin of positions * inverse_frequencies, times attention_factor.
struct RopeFrequencies {
  std::vector<float> inverse_frequencies;  // [dims / 2]
  float attention_factor = 1.0F;
  bool interleaved = false;
};
RopeFrequencies rope_frequencies(const RopeSpec& spec);

// 0.1 * mscale * ln(factor) + 1, or 1 if factor <= 1: yarn's correction of magnitudes. MLA's
// softmax scale uses its square.
double yarn_magnitude(double factor, double mscale);

// Fills cos_sin [R, dims] (f32) for positions [R]: once a step, for all layers that share the
// inverse frequencies [dims / 2] (f32).
void rope_table(const Context& context, const tensor::ConstTensor& inverse_frequencies,
                float attention_factor, const std::int32_t* positions,
                const tensor::Tensor& cos_sin);

}  // namespace motley::ops
