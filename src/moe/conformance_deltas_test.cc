#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "lora/batch.h"
#include "lora/pool.h"
#include "moe/conformance.h"
#include "moe/select.h"

// Backends with adapters at both seams: lora's own pool, mixes and batches, against the definition.
namespace motley::moe::conformance {
namespace {

using lora::Projection;

// Memory that is NaN before it is written: what reads an unused page shows.
class PoisonedMemory final : public tensor::Allocator {
 public:
  tensor::DeviceId id() const override { return {}; }

 private:
  Result<void*> take(std::size_t bytes) override {
    void* const data = ::operator new(bytes, std::align_val_t{alignment});
    std::memset(data, 0xff, bytes);
    return data;
  }
  void give_back(void* data, std::size_t) noexcept override {
    ::operator delete(data, std::align_val_t{alignment});
  }
};

enum class Kind : std::uint8_t {
  per_expert,    // factors of their own for each expert, in all three projections
  shared_outer,  // one A of gate and up, one B of down, for all experts
  gate_only,
  up_only,
  down_only,
  some_experts,  // every other expert has none, and the others have ranks 1 to 4
  zero,          // B is all zeros
};
constexpr std::array kinds{Kind::per_expert, Kind::shared_outer, Kind::gate_only, Kind::up_only,
                           Kind::down_only,  Kind::some_experts, Kind::zero};
constexpr std::size_t zero_adapter = 6;

// Numbers that bf16 holds, so that a pool of either type has the same.
int add_matrix(lora::Adapter& adapter, std::int64_t rows, std::int64_t columns, double deviation,
               std::mt19937& random) {
  lora::Matrix matrix{.rows = rows, .columns = columns, .values = {}};
  std::normal_distribution<double> normal(0, 1);
  for (std::int64_t i = 0; i < rows * columns; ++i)
    matrix.values.push_back(bf16::from(static_cast<float>(deviation * normal(random))).to_float());
  adapter.matrices.push_back(std::move(matrix));
  return static_cast<int>(adapter.matrices.size()) - 1;
}

lora::Adapter make_adapter(const LayerSpec& spec, Kind kind, int rank, unsigned seed) {
  std::mt19937 random(seed);
  lora::Adapter adapter;
  for (const Projection projection :
       {Projection::expert_gate, Projection::expert_up, Projection::expert_down}) {
    if (kind == Kind::gate_only && projection != Projection::expert_gate) continue;
    if (kind == Kind::up_only && projection != Projection::expert_up) continue;
    if (kind == Kind::down_only && projection != Projection::expert_down) continue;
    const bool down = projection == Projection::expert_down;
    lora::SiteDelta delta;
    delta.site = {.layer = 0, .projection = projection};
    delta.in = down ? spec.intermediate : spec.hidden;
    delta.out = down ? spec.hidden : spec.intermediate;
    lora::Factors shared;
    for (int expert = 0; expert < spec.experts; ++expert) {
      lora::Factors factors;
      if (kind == Kind::some_experts && expert % 2 == 0) {
        delta.factors.push_back(factors);
        continue;
      }
      factors.rank = kind == Kind::some_experts ? 1 + expert % 4 : rank;
      factors.scale = 2.0F / std::sqrt(static_cast<float>(factors.rank));
      const bool share_a = kind == Kind::shared_outer && !down && expert > 0;
      const bool share_b = kind == Kind::shared_outer && down && expert > 0;
      const double a_deviation = 1 / std::sqrt(static_cast<double>(delta.in));
      factors.a =
          share_a ? shared.a : add_matrix(adapter, factors.rank, delta.in, a_deviation, random);
      factors.b = share_b ? shared.b
                          : add_matrix(adapter, delta.out, factors.rank,
                                       kind == Kind::zero ? 0.0 : 0.5, random);
      if (expert == 0) shared = factors;
      delta.factors.push_back(factors);
      adapter.largest_rank = std::max(adapter.largest_rank, factors.rank);
    }
    adapter.sites.push_back(std::move(delta));
  }
  adapter.version = lora::hash_content(adapter);
  return adapter;
}

// One adapter of each kind, resident in a pool.
class Adapters {
 public:
  Adapters(const LayerSpec& spec, DType dtype) {
    constexpr std::array ranks{8, 16, 3, 5, 17, 0, 8};
    pool_ = lora::Pool::create(memory_, {.bytes = 8 << 20, .page_bytes = 16 << 10, .dtype = dtype})
                .value();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      adapters_.push_back(make_adapter(spec, kinds[i], ranks[i], static_cast<unsigned>(40 + i)));
      handles_.push_back(pool_->load(cat("adapter ", i), adapters_.back()).value());
    }
  }

  struct Choice {
    std::size_t adapter;
    float scale;
  };
  using Choices = std::vector<Choice>;

  lora::Mix mix(const Choices& choices) const {
    std::vector<lora::Mix::Part> parts;
    for (const Choice& choice : choices)
      parts.push_back({.adapter = handles_[choice.adapter], .scale = choice.scale});
    return lora::Mix::make(parts).value();
  }
  std::vector<Term> terms(const Choices& choices) const {
    std::vector<Term> terms;
    for (const Choice& choice : choices)
      terms.push_back({.adapter = &adapters_[choice.adapter], .scale = choice.scale});
    return terms;
  }

 private:
  PoisonedMemory memory_;
  std::unique_ptr<lora::Pool> pool_;
  std::vector<lora::Adapter> adapters_;
  std::vector<lora::Handle> handles_;
};

using Choices = Adapters::Choices;

// The base, each adapter by itself, and mixes with scales.
const std::vector<Choices>& all_choices() {
  static const std::vector<Choices> choices{
      {},
      {{0, 1}},
      {{1, 1}},
      {{2, 1}},
      {{3, 0.5F}},
      {{4, 1}},
      {{5, -1.5F}},
      {{6, 1}},
      {{0, 0.25F}, {1, 2}},
      {{2, 1}, {4, 0.5F}, {3, -1}},
      {{6, 1}, {5, 1}},
  };
  return choices;
}

// Every backend with every format; exact with a pool in f32, bf16 with one in bf16.
class ConformanceDeltas
    : public testing::TestWithParam<std::tuple<const Backend*, quant::Format, bool>> {
 protected:
  const Backend& backend() const { return *std::get<0>(GetParam()); }
  Compute compute() const {
    const bool exact = std::get<2>(GetParam());
    return {.exact = exact, .x_type = exact ? DType::f32 : DType::bf16};
  }
  DType pool_dtype() const { return compute().exact ? DType::f32 : DType::bf16; }

  LayerSpec spec(ActivationKind activation = ActivationKind::silu_mul, bool biases = false) const {
    return {.gate_up = std::get<1>(GetParam()),
            .down = std::get<1>(GetParam()),
            .hidden = 136,
            .intermediate = 72,
            .experts = 5,
            .top_k = 3,
            .activation = activation,
            .biases = biases};
  }
  bool supported(const Layer& layer) const {
    return static_cast<bool>(backend().supports(layer.problem(compute().exact, true)));
  }

  // Row i with choices[i]; an empty list is the base.
  std::vector<float> run_with(const Layer& layer, const Rows& rows, const Adapters& adapters,
                              const std::vector<Choices>& choices, int threads = 3) const {
    std::vector<lora::Mix> mixes;
    for (const Choices& row : choices) mixes.push_back(adapters.mix(row));
    lora::Batch batch;
    batch.build(mixes);
    const Deltas deltas{.labels = batch.labels(), .deltas = {.batch = &batch, .layer = 0}};
    return run(backend(), layer, rows, compute(), threads, &deltas);
  }
};

std::vector<Choices> deal(std::int64_t tokens, std::size_t first) {
  std::vector<Choices> choices;
  for (std::int64_t token = 0; token < tokens; ++token)
    choices.push_back(
        all_choices()[(first + static_cast<std::size_t>(token) * 7) % all_choices().size()]);
  return choices;
}

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
      if (!supported(layer)) continue;
      const Adapters adapters(wanted, pool_dtype());
      const auto expect_as_defined = [&](std::int64_t tokens, Routes routes, std::size_t first) {
        Rows rows = make_rows(wanted, tokens, routes, static_cast<unsigned>(12 + first));
        const std::vector<Choices> choices = deal(tokens, first);
        for (const Choices& row : choices) rows.mixes.push_back(adapters.terms(row));
        const std::vector<float> got = run_with(layer, rows, adapters, choices);
        EXPECT_EQ(compare(got, define(layer, rows), tolerance(wanted, compute()), wanted.hidden),
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
  if (!supported(layer)) return;
  const Adapters adapters(wanted, pool_dtype());
  const Rows rows = make_rows(wanted, 60, Routes::strange, 14);
  const std::vector<float> base = run(backend(), layer, rows, compute());
  std::vector<Choices> choices = deal(60, 0);
  std::vector<std::int64_t> base_rows;
  for (std::int64_t token = 0; token < 60; token += 3) {
    choices[static_cast<std::size_t>(token)].clear();
    base_rows.push_back(token);
  }
  const std::vector<float> mixed = run_with(layer, rows, adapters, choices);
  std::vector<float> got;
  for (const std::int64_t token : base_rows) {
    got.insert(got.end(), mixed.begin() + token * wanted.hidden,
               mixed.begin() + (token + 1) * wanted.hidden);
  }
  EXPECT_EQ(compare_bits(got, base, base_rows, wanted.hidden), "");
  // The others do not: the adapters were there.
  EXPECT_NE(compare_bits(mixed, base, counted(60), wanted.hidden), "");
}

TEST_P(ConformanceDeltas, ZeroAdapterEqualsBase) {
  tensor::CpuDevice memory({.threads = 1});
  for (const ActivationKind activation : activations()) {
    for (const bool biases : {false, true}) {
      const LayerSpec wanted = spec(activation, biases);
      const Layer layer = make_layer(wanted, memory, 15);
      if (!supported(layer)) continue;
      const Adapters adapters(wanted, pool_dtype());
      const Rows rows = make_rows(wanted, 40, Routes::strange, 16);
      const std::vector<Choices> zero(40, Choices{{zero_adapter, 1}});
      EXPECT_EQ(compare_bits(run_with(layer, rows, adapters, zero),
                             run(backend(), layer, rows, compute()), counted(40), wanted.hidden),
                "");
    }
  }
}

TEST_P(ConformanceDeltas, ARowDoesNotDependOnWhoSitsBesideIt) {
  tensor::CpuDevice memory({.threads = 1});
  const LayerSpec wanted = spec(ActivationKind::silu_mul, true);
  const Layer layer = make_layer(wanted, memory, 17);
  if (!supported(layer)) return;
  const Adapters adapters(wanted, pool_dtype());
  const Rows rows = make_rows(wanted, 150, Routes::strange, 18);
  const std::vector<Choices> choices = deal(150, 2);
  const std::vector<float> all = run_with(layer, rows, adapters, choices);
  const auto expect_equal = [&](const std::vector<std::int64_t>& which, int threads) {
    std::vector<Choices> own;
    for (const std::int64_t token : which) own.push_back(choices[static_cast<std::size_t>(token)]);
    EXPECT_EQ(compare_bits(run_with(layer, rows.pick(which), adapters, own, threads), all, which,
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

INSTANTIATE_TEST_SUITE_P(
    Backends, ConformanceDeltas,
    testing::Combine(testing::ValuesIn(all_backends().begin(), all_backends().end()),
                     testing::ValuesIn(formats().begin(), formats().end()), testing::Bool()),
    [](const auto& test) {
      return cat(std::get<0>(test.param)->name(), "_", identifier(std::get<1>(test.param)),
                 std::get<2>(test.param) ? "_exact" : "_bf16_compute");
    });

}  // namespace
}  // namespace motley::moe::conformance
