#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "lora/apply/batch.h"
#include "moe/conformance/adapters.h"
#include "moe/conformance/runner.h"
#include "moe/select.h"
#include "tensor/device/cpu_device.h"

// Backends with adapters at both seams: pool, mixes and batches are lora's own; the reference is
// the definition.
namespace motley::moe::conformance {
namespace {

// A backend with a weight format and a pool of adapters.
struct Case {
  const Backend* backend;
  quant::Format format;
  bool exact;
  DType factors;
};

// Every backend with every format: exact with a pool in f32, bf16 with a pool in bf16; and with one
// format pools in FP8.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [backend, format] : backends_and_formats()) {
    for (const bool exact : {false, true}) {
      all.push_back({backend, format, exact, exact ? DType::f32 : DType::bf16});
      if (format == quant::Format{.element = DType::bf16, .bits = 16})
        all.push_back({backend, format, exact, DType::f8_e4m3});
    }
  }
  std::erase_if(all, [](const Case& each) {
    const Problem problem{.gate_up = each.format,
                          .down = each.format,
                          .hidden = 136,
                          .intermediate = 72,
                          .experts = 5,
                          .top_k = 3,
                          .lora = true,
                          .factors = each.factors,
                          .exact = each.exact,
                          .device = device_kind()};
    return !each.backend->supports(problem);
  });
  return all;
}

class ConformanceDeltas : public testing::TestWithParam<Case> {
 protected:
  const Backend& backend() const { return *GetParam().backend; }
  const quant::Format& format() const { return GetParam().format; }
  Compute compute() const {
    const bool exact = GetParam().exact;
    return {.exact = exact, .x_type = exact ? DType::f32 : DType::bf16};
  }
  Adapters adapters(const LayerSpec& spec) const {
    return {spec, GetParam().factors, backend().factor_layout()};
  }

  LayerSpec spec(ActivationKind activation = ActivationKind::silu_mul, bool biases = false) const {
    return {.gate_up = format(),
            .down = format(),
            .hidden = 136,
            .intermediate = 72,
            .experts = 5,
            .top_k = 3,
            .activation = activation,
            .biases = biases};
  }
  // Row i has choices[i]; an empty list is the base.
  std::vector<float> run_with(Prepared& prepared, const Rows& rows, const Adapters& adapters,
                              const std::vector<Choices>& choices, int threads = 3) const {
    std::vector<lora::Mix> mixes;
    for (const Choices& row : choices) mixes.push_back(adapters.mix(row));
    lora::Batch batch;
    batch.build(mixes);
    const Deltas deltas{.batch = batch, .pool = adapters.pool()};
    return prepared.run(rows, compute(), threads, &deltas);
  }
};

std::vector<std::int64_t> counted(std::int64_t tokens) {
  std::vector<std::int64_t> which(static_cast<std::size_t>(tokens));
  std::iota(which.begin(), which.end(), 0);
  return which;
}

TEST_P(ConformanceDeltas, AgreeWithTheDefinition) {
  tensor::CpuDevice memory({.threads = 1});
  for (const ActivationKind activation : activations()) {
    for (const bool biases : {false, true}) {
      const LayerSpec wanted = spec(activation, biases);
      const Layer layer = make_layer(wanted, memory, 11);
      Prepared prepared(backend(), layer);
      const Adapters adapters = this->adapters(wanted);
      const auto expect_as_defined = [&](std::int64_t tokens, Routes routes, std::size_t first) {
        Rows rows = make_rows(wanted, tokens, routes, static_cast<unsigned>(12 + first));
        const std::vector<Choices> choices = assign_choices(tokens, first);
        for (const Choices& row : choices) rows.mixes.push_back(adapters.terms(row));
        const std::vector<float> got = run_with(prepared, rows, adapters, choices);
        EXPECT_EQ(compare(got, define(layer, rows), tolerance(wanted, compute(), device_kind()),
                          wanted.hidden),
                  "")
            << to_string(wanted) << "; " << tokens << " tokens, routes " << static_cast<int>(routes)
            << ", first mix " << first;
      };
      for (std::size_t first = 0; first < all_choices().size(); ++first)
        expect_as_defined(1, Routes::spread, first);
      expect_as_defined(7, Routes::strange, 1);
      expect_as_defined(64, Routes::spread, 0);
      expect_as_defined(64, Routes::hot, 3);
      expect_as_defined(64, Routes::few, 5);
    }
  }
}

TEST_P(ConformanceDeltas, BaseRowsKeepTheirBits) {
  tensor::CpuDevice memory({.threads = 1});
  const LayerSpec wanted = spec(ActivationKind::silu_mul, true);
  const Layer layer = make_layer(wanted, memory, 13);
  Prepared prepared(backend(), layer);
  const Adapters adapters = this->adapters(wanted);
  const Rows rows = make_rows(wanted, 60, Routes::strange, 14);
  const std::vector<float> base = prepared.run(rows, compute());
  std::vector<Choices> choices = assign_choices(60, 0);
  std::vector<std::int64_t> base_rows;
  for (std::int64_t token = 0; token < 60; token += 3) {
    choices[static_cast<std::size_t>(token)].clear();
    base_rows.push_back(token);
  }
  const std::vector<float> mixed = run_with(prepared, rows, adapters, choices);
  std::vector<float> got;
  for (const std::int64_t token : base_rows) {
    got.insert(got.end(), mixed.begin() + token * wanted.hidden,
               mixed.begin() + (token + 1) * wanted.hidden);
  }
  EXPECT_EQ(compare_bits(got, base, base_rows, wanted.hidden), "");
  // The others differ: their adapters were applied.
  EXPECT_NE(compare_bits(mixed, base, counted(60), wanted.hidden), "");
}

TEST_P(ConformanceDeltas, ZeroAdapterEqualsBase) {
  tensor::CpuDevice memory({.threads = 1});
  for (const ActivationKind activation : activations()) {
    for (const bool biases : {false, true}) {
      const LayerSpec wanted = spec(activation, biases);
      const Layer layer = make_layer(wanted, memory, 15);
      Prepared prepared(backend(), layer);
      const Adapters adapters = this->adapters(wanted);
      const Rows rows = make_rows(wanted, 40, Routes::strange, 16);
      const std::vector<Choices> zero(40, Choices{{Adapters::zero, 1}});
      EXPECT_EQ(compare_bits(run_with(prepared, rows, adapters, zero),
                             prepared.run(rows, compute()), counted(40), wanted.hidden),
                "");
    }
  }
}

TEST_P(ConformanceDeltas, ARowDoesNotDependOnOtherRows) {
  tensor::CpuDevice memory({.threads = 1});
  const LayerSpec wanted = spec(ActivationKind::silu_mul, true);
  const Layer layer = make_layer(wanted, memory, 17);
  Prepared prepared(backend(), layer);
  const Adapters adapters = this->adapters(wanted);
  const Rows rows = make_rows(wanted, 150, Routes::strange, 18);
  const std::vector<Choices> choices = assign_choices(150, 2);
  const std::vector<float> all = run_with(prepared, rows, adapters, choices);
  const auto expect_equal = [&](const std::vector<std::int64_t>& which, int threads) {
    std::vector<Choices> own;
    for (const std::int64_t token : which) own.push_back(choices[static_cast<std::size_t>(token)]);
    EXPECT_EQ(compare_bits(run_with(prepared, rows.pick(which), adapters, own, threads), all, which,
                           wanted.hidden),
              "")
        << which.size() << " rows, " << threads << " threads";
  };
  for (const std::int64_t token : counted(22)) expect_equal({token}, 2);
  std::vector<std::int64_t> backwards = counted(150);
  expect_equal(backwards, 1);
  std::ranges::reverse(backwards);
  expect_equal(backwards, 4);
  for (const std::int64_t count : {2, 3, 6, 11, 20, 35, 70})
    expect_equal({backwards.begin(), backwards.begin() + count}, 3);
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceDeltas, testing::ValuesIn(cases()),
                         [](const auto& test) {
                           const Case& each = test.param;
                           return cat(each.backend->name(), "_", identifier(each.format),
                                      each.exact ? "_exact" : "_bf16_compute", "_",
                                      name(each.factors));
                         });

}  // namespace
}  // namespace motley::moe::conformance
