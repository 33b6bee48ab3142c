#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "recurrence/world.h"

// Recurrent layers against loops in float64, which go from row to row.
namespace motley::recurrence_tests {
namespace {

class Recurrence : public testing::TestWithParam<Layer> {};
INSTANTIATE_TEST_SUITE_P(Layers, Recurrence, testing::ValuesIn(layers()),
                         [](const auto& test) { return name_of(test.param); });

// A value, and the sum of the magnitudes of what it is made of; of a correction, that of its value.
struct Sum {
  double value = 0;
  double magnitude = 0;
};

std::vector<Sum> loop(const Layer& layer, const InputRows& rows, std::int64_t count) {
  const auto& [mixer, form] = layer;
  std::vector<Sum> out;
  const auto at = [](const std::vector<float>& all, std::int64_t i) {
    return static_cast<double>(all[static_cast<std::size_t>(i)]);
  };
  const auto key_at = [&](std::int64_t i) {
    return rounded(rows.k[static_cast<std::size_t>(i)], form.keys);
  };
  const auto query_at = [&](std::int64_t i) {
    return rounded(rows.q[static_cast<std::size_t>(i)], form.queries);
  };
  const std::int64_t dk = mixer.key_width, dv = mixer.value_width;
  std::vector<Sum> states(static_cast<std::size_t>(mixer.value_heads * dk * dv));
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t h = 0; h < mixer.value_heads; ++h) {
      const std::int64_t key_head = h / (mixer.value_heads / mixer.key_heads);
      const std::int64_t key = t * mixer.keys() + key_head * dk;
      Sum* const state = states.data() + h * dk * dv;
      for (std::int64_t d = 0; d < dk; ++d) {
        const std::int64_t decay = t * mixer.decays() + (mixer.decay_by_key ? h * dk + d : h);
        for (std::int64_t i = 0; i < dv; ++i) {
          state[d * dv + i].value *= std::exp(at(rows.g, decay));
          state[d * dv + i].magnitude *= std::exp(at(rows.g, decay));
        }
      }
      for (std::int64_t i = 0; i < dv; ++i) {
        const double v = at(rows.v, t * mixer.values() + h * dv + i);
        Sum update{v, std::abs(v)};
        if (mixer.corrects) {
          for (std::int64_t d = 0; d < dk; ++d)
            update.value -= key_at(key + d) * state[d * dv + i].value;
          const double beta = at(rows.beta, t * mixer.value_heads + h);
          update = {.value = beta * update.value, .magnitude = std::abs(beta * v)};
        }
        Sum sum;
        for (std::int64_t d = 0; d < dk; ++d) {
          Sum& s = state[d * dv + i];
          s.value += key_at(key + d) * update.value;
          s.magnitude += std::abs(key_at(key + d)) * update.magnitude;
          sum.value += query_at(key + d) * s.value;
          sum.magnitude += std::abs(query_at(key + d)) * s.magnitude;
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

TEST_P(Recurrence, EqualsAFloat64Loop) {
  const auto& [mixer, form] = GetParam();
  constexpr std::int64_t count = 77;
  const InputRows rows = make_rows(mixer, count, 5);
  Slots slots(mixer, form, 1);
  Place place;
  const std::vector<float> out = slots.step({{&place, &rows, count}}).mixed;
  const std::vector<Sum> expected = loop(GetParam(), rows, count);
  ASSERT_EQ(out.size(), expected.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    // Float32: chains of key_width and of sixteen terms, and exponentials within two units of the
    // last place. What the fast path adds stands with its form.
    ASSERT_NEAR(out[i], expected[i].value, form.error * (expected[i].magnitude + 1e-3)) << i;
  }
}

TEST_P(Recurrence, ConvolvesAsALoopDoes) {
  const auto& [mixer, form] = GetParam();
  constexpr std::int64_t count = 37;
  const InputRows rows = make_rows(mixer, count, 6);
  Slots slots(mixer, form, 1);
  Place place;
  const std::vector<float> out = slots.step({{&place, &rows, count}}).convolved;
  const std::vector<float> weight = slots.weight();
  const std::vector<float> bias = slots.bias();
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < mixer.channels(); ++c) {
      auto sum = static_cast<double>(bias[static_cast<std::size_t>(c)]);
      for (std::int64_t i = 0; i < conv_taps; ++i) {
        const std::int64_t position = t - (conv_taps - 1) + i;
        if (position < 0) continue;
        sum +=
            static_cast<double>(weight[static_cast<std::size_t>(c * conv_taps + i)]) *
            rounded(rows.x[static_cast<std::size_t>(position * mixer.channels() + c)], form.inputs);
      }
      const double expected = sum / (1 + std::exp(-sum));
      ASSERT_NEAR(out[static_cast<std::size_t>(t * mixer.channels() + c)], expected, 2e-6)
          << t << " " << c;
    }
  }
}

TEST(DeltaGates, FollowTheirDefinition) {
  constexpr std::int64_t rows = 2;
  constexpr std::int64_t heads = 4;
  const std::vector<float> decay = {-0.5F, -2, -16, -1e-3F};
  const std::vector<float> bias = {0.25F, -3, 1, 40};
  const std::vector<float> a = {0, 1.5F, -60, 3, 25, -2, 90, 0.1F};
  const std::vector<float> b = {0, -4, 12, -100, 100, 1, 0.5F, -0.5F};
  std::vector<float> g(rows * heads);
  std::vector<float> beta(rows * heads);
  const std::unique_ptr<Machine> machine = open_machine();
  float* const g_there = machine->place<float>(g);
  float* const beta_there = machine->place<float>(beta);
  machine->kernels().gates({.rows = rows,
                            .heads = heads,
                            .decay = machine->place<float>(decay),
                            .bias = machine->place<float>(bias),
                            .a = machine->place<float>(a),
                            .a_stride = heads,
                            .b = machine->place<float>(b),
                            .b_stride = heads,
                            .g = g_there,
                            .g_stride = heads,
                            .beta = beta_there,
                            .beta_stride = heads},
                           machine->stream());
  machine->copy(g.data(), g_there, g.size() * sizeof(float));
  machine->copy(beta.data(), beta_there, beta.size() * sizeof(float));
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::size_t head = i % heads;
    const double wanted = double{decay[head]} * std::log1p(std::exp(double{a[i]} + bias[head]));
    EXPECT_NEAR(g[i], wanted, 4e-7 * std::abs(wanted) + 1e-30) << i;
    EXPECT_LE(g[i], 0);
    EXPECT_NEAR(beta[i], 1 / (1 + std::exp(-double{b[i]})), 4e-7) << i;
  }
}

}  // namespace
}  // namespace motley::recurrence_tests
