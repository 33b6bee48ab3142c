#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/experts/exact.h"
#include "kernels/weight_view.h"

// Random expert layers, batches and adapters on the host, and the layer's answer in float64.
namespace motley::gpu_tests {

struct WorldShape {
  int experts = 5;
  int experts_per_token = 2;
  int hidden = 96;
  int intermediate = 48;
  kernels::WeightKind kind = kernels::WeightKind::bf16;
  int group = 32;  // of int4
  // Of codes of 8 bits: what shares a scale. No columns: all of a row.
  int scale_rows = 1;
  int scale_columns = 128;
  bool zero_points = false;         // of int8
  bool e8m0_scales = false;         // of FP8: powers of two in a byte
  kernels::InputRounding inputs{};  // of base weights
  kernels::cuda::ExpertActivation activation = kernels::cuda::ExpertActivation::silu_mul;
  bool biases = false;
};

// One linear map of one expert: the bytes of its file, and the numbers that they mean.
struct WorldMatrix {
  int out = 0;
  int in = 0;
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;              // of codes: [ceil(out / rows), ceil(in / columns)]
  std::vector<std::uint8_t> zero_points;  // as scales, 128 more than they are
  std::vector<double> values;             // [out, in]
};

struct WorldLayer {
  WorldShape shape;
  std::vector<WorldMatrix> gate, up, down;  // [experts]
  std::vector<float> gate_bias, up_bias, down_bias;
};
WorldLayer make_layer(const WorldShape& shape, unsigned seed);

// Rank 0: absent. Numbers are exact in bf16.
struct WorldFactor {
  int rank = 0;
  float scale = 1;
  std::vector<float> a;  // [rank, in]
  std::vector<float> b;  // [out, rank]
};

struct WorldAdapter {
  std::vector<WorldFactor> gate, up, down;  // [experts]; empty: nothing at this map
};

struct AdapterSpec {
  int rank = 16;
  int up_rank = 0;             // 0: as gate's
  bool fused_gate_up = false;  // gate and up share A
  bool shared_outer = false;   // gate's and up's A, down's B are one for all experts
  bool holes = false;          // every third expert has none
  bool no_gate = false;        // nothing at gate
  bool no_down = false;
  bool zero = false;    // B is zero
  bool coarse = false;  // numbers that e4m3 holds with a power of two for each row's scale
  float scale = 0.5F;
};
WorldAdapter make_adapter(const WorldShape& shape, const AdapterSpec& spec, unsigned seed);

struct WorldTerm {
  int adapter;
  float scale;
};

struct WorldRows {
  std::int64_t tokens = 0;
  std::vector<float> x;              // [T, H], exact in bf16
  std::vector<std::int32_t> ids;     // [T, K]
  std::vector<float> weights;        // [T, K]
  std::vector<std::int32_t> labels;  // [T] or empty
};

enum class WorldRoutes : std::uint8_t { spread, strange, hot, few };
// `label_count` 0: no labels. Else labels -1 .. label_count - 1.
WorldRows make_rows(const WorldShape& shape, std::int64_t tokens, WorldRoutes routes,
                    int label_count, unsigned seed);
WorldRows pick_rows(const WorldRows& rows, const WorldShape& shape,
                    std::span<const std::int64_t> which);

using WorldMixes = std::vector<std::vector<WorldTerm>>;  // by label

// [T, H] in float64; h is rounded to bf16 where `round_h` says so.
std::vector<double> define_layer(const WorldLayer& layer, const WorldRows& rows,
                                 const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes,
                                 bool round_h);

// |got - want| / |want| over all, and over the worst single row; NaN where got has one.
struct RelativeError {
  double all = 0;
  double worst_row = 0;
};
RelativeError relative_error(std::span<const float> got, std::span<const double> want,
                             std::int64_t columns);

std::uint16_t bf16_bits(float value);
float bf16_value(std::uint16_t bits);

}  // namespace motley::gpu_tests
