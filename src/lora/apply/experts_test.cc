#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "lora/apply/apply.h"
#include "lora/test_world.h"

namespace motley::lora {
namespace {

using test::AdapterMaker;
using test::bf16_numbers;
using test::delta_of;
using test::Numbers;
using test::row_of_numbers;
using test::World;

constexpr int experts = 6;
constexpr int top = 3;
constexpr std::int64_t hidden = 22;
constexpr std::int64_t intermediate = 19;
constexpr std::int32_t layer = 1;

enum class Kind { full, fused, gate_only, up_only, down_only, ragged, shared_outer, zero };

Adapter make_adapter(std::mt19937& random, Kind kind, int rank) {
  AdapterMaker maker(random);
  const auto is = [&](Kind other) { return kind == other; };
  const bool zero = is(Kind::zero);
  const bool gate = !is(Kind::up_only) && !is(Kind::down_only);
  const bool up = !is(Kind::gate_only) && !is(Kind::down_only);
  const bool down = !is(Kind::gate_only) && !is(Kind::up_only);
  const int outer_a = is(Kind::shared_outer) ? maker.add(rank, hidden) : -1;
  const int outer_b = is(Kind::shared_outer) ? maker.add(hidden, rank) : -1;
  std::vector<Factors> gates(experts);
  std::vector<Factors> ups(experts);
  std::vector<Factors> downs(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    if (is(Kind::ragged) && e % 3 == 1) continue;
    const int r = is(Kind::ragged) ? rank + static_cast<int>(e) : rank;
    const float scale = 0.25F + 0.125F * static_cast<float>(e);
    const int gate_a = outer_a >= 0 ? outer_a : maker.add(r, hidden);
    if (gate) gates[e] = maker.factors(gate_a, maker.add(intermediate, r, zero), r, scale);
    const int up_a = outer_a >= 0 || is(Kind::fused) ? gate_a : maker.add(r, hidden);
    if (up) ups[e] = maker.factors(up_a, maker.add(intermediate, r, zero), r, scale);
    if (down) {
      const int down_a = maker.add(r, intermediate);
      const int down_b = outer_b >= 0 ? outer_b : maker.add(hidden, r, zero);
      downs[e] = maker.factors(down_a, down_b, r, scale);
    }
  }
  if (gate) maker.site({layer, Projection::expert_gate}, hidden, intermediate).factors = gates;
  if (up) maker.site({layer, Projection::expert_up}, hidden, intermediate).factors = ups;
  if (down) maker.site({layer, Projection::expert_down}, intermediate, hidden).factors = downs;
  return maker.done();
}

struct Step {
  Step(std::mt19937& random, DType dtype, std::int64_t tokens)
      : x(dtype, tokens, hidden, bf16_numbers(random, tokens * hidden)),
        h(dtype, tokens * top, intermediate, bf16_numbers(random, tokens * top * intermediate)),
        gate(DType::f32, tokens * top, intermediate,
             test::random_numbers(random, tokens * top * intermediate)),
        up(DType::f32, tokens * top, intermediate,
           test::random_numbers(random, tokens * top * intermediate)),
        out(DType::f32, tokens * top, hidden, test::random_numbers(random, tokens * top * hidden)) {
  }

  void apply(const Batch& batch, const plan::Plan& plan, const ops::Context& context) {
    const ExpertDeltas deltas{.batch = &batch, .layer = layer};
    add_gate_up(deltas, plan, x.view(), gate.view(), up.view(), context);
    add_down(deltas, plan, h.view(), out.view(), context);
  }

  Numbers x;
  Numbers h;
  Numbers gate;
  Numbers up;
  Numbers out;
};

std::vector<std::int32_t> random_ids(std::mt19937& random, std::int64_t tokens, bool sentinels) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens * top; ++i) {
    const auto id = static_cast<std::int32_t>(random() % experts);
    ids.push_back(sentinels && random() % 8 == 0 ? (random() % 2 == 0 ? -1 : experts) : id);
  }
  return ids;
}

class ApplyExperts : public testing::TestWithParam<DType> {
 protected:
  // FP8 factors are used with models in bf16.
  static DType x_type() { return GetParam() == DType::f32 ? DType::f32 : DType::bf16; }

  std::mt19937 random{23};
  World world{GetParam()};
};

// Adds scale * B A x of all adapters of a row's mix for one projection of one expert.
void add_expected(std::vector<double>& sum,
                  const std::vector<std::pair<const Adapter*, double>>& parts,
                  Projection projection, std::int32_t expert, const std::vector<double>& input) {
  for (const auto& [adapter, scale] : parts) {
    const SiteDelta* delta = adapter->find({layer, projection});
    if (delta == nullptr) continue;
    const auto one = delta_of(*adapter, delta->factors[static_cast<std::size_t>(expert)], input);
    for (std::size_t i = 0; i < one.size(); ++i) sum[i] += scale * one[i];
  }
}

void expect_row(const Numbers& got, const Numbers& before, std::int64_t row,
                const std::vector<double>& expected, bool touched) {
  for (std::int64_t i = 0; i < got.shape[1]; ++i) {
    if (!touched) {
      ASSERT_EQ(got.at(row, i), before.at(row, i)) << "row " << row;
      continue;
    }
    const double value = expected[static_cast<std::size_t>(i)];
    ASSERT_NEAR(got.at(row, i), value, test::tolerance(value, 60)) << "row " << row;
  }
}

TEST_P(ApplyExperts, EqualALoopInFloat64) {
  for (const Kind kind : {Kind::full, Kind::fused, Kind::gate_only, Kind::up_only, Kind::down_only,
                          Kind::ragged, Kind::shared_outer, Kind::zero}) {
    for (const int rank : {1, 3, 8, 17, 64}) {
      const Adapter first = make_adapter(random, kind, rank);
      const Adapter second = make_adapter(random, Kind::full, 2);
      const Handle one = world.load(first);
      const Handle two = world.load(second);
      const std::int64_t tokens = 1 + static_cast<std::int64_t>(random() % 9);
      std::vector<Mix> rows;
      std::vector<std::vector<std::pair<const Adapter*, double>>> parts;
      for (std::int64_t token = 0; token < tokens; ++token) {
        switch (random() % 3) {
          case 0:
            rows.emplace_back();
            parts.emplace_back();
            break;
          case 1:
            rows.push_back(world.mix({{one, 1.0F}}));
            parts.push_back({{&first, 1.0}});
            break;
          default:
            rows.push_back(world.mix({{one, -0.5F}, {two, 2.0F}}));
            parts.push_back({{&first, -0.5}, {&second, 2.0}});
        }
      }
      Batch batch;
      batch.build(rows);
      plan::Plan plan(tokens, top, experts);
      const auto ids = random_ids(random, tokens, true);
      plan.build(ids, batch.labels());
      Step step(random, x_type(), tokens);
      const Step before = step;
      step.apply(batch, plan, world.context);
      for (std::int64_t place = 0; place < tokens * top; ++place) {
        const std::int32_t pair = plan.order()[static_cast<std::size_t>(place)];
        const std::int32_t expert = ids[static_cast<std::size_t>(pair)];
        const std::int32_t token = pair / top;
        const bool routed = place < plan.routed_pairs();
        const auto& mix = parts[static_cast<std::size_t>(token)];
        const bool touched = routed && !mix.empty();
        const auto x = row_of_numbers(step.x, token);
        const auto h = row_of_numbers(step.h, place);
        auto gate = row_of_numbers(before.gate, place);
        auto up = row_of_numbers(before.up, place);
        auto out = row_of_numbers(before.out, place);
        if (touched) {
          add_expected(gate, mix, Projection::expert_gate, expert, x);
          add_expected(up, mix, Projection::expert_up, expert, x);
          add_expected(out, mix, Projection::expert_down, expert, h);
        }
        expect_row(step.gate, before.gate, place, gate, touched);
        expect_row(step.up, before.up, place, up, touched);
        expect_row(step.out, before.out, place, out, touched);
      }
      if (HasFatalFailure()) FAIL() << "kind " << static_cast<int>(kind) << " rank " << rank;
    }
  }
}

TEST_P(ApplyExperts, RanksThatShareShrinksHaveTheBitsOfOneThatDoesNot) {
  std::vector<Mix> mixes{Mix()};
  for (const Kind kind : {Kind::full, Kind::fused, Kind::gate_only, Kind::up_only, Kind::ragged,
                          Kind::shared_outer, Kind::down_only, Kind::zero})
    mixes.push_back(world.mix({{world.load(make_adapter(random, kind, 37)), 1.0F}}));
  mixes.push_back(
      world.mix({{mixes[1].parts()[0].adapter, 0.5F}, {mixes[5].parts()[0].adapter, 2.0F}}));
  // More than one rank has rows of, and more than are kept at once.
  for (const std::int64_t tokens : {1, 2, 30, 9000}) {
    std::vector<Mix> rows;
    for (std::int64_t token = 0; token < tokens; ++token)
      rows.push_back(mixes[random() % mixes.size()]);
    Batch batch;
    batch.build(rows);
    plan::Plan plan(tokens, top, experts);
    plan.build(random_ids(random, tokens, true), batch.labels());
    const Step before(random, x_type(), tokens);
    Step alone = before;
    alone.apply(batch, plan, world.context);
    for (const int ranks : {2, 3, 4}) {
      std::vector<Step> steps(static_cast<std::size_t>(ranks), before);
      test::on_sharing_ranks(ranks, [&](std::size_t rank, const ops::Context& context) {
        steps[rank].apply(batch, plan, context);
      });
      for (const Step& step : steps) {
        EXPECT_TRUE(step.gate.f32 == alone.gate.f32) << tokens << " tokens, " << ranks << " ranks";
        EXPECT_TRUE(step.up.f32 == alone.up.f32) << tokens << " tokens, " << ranks << " ranks";
        EXPECT_TRUE(step.out.f32 == alone.out.f32) << tokens << " tokens, " << ranks << " ranks";
      }
    }
  }
}

// Another rank's rows are its own: they come as it has computed them.
TEST_P(ApplyExperts, ARankTakesTheRowsOfTheOthers) {
  const Handle adapter = world.load(make_adapter(random, Kind::full, 6));
  constexpr std::int64_t tokens = 40;
  Batch batch;
  batch.build(std::vector<Mix>(tokens, world.mix({{adapter, 1.0F}})));
  plan::Plan plan(tokens, top, experts);
  plan.build(random_ids(random, tokens, false), batch.labels());
  const Step before(random, x_type(), tokens);
  std::vector<Step> steps(2, before);
  for (float& number : steps[1].x.f32) number = 0;
  for (bf16& number : steps[1].x.half) number = bf16::from(0);
  test::on_sharing_ranks(2, [&](std::size_t rank, const ops::Context& context) {
    steps[rank].apply(batch, plan, context);
  });
  const std::vector<float>& gate = steps[0].gate.f32;
  const auto last_row = gate.end() - intermediate;
  EXPECT_FALSE(std::equal(gate.begin(), gate.begin() + intermediate, before.gate.f32.begin()));
  EXPECT_TRUE(std::equal(last_row, gate.end(), before.gate.f32.end() - intermediate));
}

TEST_P(ApplyExperts, ZeroAdapterChangesNoBit) {
  Batch batch;
  batch.build(
      std::vector<Mix>(5, world.mix({{world.load(make_adapter(random, Kind::zero, 5)), 1.0F}})));
  plan::Plan plan(5, top, experts);
  plan.build(random_ids(random, 5, false), batch.labels());
  Step step(random, x_type(), 5);
  const Step before = step;
  step.apply(batch, plan, world.context);
  EXPECT_EQ(step.gate.f32, before.gate.f32);
  EXPECT_EQ(step.up.f32, before.up.f32);
  EXPECT_EQ(step.out.f32, before.out.f32);
}

TEST_P(ApplyExperts, BatchedEqualsAloneBitForBit) {
  std::vector<Mix> mixes{Mix()};
  for (const Kind kind : {Kind::full, Kind::fused, Kind::ragged, Kind::shared_outer})
    mixes.push_back(world.mix({{world.load(make_adapter(random, kind, 7)), 1.0F}}));
  mixes.push_back(
      world.mix({{mixes[1].parts()[0].adapter, 0.5F}, {mixes[3].parts()[0].adapter, 2.0F}}));
  const std::int64_t tokens = 30;
  std::vector<Mix> rows;
  for (std::int64_t token = 0; token < tokens; ++token)
    rows.push_back(mixes[random() % mixes.size()]);
  Batch batch;
  batch.build(rows);
  const auto ids = random_ids(random, tokens, false);
  plan::Plan plan(tokens, top, experts);
  plan.build(ids, batch.labels());
  Step step(random, x_type(), tokens);
  const Step before = step;
  step.apply(batch, plan, world.context);
  World narrow(GetParam(), 1);
  for (std::int64_t token = 0; token < tokens; ++token) {
    Batch alone;
    alone.build(std::span(rows).subspan(static_cast<std::size_t>(token), 1));
    plan::Plan own(1, top, experts);
    own.build(std::span(ids).subspan(static_cast<std::size_t>(token * top), top), alone.labels());
    Step one(random, x_type(), 1);
    // The token's rows of the whole step, in the order of the token's own plan.
    const auto copy = [](Numbers& to, std::int64_t to_row, const Numbers& from,
                         std::int64_t from_row) {
      const auto width = static_cast<std::size_t>(to.shape[1]);
      const auto t = static_cast<std::size_t>(to_row) * width;
      const auto f = static_cast<std::size_t>(from_row) * width;
      std::copy_n(&from.f32[f], width, &to.f32[t]);
      if (!to.half.empty()) std::copy_n(&from.half[f], width, &to.half[t]);
    };
    copy(one.x, 0, before.x, token);
    const auto place_of = [&](std::int64_t place) -> std::int64_t {
      const std::int32_t slot = own.order()[static_cast<std::size_t>(place)];
      return plan.places()[static_cast<std::size_t>(token * top + slot)];
    };
    for (std::int64_t place = 0; place < top; ++place) {
      copy(one.h, place, before.h, place_of(place));
      copy(one.gate, place, before.gate, place_of(place));
      copy(one.up, place, before.up, place_of(place));
      copy(one.out, place, before.out, place_of(place));
    }
    one.apply(alone, own, narrow.context);
    for (std::int64_t place = 0; place < top; ++place) {
      const auto same = [&](const Numbers& alone_numbers, const Numbers& batched) {
        const auto width = static_cast<std::size_t>(alone_numbers.shape[1]);
        return 0 == std::memcmp(&alone_numbers.f32[static_cast<std::size_t>(place) * width],
                                &batched.f32[static_cast<std::size_t>(place_of(place)) * width],
                                width * sizeof(float));
      };
      EXPECT_TRUE(same(one.gate, step.gate)) << "token " << token;
      EXPECT_TRUE(same(one.up, step.up)) << "token " << token;
      EXPECT_TRUE(same(one.out, step.out)) << "token " << token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ApplyExperts,
                         testing::Values(DType::f32, DType::bf16, DType::f8_e4m3),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace motley::lora
