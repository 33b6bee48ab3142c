#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "moe/conformance/runner.h"
#include "moe/select.h"
#include "tensor/device/cpu_device.h"

namespace motley::moe::conformance {
namespace {

using Scales = quant::Format::Scales;

constexpr quant::Format bf16_format{.element = DType::bf16, .bits = 16};

struct Size {
  std::int64_t hidden;
  std::int64_t intermediate;
  int experts;
  int top_k;
};

struct Batch {
  std::int64_t tokens;
  Routes routes;
};

constexpr Batch batches[] = {
    {0, Routes::spread}, {1, Routes::spread},  {1, Routes::strange},
    {7, Routes::spread}, {7, Routes::strange}, {64, Routes::hot},
    {64, Routes::few},   {64, Routes::spread}, {64, Routes::strange},
};

constexpr Compute computes[] = {
    {.exact = true, .x_type = DType::f32},
    {.exact = true, .x_type = DType::bf16},
    {.exact = false, .x_type = DType::bf16},
};

bool accepts(const Backend& backend, const Layer& layer, const Compute& compute) {
  return static_cast<bool>(backend.supports(layer.problem(compute.exact, device_kind())));
}
bool accepts(const Backend& backend, const Layer& layer) {
  return std::ranges::any_of(computes,
                             [&](const Compute& each) { return accepts(backend, layer, each); });
}

void expect_as_defined(const Backend& backend, const LayerSpec& spec,
                       std::span<const Batch> wanted) {
  tensor::CpuDevice memory({.threads = 1});
  const Layer layer = make_layer(spec, memory, 1);
  if (!accepts(backend, layer)) return;
  Prepared prepared(backend, layer);
  unsigned seed = 2;
  for (const Batch& batch : wanted) {
    const Rows rows = make_rows(spec, batch.tokens, batch.routes, seed++);
    const Truth truth = define(layer, rows);
    for (const Compute& compute : computes) {
      if (!accepts(backend, layer, compute)) continue;
      const std::vector<float> got = prepared.run(rows, compute);
      const std::string difference =
          compare(got, truth, tolerance(spec, compute, device_kind()), spec.hidden);
      EXPECT_EQ(difference, "") << to_string(spec) << "; " << batch.tokens << " tokens, routes "
                                << static_cast<int>(batch.routes)
                                << (compute.exact ? ", exact" : ", bf16 compute") << ", x in "
                                << name(compute.x_type);
    }
  }
}

// Every backend with every format.
class Conformance : public testing::TestWithParam<std::pair<const Backend*, quant::Format>> {
 protected:
  const Backend& backend() const { return *GetParam().first; }
  const quant::Format& format() const { return GetParam().second; }

  LayerSpec spec(const Size& size) const {
    return {.gate_up = format(),
            .down = format(),
            .hidden = size.hidden,
            .intermediate = size.intermediate,
            .experts = size.experts,
            .top_k = size.top_k};
  }
};

TEST_P(Conformance, AgreesWithTheDefinition) {
  for (const ActivationKind activation : activations()) {
    for (const bool biases : {false, true}) {
      for (const Size& size : {Size{72, 48, 5, 1}, {136, 48, 12, 3}}) {
        LayerSpec layer = spec(size);
        layer.activation = activation;
        layer.biases = biases;
        expect_as_defined(backend(), layer, batches);
      }
    }
  }
}

TEST_P(Conformance, AgreesWithTheDefinitionOverManyExpertsAndTiles) {
  constexpr Batch few[] = {{1, Routes::spread}, {7, Routes::strange}, {64, Routes::spread}};
  LayerSpec layer = spec({72, 80, 128, 8});
  expect_as_defined(backend(), layer, few);
}

TEST_P(Conformance, AgreesWithTheDefinitionForAThousandTokens) {
  constexpr Batch thousand[] = {{1000, Routes::hot}};
  LayerSpec layer = spec({136, 48, 12, 3});
  layer.biases = true;
  expect_as_defined(backend(), layer, thousand);
}

// Widths that no tile divides, and some that no vector divides.
TEST_P(Conformance, AgreesWithTheDefinitionAtStrangeWidths) {
  constexpr Batch some[] = {{1, Routes::spread}, {7, Routes::strange}};
  for (const Size& size : {Size{96, 48, 5, 2}, {70, 45, 3, 2}, {2880, 136, 1, 1}}) {
    LayerSpec layer = spec(size);
    layer.biases = true;
    expect_as_defined(backend(), layer, some);
  }
}

TEST_P(Conformance, AgreesWithTheDefinitionWhereDownHasAFormatOfItsOwn) {
  constexpr Batch some[] = {{1, Routes::spread}, {64, Routes::spread}};
  LayerSpec layer = spec({136, 48, 12, 3});
  layer.down = format() == bf16_format ? formats()[3] : bf16_format;
  expect_as_defined(backend(), layer, some);
}

// The same bits for a row alone, for rows in another order, and with other numbers of threads.
TEST_P(Conformance, ARowDoesNotDependOnOtherRows) {
  tensor::CpuDevice memory({.threads = 1});
  for (const bool biases : {false, true}) {
    LayerSpec wanted = spec({136, 200, 12, 3});
    wanted.biases = biases;
    const Layer layer = make_layer(wanted, memory, 3);
    if (!accepts(backend(), layer)) return;
    Prepared prepared(backend(), layer);
    const Rows rows = make_rows(wanted, 300, Routes::strange, 4);
    for (const Compute& compute : computes) {
      if (!accepts(backend(), layer, compute)) continue;
      const auto expect_equal = [&](const std::vector<std::int64_t>& which, int threads,
                                    const std::vector<float>& all) {
        const auto got = prepared.run(rows.pick(which), compute, threads);
        EXPECT_EQ(compare_bits(got, all, which, wanted.hidden), "")
            << which.size() << " rows, " << threads << " threads, exact " << compute.exact;
      };
      const std::vector<float> all = prepared.run(rows, compute);
      std::vector<std::int64_t> backwards(300);
      std::iota(backwards.begin(), backwards.end(), 0);
      expect_equal(backwards, 1, all);
      std::ranges::reverse(backwards);
      expect_equal(backwards, 4, all);
      for (const std::int64_t token : {0, 1, 2, 3, 77, 150, 299}) expect_equal({token}, 2, all);
      for (const std::int64_t count : {2, 3, 5, 9, 17, 33, 130})
        expect_equal({backwards.begin(), backwards.begin() + count}, 3, all);
    }
  }
}

// Of all kernels that support a call, not only of the one that would be chosen.
TEST_P(Conformance, KernelsOfOneArithmeticHaveTheSameBits) {
  tensor::CpuDevice memory({.threads = 1});
  const LayerSpec wanted = spec({136, 80, 12, 3});
  const Layer layer = make_layer(wanted, memory, 8);
  if (!accepts(backend(), layer)) return;
  Prepared prepared(backend(), layer);
  for (const std::int64_t tokens : {1, 20, 300}) {
    const Rows rows = make_rows(wanted, tokens, Routes::strange, 9);
    for (const Compute& compute : computes) {
      if (!accepts(backend(), layer, compute)) continue;
      std::map<std::string_view, std::vector<float>> first;
      std::vector<std::int64_t> all(static_cast<std::size_t>(tokens));
      std::iota(all.begin(), all.end(), 0);
      for (const ExpertKernel& kernel : backend().kernels()) {
        const std::vector<float> got = prepared.run(rows, compute, 3, nullptr, &kernel);
        if (got.empty()) continue;
        const auto& of = first.try_emplace(kernel.info.arithmetic.name, got).first->second;
        EXPECT_EQ(compare_bits(got, of, all, wanted.hidden), "")
            << kernel.info.name << " " << kernel.number << ", " << tokens << " tokens, exact "
            << compute.exact;
      }
      EXPECT_FALSE(first.empty());
    }
  }
}

TEST_P(Conformance, NanStaysInItsRow) {
  tensor::CpuDevice memory({.threads = 1});
  const LayerSpec wanted = spec({72, 48, 5, 3});
  const Layer layer = make_layer(wanted, memory, 5);
  if (!accepts(backend(), layer)) return;
  Prepared prepared(backend(), layer);
  const Rows rows = make_rows(wanted, 20, Routes::spread, 6);
  Rows broken = rows;
  for (std::int64_t i = 0; i < wanted.hidden; ++i) {
    broken.x[static_cast<std::size_t>(7 * wanted.hidden + i)] =
        std::numeric_limits<float>::quiet_NaN();
  }
  std::vector<std::int64_t> others(20);
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + 7);
  for (const Compute& compute : computes) {
    if (!accepts(backend(), layer, compute)) continue;
    const std::vector<float> got = prepared.run(broken, compute);
    EXPECT_NE(got[static_cast<std::size_t>(7 * wanted.hidden)],
              got[static_cast<std::size_t>(7 * wanted.hidden)]);
    std::vector<float> without(got);
    without.erase(without.begin() + 7 * wanted.hidden, without.begin() + 8 * wanted.hidden);
    EXPECT_EQ(compare_bits(without, prepared.run(rows, compute), others, wanted.hidden), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(backends_and_formats()),
                         [](const auto& test) {
                           return cat(test.param.first->name(), "_", identifier(test.param.second));
                         });

// With the identity as down and one expert of weight 1 for each token, the output is h.
TEST(ConformanceSuite, RoundsHOnceInBf16ComputeAndNeverInExact) {
  tensor::CpuDevice memory({.threads = 1});
  const quant::Format f32{.element = DType::f32, .bits = 32};
  const LayerSpec spec{.gate_up = f32,
                       .down = f32,
                       .hidden = 48,
                       .intermediate = 48,
                       .experts = 3,
                       .top_k = 1,
                       .biases = true};
  Layer layer = make_layer(spec, memory, 7);
  std::vector<float> identity(std::size_t{48} * 48, 0.0F);
  for (std::size_t i = 0; i < 48; ++i) identity[i * 49] = 1.0F;
  const tensor::ConstTensor view(reinterpret_cast<const std::byte*>(identity.data()), DType::f32,
                                 {48, 48});
  for (quant::Weight& down : layer.weights.down) down = quant::Weight::borrow(view);
  layer.weights.down_bias.clear();
  Rows rows = make_rows(spec, 30, Routes::spread, 8);
  std::ranges::fill(rows.routing_weights, 1.0F);

  const auto representable = [](const std::vector<float>& out) {
    return std::ranges::count_if(out, [](float h) { return bf16::from(h).to_float() == h; });
  };
  for (const Backend* const backend : backends()) {
    SCOPED_TRACE(backend->name());
    const Compute exact{.exact = true, .x_type = DType::f32};
    const Compute rounded{.exact = false, .x_type = DType::bf16};
    if (!accepts(*backend, layer)) continue;
    Prepared prepared(*backend, layer);
    if (accepts(*backend, layer, exact)) {
      EXPECT_LT(representable(prepared.run(rows, exact)), 48 * 30 / 4);
    }
    if (accepts(*backend, layer, rounded)) {
      EXPECT_EQ(representable(prepared.run(rows, rounded)), 48 * 30);
    }
  }
}

// Every conceivable format, far beyond those of the suite.
std::vector<quant::Format> imaginable_formats() {
  std::vector<quant::Format> all;
  for (int dtype = 0; dtype < dtype_count; ++dtype) {
    const auto element = static_cast<DType>(dtype);
    for (const int width : {1, 2, 3, 4, 5, 6, 8, 16, 32, 64}) {
      all.push_back({.element = element, .bits = width});
      for (const Scales scales : {Scales::tensor, Scales::channel, Scales::group, Scales::block}) {
        for (const std::int64_t rows : {-1, 0, 1, 16, 32, 64, 128, 256}) {
          for (const std::int64_t columns : {-1, 0, 1, 8, 16, 32, 64, 100, 128, 256, 512, 2048})
            all.push_back({element, width, scales, rows, columns});
        }
      }
    }
  }
  return all;
}

TEST(ConformanceSuite, HasACaseForEverythingThatABackendAccepts) {
  // Kernels have one loop for blocks that consist of whole vectors and one for others, so that one
  // size of each represents all.
  const auto holds_vectors = [](const quant::Format& format) {
    const auto columns = static_cast<std::uint64_t>(format.block_columns);
    return columns >= 8 && std::has_single_bit(columns);
  };
  const auto has_format = [&](const quant::Format& format) {
    return std::ranges::any_of(formats(), [&](const quant::Format& own) {
      if (own == format) return true;
      return own.element == format.element && own.bits == format.bits &&
             own.scales == format.scales && own.zero_points == format.zero_points &&
             own.input_order == format.input_order && holds_vectors(own) == holds_vectors(format);
    });
  };
  const auto has_activation = [](ActivationKind kind) {
    return std::ranges::find(activations(), kind) != activations().end();
  };
  for (const Backend* const backend : backends()) {
    Problem problem{.gate_up = bf16_format,
                    .down = bf16_format,
                    .hidden = 128,
                    .intermediate = 128,
                    .experts = 8,
                    .top_k = 2,
                    .device = device_kind()};
    for (const bool lora : {false, true}) {
      for (const bool exact : {false, true}) {
        problem.lora = lora;
        problem.exact = exact;
        for (const quant::Format& format : imaginable_formats()) {
          problem.gate_up = format;
          problem.down = bf16_format;
          EXPECT_TRUE(has_format(format) || !backend->supports(problem))
              << backend->name() << " accepts gate_up in " << to_string(format);
          problem.gate_up = bf16_format;
          problem.down = format;
          EXPECT_TRUE(has_format(format) || !backend->supports(problem))
              << backend->name() << " accepts down in " << to_string(format);
        }
        problem.down = bf16_format;
        for (int kind = 0; kind < 256; ++kind) {
          problem.activation = static_cast<ActivationKind>(kind);
          EXPECT_TRUE(has_activation(problem.activation) || !backend->supports(problem))
              << backend->name() << " accepts activation " << kind;
        }
        problem.activation = ActivationKind::silu_mul;
        problem.device = device_kind() == tensor::DeviceKind::cpu ? tensor::DeviceKind::cuda
                                                                  : tensor::DeviceKind::cpu;
        EXPECT_FALSE(backend->supports(problem)) << backend->name() << " accepts any device";
        problem.device = device_kind();
      }
    }
  }
}

// At least one backend supports each case of the suite.
TEST(ConformanceSuite, EveryCaseIsSupportedByABackend) {
  for (const quant::Format& format : formats()) {
    const Problem problem{.gate_up = format,
                          .down = format,
                          .hidden = 128,
                          .intermediate = 128,
                          .experts = 8,
                          .top_k = 2,
                          .device = device_kind()};
    EXPECT_TRUE(select(problem, backends()).ok()) << to_string(format);
  }
}

}  // namespace
}  // namespace motley::moe::conformance
