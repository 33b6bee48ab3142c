#include "gpu/expert_world.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/number_types.h"
#include "kernels/input_rounding.h"

namespace motley::gpu_tests {
namespace {

using kernels::WeightKind;
using kernels::cuda::ExpertActivation;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Multiples of 1/64 in [-1, 1): exact in bf16, times any power of two.
float random_value(std::mt19937& random) {
  return (static_cast<float>(random() % 128) - 64.0F) / 64.0F;
}

// Of few bits: exact in e4m3, whatever power of two it is multiplied by.
float coarse_value(std::mt19937& random) {
  const auto value = static_cast<float>(8 + random() % 8) / 8.0F;
  return std::ldexp(random() % 2 == 0 ? value : -value, -static_cast<int>(random() % 6));
}

// A byte's number in its type; all but the NaNs of FP8.
struct ByteCode {
  std::uint8_t bits;
  float value;
};
ByteCode random_code(WeightKind kind, std::mt19937& random) {
  auto bits = static_cast<std::uint8_t>(random());
  if (kind == WeightKind::i8) return {bits, static_cast<float>(static_cast<std::int8_t>(bits))};
  if ((bits & 0x7F) == 0x7F) --bits;
  return {bits, f8_e4m3{bits}.to_float()};
}

// Near the middle, as files have them, and a few of the ends. Where rows had large ones throughout,
// an output would be little more than one sum times its own, and that sum's error all of its error.
std::uint8_t random_zero(std::mt19937& random) {
  const auto number = random();
  if (number % 64 == 0) return number % 128 == 0 ? 0 : 255;
  return static_cast<std::uint8_t>(112 + number / 64 % 32);
}

// Codes of 8 bits.
void fill_codes(WorldMatrix& matrix, const WorldShape& shape, float unit, std::mt19937& random) {
  const int rows = shape.scale_rows;
  const int columns = shape.scale_columns == 0 ? matrix.in : shape.scale_columns;
  const int groups = (matrix.in + columns - 1) / columns;
  const float largest = shape.kind == WeightKind::i8 ? 128.0F : 256.0F;
  for (int i = 0; i < (matrix.out + rows - 1) / rows * groups; ++i) {
    const float scale = unit / largest * (1.0F + static_cast<float>(random() % 1024) / 1024.0F);
    matrix.scales.push_back(shape.e8m0_scales ? f8_e8m0::from_rounded_up(scale).to_float() : scale);
    if (shape.zero_points) matrix.zero_points.push_back(random_zero(random));
  }
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    const ByteCode code = random_code(shape.kind, random);
    matrix.bytes.push_back(code.bits);
    const std::size_t row = i / at(matrix.in) / at(rows);
    const std::size_t place = row * at(groups) + i % at(matrix.in) / at(columns);
    const int zero = shape.zero_points ? matrix.zero_points[place] - 128 : 0;
    matrix.values[i] = (double(code.value) - zero) * double(matrix.scales[place]);
  }
}

WorldMatrix make_matrix(const WorldShape& shape, int out, int in, std::mt19937& random) {
  WorldMatrix matrix{
      .out = out, .in = in, .bytes = {}, .scales = {}, .zero_points = {}, .values = {}};
  const float unit = 4.0F / std::sqrt(static_cast<float>(std::bit_ceil(unsigned(in)))) / 2.0F;
  matrix.values.resize(at(std::int64_t{out} * in));
  if (shape.kind == WeightKind::i8 || shape.kind == WeightKind::f8_e4m3) {
    fill_codes(matrix, shape, unit, random);
    return matrix;
  }
  if (shape.kind == WeightKind::int4) {
    const int groups = (in + shape.group - 1) / shape.group;
    const int row_bytes = (in + 1) / 2;
    matrix.bytes.resize(at(std::int64_t{out} * row_bytes));
    for (int row = 0; row < out; ++row) {
      for (int group = 0; group < groups; ++group) {
        const float scale = unit / 8.0F * (1.0F + static_cast<float>(random() % 64) / 64.0F);
        matrix.scales.push_back(bf16_value(bf16_bits(scale)));
      }
      for (int k = 0; k < in; ++k) {
        const int code = static_cast<int>(random() % 16);
        std::uint8_t& byte = matrix.bytes[at(std::int64_t{row} * row_bytes + k / 2)];
        byte = static_cast<std::uint8_t>(byte | code << (k % 2 * 4));
        matrix.values[at(std::int64_t{row} * in + k)] =
            static_cast<double>(code - 8) *
            static_cast<double>(matrix.scales[at(std::int64_t{row} * groups + k / shape.group)]);
      }
    }
    return matrix;
  }
  const std::size_t width = shape.kind == WeightKind::f32 ? 4 : 2;
  matrix.bytes.resize(matrix.values.size() * width);
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    const float value = bf16_value(bf16_bits(random_value(random) * unit));
    matrix.values[i] = static_cast<double>(value);
    if (width == 4) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      for (std::size_t b = 0; b < 4; ++b)
        matrix.bytes[4 * i + b] = static_cast<std::uint8_t>(bits >> (8 * b));
    } else {
      const std::uint16_t bits = bf16_bits(value);
      matrix.bytes[2 * i] = static_cast<std::uint8_t>(bits);
      matrix.bytes[2 * i + 1] = static_cast<std::uint8_t>(bits >> 8);
    }
  }
  return matrix;
}

std::vector<float> make_bias(const WorldShape& shape, int width, std::mt19937& random) {
  std::vector<float> bias;
  if (!shape.biases) return bias;
  bias.resize(at(std::int64_t{shape.experts} * width));
  for (float& value : bias) value = random_value(random);
  return bias;
}

std::vector<float> random_floats(std::int64_t count, float unit, std::mt19937& random) {
  std::vector<float> values(at(count));
  for (float& value : values) value = bf16_value(bf16_bits(random_value(random) * unit));
  return values;
}

double sigmoid_times(double value, double alpha) {
  return value / (1.0 + std::exp(-alpha * value));
}

double activate(const WorldShape& shape, double gate, double up) {
  if (shape.activation == ExpertActivation::silu_mul) return sigmoid_times(gate, 1.0) * up;
  constexpr double limit = 7.0;
  constexpr double alpha = static_cast<double>(1.702F);
  return (std::clamp(up, -limit, limit) + 1.0) * sigmoid_times(std::min(gate, limit), alpha);
}

std::vector<double> product(const WorldMatrix& w, std::span<const double> x) {
  std::vector<double> y(at(w.out));
  for (int o = 0; o < w.out; ++o) {
    const double* const row = w.values.data() + std::int64_t{o} * w.in;
    double sum = 0;
    for (int k = 0; k < w.in; ++k) sum += row[k] * x[at(k)];
    y[at(o)] = sum;
  }
  return y;
}

// What the base's weights multiply.
std::vector<double> rounded(const kernels::InputRounding& rounding, std::vector<double> x) {
  using Scales = kernels::InputRounding::Scales;
  if (rounding.scales == Scales::none) return x;
  const std::size_t part = rounding.scales == Scales::row_block ? at(rounding.columns) : x.size();
  for (std::size_t begin = 0; begin < x.size(); begin += part) {
    const std::span numbers = std::span(x).subspan(begin, std::min(part, x.size() - begin));
    float largest = 0;
    for (const double number : numbers) largest = std::max(largest, float(std::abs(number)));
    const float scale = kernels::input_scale(rounding, largest);
    for (double& number : numbers)
      number = double(kernels::rounded_input(rounding, scale, float(number)));
  }
  return x;
}

void add_factor(const std::vector<WorldFactor>& factors, int expert, float scale,
                std::span<const double> x, std::vector<double>& y) {
  if (factors.empty()) return;
  const WorldFactor& factor = factors[at(expert)];
  for (int r = 0; r < factor.rank; ++r) {
    double t = 0;
    for (std::size_t k = 0; k < x.size(); ++k)
      t += static_cast<double>(factor.a[at(r) * x.size() + k]) * x[k];
    t *= static_cast<double>(factor.scale) * static_cast<double>(scale);
    for (std::size_t o = 0; o < y.size(); ++o)
      y[o] += t * static_cast<double>(factor.b[o * at(factor.rank) + at(r)]);
  }
}

}  // namespace

std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

WorldLayer make_layer(const WorldShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  WorldLayer layer{.shape = shape};
  for (int expert = 0; expert < shape.experts; ++expert) {
    layer.gate.push_back(make_matrix(shape, shape.intermediate, shape.hidden, random));
    layer.up.push_back(make_matrix(shape, shape.intermediate, shape.hidden, random));
    layer.down.push_back(make_matrix(shape, shape.hidden, shape.intermediate, random));
  }
  layer.gate_bias = make_bias(shape, shape.intermediate, random);
  layer.up_bias = make_bias(shape, shape.intermediate, random);
  layer.down_bias = make_bias(shape, shape.hidden, random);
  return layer;
}

WorldAdapter make_adapter(const WorldShape& shape, const AdapterSpec& spec, unsigned seed) {
  std::mt19937 random(seed * 7919 + 3);
  const auto unit_of = [&](int width) {
    const float unit = 1.0F / std::sqrt(float(width));
    return spec.coarse ? std::exp2(std::round(std::log2(unit))) : unit;
  };
  const auto numbers = [&](std::int64_t count, float unit) {
    std::vector<float> values = random_floats(count, unit, random);
    if (spec.coarse) std::ranges::generate(values, [&] { return coarse_value(random) * unit; });
    return values;
  };
  const auto factor = [&](int rank, int in, int out) {
    WorldFactor f{.rank = rank, .scale = spec.scale, .a = {}, .b = {}};
    f.a = numbers(std::int64_t{rank} * in, unit_of(in));
    f.b = numbers(std::int64_t{rank} * out, spec.zero ? 0.0F : unit_of(rank));
    return f;
  };
  WorldAdapter adapter;
  for (int expert = 0; expert < shape.experts; ++expert) {
    WorldFactor gate = factor(spec.rank, shape.hidden, shape.intermediate);
    WorldFactor up = factor(spec.up_rank > 0 && !spec.fused_gate_up ? spec.up_rank : spec.rank,
                            shape.hidden, shape.intermediate);
    WorldFactor down = factor(spec.rank, shape.intermediate, shape.hidden);
    if (spec.fused_gate_up) up.a = gate.a;
    if (spec.shared_outer && expert > 0) {
      gate.a = adapter.gate[0].a;
      up.a = adapter.up[0].a;
      down.b = adapter.down[0].b;
    }
    if (spec.holes && expert % 3 == 1) gate = up = down = WorldFactor();
    adapter.gate.push_back(std::move(gate));
    adapter.up.push_back(std::move(up));
    adapter.down.push_back(std::move(down));
  }
  if (spec.no_gate) adapter.gate.clear();
  if (spec.no_down) adapter.down.clear();
  return adapter;
}

WorldRows make_rows(const WorldShape& shape, std::int64_t tokens, WorldRoutes routes,
                    int label_count, unsigned seed) {
  std::mt19937 random(seed * 104729 + 11);
  WorldRows rows{.tokens = tokens};
  rows.x = random_floats(tokens * shape.hidden, 2.0F, random);
  std::vector<std::int32_t> experts(at(shape.experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (routes != WorldRoutes::few) std::shuffle(experts.begin(), experts.end(), random);
    for (int slot = 0; slot < shape.experts_per_token; ++slot) {
      std::int32_t id = experts[at(slot)];
      if (routes == WorldRoutes::hot && slot == 0) id = shape.experts - 1;
      // Token 1 has no expert at all.
      if (routes == WorldRoutes::strange && (token == 1 || random() % 5 == 0))
        id = random() % 2 == 0 ? -1 : shape.experts + static_cast<int>(random() % 100);
      rows.ids.push_back(id);
      rows.weights.push_back(0.05F + static_cast<float>(random() % 1000) / 1000.0F);
    }
    if (label_count > 0)
      rows.labels.push_back(static_cast<std::int32_t>(random() % unsigned(label_count + 1)) - 1);
  }
  return rows;
}

WorldRows pick_rows(const WorldRows& rows, const WorldShape& shape,
                    std::span<const std::int64_t> which) {
  WorldRows picked{.tokens = static_cast<std::int64_t>(which.size())};
  for (const std::int64_t token : which) {
    const auto copy = [&](const auto& from, auto& to, std::int64_t width) {
      to.insert(to.end(), from.begin() + token * width, from.begin() + (token + 1) * width);
    };
    copy(rows.x, picked.x, shape.hidden);
    copy(rows.ids, picked.ids, shape.experts_per_token);
    copy(rows.weights, picked.weights, shape.experts_per_token);
    if (!rows.labels.empty()) copy(rows.labels, picked.labels, 1);
  }
  return picked;
}

std::vector<double> define_layer(const WorldLayer& layer, const WorldRows& rows,
                                 const std::vector<WorldAdapter>& adapters, const WorldMixes& mixes,
                                 bool round_h) {
  const WorldShape& shape = layer.shape;
  const int hidden = shape.hidden;
  const int inner = shape.intermediate;
  std::vector<double> out(at(rows.tokens * hidden), 0.0);
  for (std::int64_t token = 0; token < rows.tokens; ++token) {
    const std::vector<double> x(rows.x.begin() + token * hidden,
                                rows.x.begin() + (token + 1) * hidden);
    const std::int32_t label = rows.labels.empty() ? -1 : rows.labels[at(token)];
    for (int slot = 0; slot < shape.experts_per_token; ++slot) {
      const std::int64_t pair = token * shape.experts_per_token + slot;
      const int expert = rows.ids[at(pair)];
      if (expert < 0 || expert >= shape.experts) continue;
      const std::vector<double> base_x = rounded(shape.inputs, x);
      std::vector<double> gate = product(layer.gate[at(expert)], base_x);
      std::vector<double> up = product(layer.up[at(expert)], base_x);
      const auto for_terms = [&](auto body) {
        if (label < 0) return;
        for (const WorldTerm& term : mixes[at(label)]) body(adapters[at(term.adapter)], term.scale);
      };
      for_terms([&](const WorldAdapter& adapter, float scale) {
        add_factor(adapter.gate, expert, scale, x, gate);
        add_factor(adapter.up, expert, scale, x, up);
      });
      std::vector<double> h(at(inner));
      for (int i = 0; i < inner; ++i) {
        const std::size_t bias = at(std::int64_t{expert} * inner + i);
        const double g = gate[at(i)] + (shape.biases ? double(layer.gate_bias[bias]) : 0.0);
        const double u = up[at(i)] + (shape.biases ? double(layer.up_bias[bias]) : 0.0);
        const double value = activate(shape, g, u);
        h[at(i)] = round_h ? double(bf16_value(bf16_bits(float(value)))) : value;
      }
      std::vector<double> down = product(layer.down[at(expert)], rounded(shape.inputs, h));
      for_terms([&](const WorldAdapter& adapter, float scale) {
        add_factor(adapter.down, expert, scale, h, down);
      });
      for (int i = 0; i < hidden; ++i) {
        const double bias =
            shape.biases ? double(layer.down_bias[at(std::int64_t{expert} * hidden + i)]) : 0.0;
        out[at(token * hidden + i)] += double(rows.weights[at(pair)]) * (down[at(i)] + bias);
      }
    }
  }
  return out;
}

RelativeError relative_error(std::span<const float> got, std::span<const double> want,
                             std::int64_t columns) {
  RelativeError result;
  double error = 0;
  double norm = 0;
  const auto ratio = [](double e, double n) {
    if (e == 0) return 0.0;
    return n > 0 ? std::sqrt(e / n) : std::numeric_limits<double>::quiet_NaN();
  };
  for (std::size_t row = 0; row < want.size(); row += at(columns)) {
    double row_error = 0;
    double row_norm = 0;
    for (std::size_t i = row; i < row + at(columns); ++i) {
      const double difference = double(got[i]) - want[i];
      row_error += difference * difference;
      row_norm += want[i] * want[i];
    }
    error += row_error;
    norm += row_norm;
    // Written so that NaN is the worst.
    const double one = ratio(row_error, row_norm);
    if (!(one <= result.worst_row)) result.worst_row = one;
  }
  result.all = ratio(error, norm);
  return result;
}

}  // namespace motley::gpu_tests
