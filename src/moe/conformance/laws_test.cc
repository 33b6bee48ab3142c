#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/instruction_set.h"
#include "lora/test_world.h"
#include "moe/conformance/adapters.h"
#include "moe/conformance/runner.h"
#include "moe/select.h"
#include "ops/linear.h"
#include "quant/formats.h"
#include "quant/test_weights.h"

// What holds whatever the numbers are, on every known format and every instruction set of this
// machine: a zero adapter equals the base, base rows do not change beside adapters, and a row does
// not depend on others. One body for layers of experts and for linear maps.
namespace motley::moe::conformance {
namespace {

constexpr std::int64_t tokens = 24;

std::vector<quant::Format> known() {
  std::vector<quant::Format> all;
  for (const quant::KnownFormat& each : quant::known_formats()) all.push_back(each.format);
  return all;
}

std::vector<std::int64_t> counted(std::int64_t count) {
  std::vector<std::int64_t> which(static_cast<std::size_t>(count));
  std::iota(which.begin(), which.end(), 0);
  return which;
}

// A map of rows under test.
struct Subject {
  std::int64_t width = 0;  // of a result
  // The results of those rows, each with the adapters that are chosen for it; by so many threads.
  // Null: without any adapters in the call.
  std::function<std::vector<float>(const std::vector<std::int64_t>& which,
                                   const std::vector<Choices>* choices, int threads)>
      run;
};

void expect_laws_on_this_set(const Subject& subject) {
  const std::vector<std::int64_t> all = counted(tokens);
  const std::vector<float> base = subject.run(all, nullptr, 3);

  const std::vector<Choices> zeros(tokens, Choices{{Adapters::zero, 1}});
  EXPECT_EQ(compare_bits(subject.run(all, &zeros, 3), base, all, subject.width), "")
      << "a zero adapter";

  std::vector<Choices> choices = assign_choices(tokens, 1);
  std::vector<std::int64_t> base_rows;
  for (std::int64_t row = 0; row < tokens; row += 3) {
    choices[static_cast<std::size_t>(row)].clear();
    base_rows.push_back(row);
  }
  const std::vector<float> mixed = subject.run(all, &choices, 3);
  std::vector<float> beside;
  for (const std::int64_t row : base_rows)
    beside.insert(beside.end(), mixed.begin() + row * subject.width,
                  mixed.begin() + (row + 1) * subject.width);
  EXPECT_EQ(compare_bits(beside, base, base_rows, subject.width), "") << "base rows";
  EXPECT_NE(compare_bits(mixed, base, all, subject.width), "") << "adapters were applied";

  const auto expect_same = [&](const std::vector<std::int64_t>& which, int threads) {
    std::vector<Choices> own;
    for (const std::int64_t row : which) own.push_back(choices[static_cast<std::size_t>(row)]);
    EXPECT_EQ(compare_bits(subject.run(which, &own, threads), mixed, which, subject.width), "")
        << which.size() << " rows, " << threads << " threads";
  };
  for (const std::int64_t row : {0, 1, 2, 4, 7, 11, 14, 23}) expect_same({row}, 1);
  std::vector<std::int64_t> backwards = all;
  std::ranges::reverse(backwards);
  expect_same(backwards, 1);
  expect_same({backwards.begin(), backwards.begin() + 5}, 2);
}

void expect_laws(const Subject& subject) {
  for (const auto set : kernels::cpu::available_instruction_sets()) {
    SCOPED_TRACE(kernels::cpu::name(set));
    const kernels::cpu::UseInstructionSet use(set);
    expect_laws_on_this_set(subject);
  }
}

class Laws : public testing::TestWithParam<quant::Format> {};
INSTANTIATE_TEST_SUITE_P(EveryFormat, Laws, testing::ValuesIn(known()),
                         [](const auto& test) { return identifier(test.param); });

TEST_P(Laws, HoldForLayersOfExperts) {
  tensor::CpuDevice memory({.threads = 1});
  const LayerSpec spec{.gate_up = GetParam(),
                       .down = GetParam(),
                       .hidden = 136,
                       .intermediate = 72,
                       .experts = 4,
                       .top_k = 2,
                       .biases = true};
  const Layer layer = make_layer(spec, memory, 31);
  // Every token chooses the last expert, which has few rows or many.
  const Rows rows = make_rows(spec, tokens, Routes::hot, 32);
  for (const bool exact : {true, false}) {
    SCOPED_TRACE(exact ? "exact" : "bf16 compute");
    const DType type = exact ? DType::f32 : DType::bf16;
    const Backend* const backend =
        select(layer.problem(exact, device_kind(), true), backends()).value();
    Prepared prepared(*backend, layer);
    const Adapters adapters(spec, type, backend->factor_layout());
    expect_laws({.width = spec.hidden,
                 .run = [&](const std::vector<std::int64_t>& which,
                            const std::vector<Choices>* choices, int threads) {
                   const Compute compute{.exact = exact, .x_type = type};
                   if (choices == nullptr) return prepared.run(rows.pick(which), compute, threads);
                   std::vector<lora::Mix> mixes;
                   for (const Choices& row : *choices) mixes.push_back(adapters.mix(row));
                   lora::Batch batch;
                   batch.build(mixes);
                   const Deltas deltas{.batch = batch, .pool = adapters.pool()};
                   return prepared.run(rows.pick(which), compute, threads, &deltas);
                 }});
  }
}

// A linear map with adapters that stand for those of a layer: as many, of some rank, one of them
// zero.
class AdaptedMap {
 public:
  AdaptedMap(const quant::Format& format, DType type)
      : type_(type), world_(type), narrow_({.threads = 1}) {
    std::vector<float> wanted(static_cast<std::size_t>(out * in));
    for (float& number : wanted) number = normal();
    weight_ = quant::TestPacker(format, {out, in}, world_.device, random_).pack(wanted).weight;
    for (std::int64_t i = 0; i < tokens * in; ++i) x_.push_back(bf16::from(normal()).to_float());
    for (std::size_t i = 0; i <= Adapters::zero; ++i) {
      lora::test::AdapterMaker maker(random_);
      const int rank = 1 + static_cast<int>(i) * 3;
      const int a = maker.add(rank, in);
      const int b = maker.add(out, rank, i == Adapters::zero);
      maker.site(site, in, out).factors[0] = maker.factors(a, b, rank, 0.5F);
      handles_.push_back(world_.load(maker.done()));
    }
  }

  std::vector<float> run(const std::vector<std::int64_t>& which,
                         const std::vector<Choices>* choices, int threads) {
    std::vector<float> rows;
    for (const std::int64_t row : which)
      rows.insert(rows.end(), x_.begin() + row * in, x_.begin() + (row + 1) * in);
    const std::int64_t count = std::ssize(which);
    lora::test::Numbers x(type_, count, in, std::move(rows));
    lora::test::Numbers acc(DType::f32, count, out,
                            std::vector<float>(static_cast<std::size_t>(count * out)));
    ops::Context context = world_.context;
    context.kernels = &kernels::cpu_table();
    context.exact = type_ == DType::f32;
    if (threads == 1) context.stream.native = &narrow_.pool();
    ops::linear(context, x.view(), weight_, acc.view());
    if (choices == nullptr) return acc.f32;
    std::vector<lora::Mix> mixes;
    for (const Choices& row : *choices) mixes.push_back(mix(row));
    lora::Batch batch;
    batch.build(mixes);
    lora::dense_delta(batch, site, batch.labels(), x.view(), acc.view(), context);
    return acc.f32;
  }

  static constexpr std::int64_t out = 70;

 private:
  static constexpr std::int64_t in = 136;
  static constexpr lora::Site site{0, lora::Projection::o};

  float normal() { return static_cast<float>(std::normal_distribution<double>(0, 1)(random_)); }

  lora::Mix mix(const Choices& choices) const {
    std::vector<lora::Mix::Part> parts;
    for (const Adapters::Choice& choice : choices)
      parts.push_back({.adapter = handles_[choice.adapter], .scale = choice.scale});
    return lora::Mix::make(parts).value();
  }

  DType type_;
  std::mt19937 random_{33};
  lora::test::World world_;
  tensor::CpuDevice narrow_;
  quant::Weight weight_;
  std::vector<float> x_;  // [tokens, in]
  std::vector<lora::Handle> handles_;
};

TEST_P(Laws, HoldForLinearMaps) {
  for (const DType type : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name(type));
    AdaptedMap map(GetParam(), type);
    expect_laws(
        {.width = AdaptedMap::out, .run = [&](const auto& which, const auto* choices, int threads) {
           return map.run(which, choices, threads);
         }});
  }
}

}  // namespace
}  // namespace motley::moe::conformance
