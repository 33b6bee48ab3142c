#include "lora/apply/batch.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "lora/test_world.h"
#include "plan/plan.h"

namespace motley::lora {
namespace {

using test::AdapterMaker;
using test::World;

constexpr Site q{0, Projection::q};

Adapter make_adapter(std::mt19937& random) {
  AdapterMaker maker(random);
  const int a = maker.add(3, 8);
  const int b = maker.add(5, 3);
  maker.site(q, 8, 5).factors[0] = maker.factors(a, b, 3, 0.5F);
  return maker.done();
}

TEST(Mix, OrderOfTheListDoesNotMatter) {
  std::mt19937 random(1);
  World world(DType::f32);
  const Handle a = world.load(make_adapter(random));
  const Handle b = world.load(make_adapter(random));
  EXPECT_EQ(world.mix({{a, 1.0F}, {b, 0.5F}}), world.mix({{b, 0.5F}, {a, 1.0F}}));
  EXPECT_FALSE(world.mix({{a, 1.0F}, {b, 0.5F}}) == world.mix({{a, 0.5F}, {b, 1.0F}}));
  EXPECT_FALSE(world.mix({{a, 1.0F}}) == Mix());
  EXPECT_TRUE(Mix::make({}).value().is_base());
  EXPECT_EQ(world.mix({{a, 2.0F}}).key()[0].version, a->version());
}

TEST(Mix, RefusesWhatCanNotBeMixed) {
  std::mt19937 random(1);
  World world(DType::f32);
  const Handle plain = world.load(make_adapter(random));
  Adapter dora = make_adapter(random);
  dora.matrices.push_back({1, 5, {1, 1, 1, 1, 1}});
  dora.sites[0].gain = 2;
  dora.version = hash_content(dora);
  const Handle alone = world.load(dora);
  const auto make = [](std::initializer_list<Mix::Part> parts) {
    return Mix::make(std::span(parts.begin(), parts.size()));
  };
  EXPECT_TRUE(make({{alone, 1.0F}}).ok());
  for (const auto& refused : {make({{alone, 1.0F}, {plain, 1.0F}}), make({{alone, 0.5F}})}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
    EXPECT_NE(refused.error().message().find("DoRA"), std::string::npos);
    EXPECT_NE(refused.error().message().find("'adapter-1'"), std::string::npos);
  }
  EXPECT_EQ(make({{plain, std::numeric_limits<float>::infinity()}}).error().code(),
            ErrorCode::invalid_argument);
  const std::vector<Mix::Part> many(17, Mix::Part{plain, 1.0F});
  EXPECT_EQ(Mix::make(many).error().code(), ErrorCode::invalid_argument);
}

TEST(Batch, LabelsRowsInOrderOfAppearance) {
  std::mt19937 random(1);
  World world(DType::f32);
  const Handle a = world.load(make_adapter(random));
  const Handle b = world.load(make_adapter(random));
  const Mix one = world.mix({{a, 1.0F}});
  const Mix two = world.mix({{a, 1.0F}, {b, -2.0F}});
  const Mix same = world.mix({{a, 1.0F}});
  Batch batch;
  EXPECT_TRUE(batch.empty());
  const std::vector<Mix> rows{Mix(), two, two, one, Mix(), same, two};
  batch.build(rows);
  const std::vector<std::int32_t> expected{plan::no_label, 0, 0, 1, plan::no_label, 1, 0};
  EXPECT_TRUE(std::ranges::equal(batch.labels(), expected));
  EXPECT_EQ(batch.label_count(), 2);
  ASSERT_EQ(batch.terms(0).size(), 2U);
  ASSERT_EQ(batch.terms(1).size(), 1U);
  EXPECT_EQ(batch.terms(1)[0].adapter, a.get());
  EXPECT_TRUE(batch.touches(q));
  EXPECT_FALSE(batch.touches({1, Projection::q}));
  EXPECT_FALSE(batch.touches_experts(0));
  batch.build(std::vector<Mix>(3));
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.labels().size(), 3U);
}

TEST(Batch, PinsWhatItNames) {
  std::mt19937 random(1);
  World world(DType::f32);
  Batch batch;
  batch.build(std::vector<Mix>{world.mix({{world.load(make_adapter(random)), 1.0F}})});
  EXPECT_EQ(world.pool->usage().pinned_adapters, 1);
  batch.clear();
  EXPECT_EQ(world.pool->usage().pinned_adapters, 0);
}

}  // namespace
}  // namespace motley::lora
