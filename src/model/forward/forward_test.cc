// Compares fused ops with the same ops one by one, on lists that no family has.

#include "model/forward/forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/elementary.h"
#include "lora/test_world.h"
#include "model/forward/builder.h"
#include "tensor/device/cpu_device.h"

namespace motley::model {
namespace {

using tensor::Tensor;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

constexpr std::int64_t rows = 5;
constexpr std::int64_t width = 16;
constexpr std::int64_t head_dim = 8;

Tensor view(std::vector<float>& numbers, const tensor::Shape& shape) {
  return Tensor(reinterpret_cast<std::byte*>(numbers.data()), DType::f32, shape);
}

class ForwardLists : public testing::Test {
 protected:
  ForwardLists() {
    norm.weight =
        Vector::create(lora::test::random_numbers(random, width), world.device, nullptr).value();
    head_norm.weight =
        Vector::create(lora::test::random_numbers(random, head_dim), world.device, nullptr).value();
    for (Linear* const each : {&first, &second}) {
      std::vector<float>& numbers =
          weights.emplace_back(lora::test::random_numbers(random, width * width));
      each->weight = quant::Weight::borrow(view(numbers, {width, width}));
    }
    narrow.weight = quant::Weight::borrow(
        view(weights.emplace_back(lora::test::random_numbers(random, width * head_dim)),
             {width, head_dim}));
    rope = RopeTable::create({.dims = 4, .base = 100.0}, world.device, nullptr).value();
  }

  Vector bias() {
    return Vector::create(lora::test::random_numbers(random, width), world.device, nullptr).value();
  }

  struct Ran {
    std::map<int, std::vector<float>> out;  // by number of external value
    std::vector<float> pages;
    std::vector<std::string> launches;
  };
  // Runs the list that `appends` makes from x, external value 0; its results are the other external
  // values [rows, width].
  Ran run(bool fuses, const std::function<void(Builder&, ValueId x)>& appends) {
    ops::OpList list;
    Builder pass(list, world.context, {});
    pass.add_rope_table(rope);
    const ValueId x = pass.value("x", DType::f32, width);
    list.set_external(x, 0);
    appends(pass, x);
    Forward forward(list, {.bounds = {rows, 0}, .fuses = fuses});
    const tensor::Buffer memory = world.device.allocate(forward.bytes()).value();

    Ran ran{.out = {}, .pages = std::vector<float>(4 * page_tokens * width, 0), .launches = {}};
    const tensor::Shape pages{2, page_tokens, 2, head_dim};
    const std::array layers{
        LayerPages{view(ran.pages, pages), Tensor(reinterpret_cast<std::byte*>(ran.pages.data()) +
                                                      2 * page_tokens * width * sizeof(float),
                                                  DType::f32, pages)}};
    const std::array<std::int32_t, 2> seq_begin{0, rows};
    const std::array<std::int32_t, rows> positions{0, 1, 2, 3, 4};
    const std::array<std::int32_t, 1> table{1};
    const std::array<std::int32_t, rows> labels{-1, -1, -1, -1, -1};
    const Batch batch{
        .count = rows,
        .rows = {.sequences = 1,
                 .seq_begin = seq_begin.data(),
                 .positions = positions.data(),
                 .block_table = tensor::ConstTensor(
                     reinterpret_cast<const std::byte*>(table.data()), DType::i32, {1, 1})},
        .pages = layers,
        .mixes = {.labels = labels.data()}};
    std::array<Tensor, 3> externals{view(input, {rows, width}), {}, {}};
    for (const int number : {1, 2}) {
      ran.out[number].assign(rows * width, NAN);
      externals[static_cast<std::size_t>(number)] = view(ran.out[number], {rows, width});
    }
    const Forward::Call call{.batch = batch,
                             .context = world.context,
                             .experts = workspaces,
                             .memory = memory,
                             .externals = externals};
    ran.launches = forward.describe(call);
    forward.run(call);
    return ran;
  }
  // Runs both ways, and returns the launches of the fused one.
  std::vector<std::string> expect_equal(const std::function<void(Builder&, ValueId)>& appends) {
    const Ran plain = run(false, appends);
    Ran fused = run(true, appends);
    for (const int number : {1, 2}) {
      for (std::size_t i = 0; i < plain.out.at(number).size(); ++i) {
        const float wanted = plain.out.at(number)[i];
        const float got = fused.out.at(number)[i];
        EXPECT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
            << "value " << number << " at " << i << ": " << got << ", alone " << wanted;
      }
    }
    EXPECT_EQ(fused.pages, plain.pages);
    return std::move(fused.launches);
  }

  std::mt19937 random{5};
  lora::test::World world{DType::f32};
  Norm norm, head_norm;
  Linear first, second, narrow;
  std::list<std::vector<float>> weights;
  RopeTable rope;  // frequencies 1 and 0.1
  moe::Workspaces workspaces;
  std::vector<float> input = lora::test::random_numbers(random, rows* width);
};

TEST_F(ForwardLists, ASumAndItsNormRunTogether) {
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    const ValueId sum = pass.add(x, pass.linear(first, x, "y"));
    pass.list().set_external(sum, 1);
    pass.list().set_external(pass.norm(norm, sum), 2);
  });
  EXPECT_THAT(launches, Contains("add_norm"));
}

// The kernels of a context, without the one that adds a bias by itself.
class NoBiasAlone {
 public:
  explicit NoBiasAlone(ops::Context& context) : context_(context), all_(context.kernels) {
    table_.round_to = [](const kernels::RoundTo& call, StreamHandle stream) {
      EXPECT_EQ(call.bias, nullptr) << "a launch of its own";
      kernels::cpu_table().round_to(call, stream);
    };
    context.kernels = &table_;
  }
  ~NoBiasAlone() { context_.kernels = all_; }
  NoBiasAlone(const NoBiasAlone&) = delete;
  NoBiasAlone& operator=(const NoBiasAlone&) = delete;

 private:
  ops::Context& context_;
  const kernels::ElementaryTable* all_;
  kernels::ElementaryTable table_ = kernels::cpu_table();
};

TEST_F(ForwardLists, ABiasRunsWithTheSumAndItsNorm) {
  first.bias = bias();
  const std::function<void(Builder&, ValueId)> appends = [&](Builder& pass, ValueId x) {
    const ValueId sum = pass.add(x, pass.linear(first, x, "y"));
    pass.list().set_external(sum, 1);
    pass.list().set_external(pass.norm(norm, sum), 2);
  };
  EXPECT_THAT(expect_equal(appends), ElementsAre("rope_table", "linear", "add_norm"));
  const NoBiasAlone none(world.context);
  run(true, appends);
}

TEST_F(ForwardLists, ABiasOfTheFirstAddendRunsByItself) {
  first.bias = bias();
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    const ValueId sum = pass.add(pass.linear(first, x, "y"), x);
    pass.list().set_external(sum, 1);
    pass.list().set_external(pass.norm(norm, sum), 2);
  });
  EXPECT_THAT(launches, ElementsAre("rope_table", "linear", "bias", "add_norm"));
}

TEST_F(ForwardLists, ABiasedValueWithASecondReaderSurvives) {
  first.bias = bias();
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    const ValueId y = pass.linear(first, x, "y");
    pass.list().set_external(pass.norm(norm, pass.add(x, y)), 1);
    pass.list().set_external(pass.norm(norm, y), 2);
  });
  EXPECT_THAT(launches, ElementsAre("rope_table", "linear", "bias", "add_norm", "norm"));
}

// Two ranks, of which the other has the same part.
class TwinRanks final : public dist::Communicator {
 public:
  TwinRanks(const ops::Context& context, bool joins) : context_(context), joins_(joins) {}

  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  Result<void> all_reduce(std::span<float> numbers, Part, const Crossing&) override {
    for (float& number : numbers) number *= 2;
    return {};
  }
  bool fits_norm(const kernels::AddAndNorm&, DType) const override { return joins_; }
  Result<void> sum_and_norm(const kernels::AddAndNorm& call, Part, const Crossing&) override {
    std::vector<float> sums(static_cast<std::size_t>(call.add.rows * call.add.width));
    const auto* const part = static_cast<const float*>(call.add.b);
    std::ranges::transform(std::span(part, sums.size()), sums.begin(),
                           [](float number) { return number * 2; });
    kernels::AddAndNorm own = call;
    own.add.b = sums.data();
    context_.kernels->add_and_norm(own, context_.stream);
    return {};
  }
  Result<void> all_max(std::span<float>, Part, StreamHandle) override { return {}; }
  Result<void> reduce_scatter(std::span<const float>, std::span<float>, StreamHandle) override {
    return {};
  }
  Result<void> all_gather(const Columns&) override { return {}; }
  Result<void> gather_parts(const Parts&) override { return {}; }
  Result<void> broadcast(std::span<std::byte>, int, StreamHandle) override { return {}; }
  Result<void> barrier(StreamHandle) override { return {}; }
  void fail(const Error&) override {}
  Result<void> status() const override { return {}; }

 private:
  ops::Context context_;
  bool joins_;
};

TEST_F(ForwardLists, ASumOverRanksRunsWithTheNormThatFollowsWhereItFits) {
  for (const bool joins : {true, false}) {
    TwinRanks ranks(world.context, joins);
    world.context.ranks = &ranks;
    const auto launches = expect_equal([&](Builder& pass, ValueId x) {
      const ValueId sum = pass.add(x, pass.sum_over_ranks(pass.linear(first, x, "y")));
      pass.list().set_external(sum, 1);
      pass.list().set_external(pass.norm(norm, sum), 2);
    });
    EXPECT_THAT(launches, joins
                              ? testing::Matcher<std::vector<std::string>>(Contains("sum_add_norm"))
                              : Not(Contains("sum_add_norm")));
    EXPECT_EQ(std::ranges::count(launches, "add_norm"), joins ? 0 : 1);
  }
}

TEST_F(ForwardLists, ASumOverRanksWithASecondReaderSurvives) {
  TwinRanks ranks(world.context, true);
  world.context.ranks = &ranks;
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    const ValueId y = pass.sum_over_ranks(pass.linear(first, x, "y"));
    const ValueId sum = pass.add(x, y);
    pass.list().set_external(pass.norm(norm, sum), 1);
    pass.list().set_external(pass.norm(norm, y), 2);
  });
  EXPECT_THAT(launches, Not(Contains("sum_add_norm")));
}

// Base rows have the same logits, whatever else a router's launch does.
TEST_F(ForwardLists, ASumOverRanksTakesARouterApartOnlyWhereItIsNotOneLaunch) {
  TwinRanks ranks(world.context, true);
  kernels::ElementaryTable table = *world.context.kernels;
  const ops::Context before = world.context;
  world.context.ranks = &ranks;
  world.context.kernels = &table;
  const moe::RouterSpec spec{.experts = static_cast<int>(width), .top_k = 2};
  for (const bool one_launch : {true, false}) {
    table.routes_in_one_launch = one_launch ? [](const kernels::NormAndRoute&) { return true; }
                                            : [](const kernels::NormAndRoute&) { return false; };
    const auto launches = expect_equal([&](Builder& pass, ValueId x) {
      const ValueId sum = pass.add(x, pass.sum_over_ranks(pass.linear(first, x, "y")));
      pass.list().set_external(sum, 1);
      pass.list().set_external(pass.logits(second, spec, pass.norm(norm, sum)), 2);
    });
    EXPECT_THAT(launches, Contains(one_launch ? "sum_add_norm_logits" : "sum_add_norm"));
  }
  world.context = before;
}

TEST_F(ForwardLists, AnOpPutBetweenThemKeepsThemApart) {
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    const ValueId sum = pass.add(x, pass.linear(first, x, "y"));
    pass.clip(sum, 0.25F);
    pass.list().set_external(pass.norm(norm, sum), 2);
  });
  EXPECT_THAT(launches, Not(Contains("add_norm")));
}

TEST_F(ForwardLists, ANormOfAnotherValueIsNotTheSums) {
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    pass.list().set_external(pass.add(x, pass.linear(first, x, "y")), 1);
    pass.list().set_external(pass.norm(norm, x), 2);
  });
  EXPECT_THAT(launches, Not(Contains("add_norm")));
}

TEST_F(ForwardLists, ProductsOfTwoInputsAreNotOne) {
  const auto two = [&](bool same) {
    return expect_equal([&, same](Builder& pass, ValueId x) {
      const ValueId other = pass.norm(norm, x);
      const ValueId y = pass.value("y", DType::f32, width);
      const ValueId z = pass.value("z", DType::f32, width);
      pass.list().append({.reads = {x}, .writes = {y}}, LinearOp{first, x, y});
      const ValueId from = same ? x : other;
      pass.list().append({.reads = {from}, .writes = {z}}, LinearOp{second, from, z});
      pass.list().set_external(y, 1);
      pass.list().set_external(z, 2);
    });
  };
  EXPECT_THAT(two(true), Contains("linears"));
  EXPECT_THAT(two(false), Not(Contains("linears")));
}

// Where products take x as it is, an op before them arranges it: once for maps that round alike and
// have one order of columns. What an adapter reads stays as it was.
TEST_F(ForwardLists, InputsAreArrangedOnceForMapsThatTakeThemAlike) {
  using Order = std::vector<std::int32_t>;
  using Taken = std::pair<float, Order>;
  Order ascending(width);
  std::iota(ascending.begin(), ascending.end(), 0);
  const Order descending(ascending.rbegin(), ascending.rend());
  const auto arranges = [&](const Taken& of_second) {
    const Taken of_first{0.25F, descending};
    for (const auto& [map, taken] : {std::pair(&first, of_first), std::pair(&second, of_second)}) {
      map->weight = quant::Weight(
          {.format = {.input_order = true, .inputs = kernels::InputRounding::Scales::fixed},
           .size = {width, width},
           .data = reinterpret_cast<const std::byte*>(weights.front().data()),
           .input_order = std::make_shared<const Order>(taken.second),
           .input_scale = taken.first});
      map->rounding = map->weight.view().inputs;
    }
    kernels::ElementaryTable table = kernels::cpu_table();
    table.arrange_inputs = [](const kernels::ArrangeInputs&, StreamHandle) {};
    ops::OpList list;
    ops::Context device = world.context;
    device.kernels = &table;
    Builder pass(list, device, {});
    const ValueId x = pass.value("x", DType::f32, width);
    pass.linears({&first, &second}, x, "y");
    std::vector<ValueId> read;
    for (const ops::Op& op : list.ops()) {
      if (op.kind == ops::OpKind::linear) read.push_back(op.reads[0]);
      if (op.kind == ops::OpKind::adapt) {
        EXPECT_EQ(op.reads[0], x);
      }
    }
    EXPECT_THAT(read, testing::Each(testing::Ne(x)));
    return std::ranges::count(list.ops(), ops::OpKind::arrange_inputs, &ops::Op::kind);
  };
  EXPECT_EQ(arranges({0.25F, descending}), 1);
  EXPECT_EQ(arranges({0.5F, descending}), 2);
  EXPECT_EQ(arranges({0.25F, ascending}), 2);
}

// The biases of a layer whose maps all have one.
TEST_F(ForwardLists, ABiasIsNoLaunchOfItsOwnInALayer) {
  for (Linear* const each : {&first, &second}) each->bias = bias();
  const moe::RouterSpec spec{
      .kind = moe::RouterKind::topk_then_softmax, .experts = static_cast<int>(width), .top_k = 2};
  const Vector no_correction;
  for (const bool norms : {false, true}) {
    const std::function<void(Builder&, ValueId)> appends = [&](Builder& pass, ValueId x) {
      ops::OpList& list = pass.list();
      const auto maps = pass.linears({&first, &second, &first}, x, "qkv").each;
      const ValueId q = list.split_heads(maps[0], 2);
      const ValueId k = list.split_heads(maps[1], 2);
      const ValueId v = list.split_heads(maps[2], 2);
      for (const ValueId each : {q, k}) {
        if (norms) pass.norm_in_place(head_norm, each);
      }
      for (const ValueId each : {q, k}) pass.rotate(each, rope.spec);
      pass.store(k, 0, keys_cache);
      pass.store(v, 0, values_cache);
      const ValueId queries = pass.value("queries", DType::f32, width);
      pass.round(q, list.split_heads(queries, 2));
      const ValueId sum = pass.add(x, pass.linear(second, queries, "attention"));
      list.set_external(sum, 1);
      const ValueId normed = pass.norm(norm, sum);
      list.set_external(normed, 2);
      const ValueId logits = pass.logits(first, spec, normed);
      const ValueId ids = pass.value("ids", DType::i32, 2);
      const ValueId chosen = pass.value("weights", DType::f32, 2);
      list.append({.reads = {logits}, .writes = {ids, chosen}},
                  RouteOp{spec, no_correction, 0, logits, ids, chosen});
    };
    EXPECT_THAT(expect_equal(appends),
                ElementsAre("rope_table", "linears", "adapt_heads", "linear", "add_norm_route"));
    const NoBiasAlone none(world.context);
    run(true, appends);
  }
}

// Heads of a part of a map do not take its bias.
TEST_F(ForwardLists, ABiasOfMoreThanTheHeadsIsAddedBeforeThem) {
  for (Linear* const each : {&first, &second}) each->bias = bias();
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    ops::OpList& list = pass.list();
    const auto maps = pass.linears({&first, &second}, x, "qk").each;
    const ValueId q = list.split_heads(list.columns(maps[0], head_dim, head_dim), 1);
    const ValueId k = list.split_heads(maps[1], 2);
    for (const ValueId each : {q, k}) pass.rotate(each, rope.spec);
    pass.store(k, 0, keys_cache);
    const ValueId queries = pass.value("queries", DType::f32, head_dim);
    pass.round(q, list.split_heads(queries, 1));
    pass.list().set_external(pass.linear(narrow, queries, "y"), 1);
  });
  EXPECT_THAT(launches, ElementsAre("rope_table", "linears", "adapt_heads", "linear"));
}

// A device whose norms round their results for products: to half of them.
struct RoundingDevice {
  static inline kernels::InputForm form = kernels::InputForm::none;
  static inline int rounded_norms = 0;
  static inline int coded_products = 0;

  static void halve(const void* from, std::int64_t count, void* to) {
    const auto* const x = static_cast<const float*>(from);
    std::transform(x, x + count, static_cast<float*>(to), [](float number) { return number / 2; });
  }
  static void round(const kernels::RmsNorm& p) {
    if (p.rounded.form == kernels::InputForm::none) return;
    halve(p.out, p.size.rows * p.size.width, p.rounded.data);
    ++rounded_norms;
  }
  static kernels::ElementaryTable table() {
    kernels::ElementaryTable table = kernels::cpu_table();
    table.arrange_inputs = [](const kernels::ArrangeInputs& p, StreamHandle) {
      halve(p.x, p.rows * p.width, p.out);
    };
    table.norm_inputs = [](const kernels::AddAndNorm&, const kernels::Linears&, StreamHandle) {
      return form;
    };
    table.rms_norm = [](const kernels::RmsNorm& p, StreamHandle stream) {
      kernels::cpu_table().rms_norm(p, stream);
      round(p);
    };
    table.add_and_norm = [](const kernels::AddAndNorm& p, StreamHandle stream) {
      kernels::cpu_table().add_and_norm(p, stream);
      round(p.norm);
    };
    table.linears = [](const kernels::Linears& p, StreamHandle stream) {
      if (p.inputs != nullptr && !p.coded)
        halve(p.inputs->x, p.inputs->rows * p.inputs->width, p.inputs->out);
      if (p.coded) ++coded_products;
      kernels::cpu_table().linears(p, stream);
    };
    return table;
  }
};

class RoundedForwardLists : public ForwardLists {
 protected:
  // The inputs of these are rounded.
  void use_rounding_device(std::initializer_list<Linear*> maps) {
    static const kernels::ElementaryTable table = RoundingDevice::table();
    world.context.kernels = &table;
    world.context.exact = false;
    for (Linear* const each : maps)
      each->rounding = {.scales = kernels::InputRounding::Scales::fixed, .scale = 1};
  }
};

// Whether the norm named `apart` was `fused` with the rounding and the products behind it.
void expect_rounds(const std::vector<std::string>& launches, const std::string& apart,
                   const std::string& fused, kernels::InputForm form) {
  using Form = kernels::InputForm;
  const bool rounds = form != Form::none;
  EXPECT_EQ(std::ranges::count(launches, fused), rounds ? 1 : 0);
  EXPECT_EQ(std::ranges::count(launches, apart), rounds ? 0 : 1);
  EXPECT_EQ(std::ranges::count(launches, "rounded_linears"), rounds ? 0 : 1);
  EXPECT_EQ(RoundingDevice::rounded_norms, rounds ? 1 : 0);
  EXPECT_EQ(RoundingDevice::coded_products, form == Form::codes ? 1 : 0);
}

// One launch less, for a plain norm and for one of a sum. What adapters read is there as well.
TEST_F(RoundedForwardLists, ANormRoundsItsResultForTheProductsBehindIt) {
  use_rounding_device({&first, &second});
  using Form = kernels::InputForm;
  for (const Form form : {Form::none, Form::numbers, Form::codes}) {
    for (const bool of_sum : {false, true}) {
      RoundingDevice::form = form;
      RoundingDevice::rounded_norms = RoundingDevice::coded_products = 0;
      const auto launches = expect_equal([&](Builder& pass, ValueId x) {
        const ValueId normed = pass.norm(norm, of_sum ? pass.add(x, x) : x);
        const auto products = pass.linears({&first, &second}, normed, "y").each;
        pass.list().set_external(pass.add(products[0], products[1]), 1);
        pass.list().set_external(normed, 2);
      });
      const std::string apart = of_sum ? "add_norm" : "norm";
      expect_rounds(launches, apart, apart + "_linears", form);
    }
  }
}

// Experts that all give x times 3, and compute the sum and norm behind them.
class SummingExperts final : public moe::Backend {
 public:
  std::string_view name() const override { return "summing"; }
  tensor::DeviceKind device() const override { return tensor::DeviceKind::cpu; }
  moe::Support supports(const moe::Problem&) const override { return moe::Support::yes(); }
  lora::Layout factor_layout() const override { return lora::Layout::rows; }
  Result<std::unique_ptr<moe::PreparedExperts>> prepare(const moe::ExpertWeights& weights,
                                                        quant::Uploader*) const override {
    return std::make_unique<moe::PreparedExperts>(weights);
  }
  Result<std::unique_ptr<moe::Workspace>> make_workspace(const moe::Problem&, std::int64_t,
                                                         const moe::DeltaLimits&,
                                                         tensor::Device&) const override {
    class Empty final : public moe::Workspace {
      void begin_step(std::int64_t, const std::int32_t*, StreamHandle) override {}
    };
    return std::unique_ptr<moe::Workspace>(std::make_unique<Empty>());
  }
  std::size_t scratch_bytes(const moe::Problem&, std::int64_t) const override { return 0; }
  std::span<const moe::ExpertKernel> kernels() const override { return {&kernel_, 1}; }

 private:
  static void run(const moe::ExpertCall& call, const moe::ExpertKernel&) {
    const auto x = call.x.data<float>();
    std::vector<float> sums(x, x + rows * width);
    for (float& number : sums) number *= 3;
    if (call.next == nullptr) {
      std::ranges::copy(sums, call.out.data<float>());
      return;
    }
    const kernels::ElementaryTable& table = *call.context.kernels;
    if (call.next->shared.x != nullptr) {
      kernels::AddScaled shared = call.next->shared;
      shared.y = sums.data();
      shared.y_stride = width;
      table.add_scaled(shared, call.context.stream);
    }
    kernels::AddAndNorm next = call.next->rows;
    next.add.b = sums.data();
    table.add_and_norm(next, call.context.stream);
  }
  static bool sums_next(const moe::ExpertCall&, const moe::ExpertKernel&) { return true; }

  moe::ExpertKernel kernel_{.run = run, .sums_into = sums_next};
};

// So does the norm behind experts, with and without a shared one.
TEST_F(RoundedForwardLists, TheNormBehindExpertsRoundsItsResultForTheProducts) {
  use_rounding_device({&first, &second});
  const SummingExperts backend;
  const moe::Problem problem;
  const moe::ExpertWeights experts{.hidden = width};
  const auto prepared = backend.prepare(experts, nullptr).value();
  workspaces.add(backend, problem, rows, {}, world.device).value();
  using Form = kernels::InputForm;
  for (const Form form : {Form::none, Form::numbers, Form::codes}) {
    for (const bool shared : {false, true}) {
      RoundingDevice::form = form;
      RoundingDevice::rounded_norms = RoundingDevice::coded_products = 0;
      const auto launches = expect_equal([&](Builder& pass, ValueId x) {
        const ValueId ids = pass.value("ids", DType::i32, 2);
        const ValueId shares = pass.value("weights", DType::f32, 2);
        const ValueId out = pass.value("experts", DType::f32, width);
        pass.list().append({.reads = {x, ids, shares}, .writes = {out}},
                           ExpertsOp{.backend = backend,
                                     .problem = problem,
                                     .experts = *prepared,
                                     .x = x,
                                     .ids = ids,
                                     .weights = shares,
                                     .out = out});
        if (shared) pass.add_in_place(x, out);
        const ValueId normed = pass.norm(norm, pass.add(x, out));
        const auto products = pass.linears({&first, &second}, normed, "y").each;
        pass.list().set_external(pass.add(products[0], products[1]), 1);
        pass.list().set_external(normed, 2);
      });
      const std::string apart = shared ? "experts_shared_add_norm" : "experts_add_norm";
      expect_rounds(launches, apart, apart + "_linears", form);
    }
  }
}

// Rounded rows of which codes may take the place have no other reader.
TEST_F(RoundedForwardLists, RoundedRowsWithASecondReaderSurvive) {
  use_rounding_device({&first});
  RoundingDevice::form = kernels::InputForm::codes;
  const auto launches = expect_equal([&](Builder& pass, ValueId x) {
    pass.list().set_external(pass.linear(first, pass.norm(norm, x), "y"), 1);
    const ValueId rounded = pass.list().ops().back().reads[0];
    ASSERT_EQ(pass.list().value(rounded).name, "normed") << "what the adapter reads";
    for (const ops::Op& op : pass.list().ops()) {
      if (op.kind != ops::OpKind::arrange_inputs) continue;
      pass.list().set_external(pass.norm(norm, op.writes[0]), 2);
      break;
    }
  });
  EXPECT_THAT(launches, Not(Contains("norm_linears")));
  EXPECT_THAT(launches, Not(Contains("rounded_linears")));
}

// Heads that are prepared together leave keys and values only in KV memory.
TEST_F(ForwardLists, KeysWithASecondReaderSurvive) {
  const auto heads = [&](bool read_again) {
    return expect_equal([&, read_again](Builder& pass, ValueId x) {
      ops::OpList& list = pass.list();
      const auto maps = pass.linears({&first, &second}, x, "qk").each;
      const ValueId q = list.split_heads(maps[0], 2);
      const ValueId k = list.split_heads(maps[1], 2);
      for (const ValueId each : {q, k}) pass.norm_in_place(head_norm, each);
      for (const ValueId each : {q, k}) pass.rotate(each, rope.spec);
      pass.store(k, 0, keys_cache);
      const ValueId queries = pass.value("queries", DType::f32, width);
      pass.round(q, list.split_heads(queries, 2));
      list.set_external(queries, 1);
      if (!read_again) return;
      const ValueId keys = pass.value("keys", DType::f32, width);
      pass.round(k, list.split_heads(keys, 2));
      list.set_external(keys, 2);
    });
  };
  EXPECT_THAT(heads(false), Contains("heads"));
  EXPECT_THAT(heads(true), Not(Contains("heads")));
}

}  // namespace
}  // namespace motley::model
