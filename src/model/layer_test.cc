#include "model/layer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lora/test_world.h"
#include "model/config/shapes.h"
#include "model/dense_groups.h"
#include "model/forward/forward.h"
#include "model/model.h"

namespace motley::model {
namespace {

using tensor::Tensor;
using testing::Contains;

constexpr std::int64_t rows = 3;

Config small_config() { return shape_config("tiny", {}).value(); }

Tensor view(std::vector<float>& numbers, std::int64_t width) {
  return Tensor(reinterpret_cast<std::byte*>(numbers.data()), DType::f32, {rows, width});
}

// Layer 0 of models with the same random weights and one of three feed-forward blocks.
class ParallelBlocks : public testing::Test {
 protected:
  Layer load(const Config& config) {
    const WeightSource::Memory memory{.host = world.device, .device = world.device};
    WeightSource source(random, memory);
    return load_layer(source, config, 0, {}, {}).value();
  }

  std::vector<float> run(const Block& block, std::int64_t width) {
    ops::OpList list;
    Builder pass(list, world.context, {});
    const ValueId x = pass.value("x", DType::f32, width);
    list.set_external(x, 0);
    list.set_external(block.append(x, pass), 1);
    Forward forward(list, {.bounds = {rows, 0}});
    const tensor::Buffer memory = world.device.allocate(forward.bytes()).value();
    moe::Workspaces experts;
    for (const MoeBlock* const each : block.moe_blocks())
      EXPECT_TRUE(experts.add(*each->backend, each->problem, rows, {}, world.device).ok());
    experts.begin_step(rows, nullptr, world.context.stream);
    std::mt19937 numbers(3);
    std::vector<float> in = lora::test::random_numbers(numbers, rows * width);
    std::vector<float> out(in.size());
    const std::array<std::int32_t, rows> labels{-1, -1, -1};
    const Batch batch{.count = rows, .mixes = {.labels = labels.data()}};
    const std::array<Tensor, 2> externals{view(in, width), view(out, width)};
    forward.run({.batch = batch,
                 .context = world.context,
                 .experts = experts,
                 .memory = memory,
                 .externals = externals});
    return out;
  }

  RandomWeights random{RandomWeights::Experts::bf16, 0, true};
  lora::test::World world{DType::f32};
};

TEST_F(ParallelBlocks, AddADenseBlockToTheirExperts) {
  Config config = small_config();
  const Layer experts = load(config);
  config.dense_and_experts = true;
  const Layer both = load(config);
  config.moe_layers.assign(config.moe_layers.size(), false);
  const Layer dense = load(config);

  const std::vector<float> of_experts = run(*experts.feed_forward, config.hidden);
  const std::vector<float> of_dense = run(*dense.feed_forward, config.hidden);
  std::vector<float> sum(of_experts.size());
  std::ranges::transform(of_experts, of_dense, sum.begin(), std::plus());
  EXPECT_EQ(run(*both.feed_forward, config.hidden), sum);
  EXPECT_NE(sum, of_experts);
  EXPECT_NE(sum, of_dense);
}

// Experts inside another block are found by all that ask for them.
TEST(ModelOfParallelBlocks, KnowsItsExperts) {
  Config config = small_config();
  config.dense_and_experts = true;
  tensor::CpuDevice device({.threads = 1});
  const auto model = Model::random(config, RandomWeights::Experts::bf16, device, {}).value();
  EXPECT_THAT(model->describe_backends(), testing::StartsWith("2 layers by "));
  EXPECT_TRUE(model->make_workspace({.rows = 4, .sequences = 2, .logit_rows = 4}).ok());
  EXPECT_TRUE(model->shrinks_alike(*model));

  std::set<lora::Projection> sites;
  for (const lora::SiteSpec& spec : model->base_view().sites())
    if (spec.site.layer == 1) sites.insert(spec.site.projection);
  using enum lora::Projection;
  EXPECT_THAT(sites, testing::ElementsAre(q, k, v, o, gate, up, down, router, expert_gate,
                                          expert_up, expert_down));
  std::vector<std::vector<lora::Projection>> products;
  for (const DenseGroup& group : dense_groups(*model)) {
    std::vector<lora::Projection>& maps = products.emplace_back();
    for (const Linear* const map : group) maps.push_back(map->site.projection);
  }
  EXPECT_THAT(products, Contains(std::vector{gate, up}).Times(2));
  EXPECT_THAT(products, Contains(std::vector{router}).Times(2));

  config.dense_intermediate = 1;  // not to be cut
  EXPECT_FALSE(shard_of(config, {.count = 2}).ok());
  config.dense_and_experts = false;
  EXPECT_TRUE(shard_of(config, {.count = 2}).ok());
}

}  // namespace
}  // namespace motley::model
