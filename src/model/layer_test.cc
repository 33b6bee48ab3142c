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

  std::vector<float> input() const {
    std::mt19937 numbers(3);
    return lora::test::random_numbers(numbers, rows * small_config().hidden);
  }
  std::vector<float> run(const Block& block) { return run(block, input()); }
  std::vector<float> run(const Block& block, std::vector<float> in) {
    return run(std::move(in), block.moe_blocks(),
               [&](ValueId x, Builder& pass) { return block.append(x, pass); });
  }
  std::vector<float> normed(const Norm& norm, std::vector<float> in) {
    return run(std::move(in), {}, [&](ValueId x, Builder& pass) { return pass.norm(norm, x); });
  }
  Norm random_norm(unsigned seed) {
    std::mt19937 numbers(seed);
    const std::vector<float> weight = lora::test::random_numbers(numbers, small_config().hidden);
    return {.weight = Vector::create(weight, world.device, nullptr).value(), .eps = 1e-5F};
  }
  // What `append` makes of rows.
  template <class Append>
  std::vector<float> run(std::vector<float> in, const std::vector<const MoeBlock*>& moe_blocks,
                         const Append& append) {
    const std::int64_t width = std::ssize(in) / rows;
    ops::OpList list;
    Builder pass(list, world.context, {});
    const ValueId x = pass.value("x", DType::f32, width);
    list.set_external(x, 0);
    list.set_external(append(x, pass), 1);
    Forward forward(list, {.bounds = {rows, 0}});
    const tensor::Buffer memory = world.device.allocate(forward.bytes()).value();
    moe::Workspaces experts;
    for (const MoeBlock* const each : moe_blocks)
      EXPECT_TRUE(experts.add(*each->backend, each->problem, rows, {}, world.device).ok());
    experts.begin_step(rows, nullptr, world.context.stream);
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

  const std::vector<float> of_experts = run(*experts.feed_forward.block);
  const std::vector<float> of_dense = run(*dense.feed_forward.block);
  std::vector<float> sum(of_experts.size());
  std::ranges::transform(of_experts, of_dense, sum.begin(), std::plus());
  EXPECT_EQ(run(*both.feed_forward.block), sum);
  EXPECT_NE(sum, of_experts);
  EXPECT_NE(sum, of_dense);
}

TEST_F(ParallelBlocks, BranchesHaveNormsBeforeAndAfter) {
  Config config = small_config();
  Layer experts = load(config);
  config.moe_layers.assign(config.moe_layers.size(), false);
  Layer dense = load(config);
  // Norms around both, around the dense block, and before the experts.
  const auto norm = [this](unsigned seed) { return random_norm(seed); };
  const std::vector<float> sum = [&] {
    const std::vector<float> of_dense =
        normed(norm(8), run(*dense.feed_forward.block, normed(norm(7), input())));
    std::vector<float> all = run(*experts.feed_forward.block, normed(norm(9), input()));
    std::ranges::transform(of_dense, all, all.begin(), std::plus());
    return normed(norm(10), all);
  }();

  auto branches = std::make_unique<Branches>();
  branches->all.push_back({norm(7), std::move(dense.feed_forward.block), norm(8)});
  branches->all.push_back({norm(9), std::move(experts.feed_forward.block), {}});
  EXPECT_EQ(branches->moe_blocks().size(), 1);
  EXPECT_EQ(branches->vectors().size(), 3 + branches->all.back().block->vectors().size());
  EXPECT_EQ(branches->maps().size(),
            branches->all.front().block->maps().size() + branches->all.back().block->maps().size());
  const Branch<Block> both{{}, std::move(branches), norm(10)};
  EXPECT_EQ(run(input(), both.block->moe_blocks(),
                [&](ValueId x, Builder& pass) { return both.append(x, pass); }),
            sum);
}

// As layers of Nemotron-H are.
TEST_F(ParallelBlocks, ALayerMayHaveOneBlock) {
  Layer layer = load(small_config());
  layer.mixer = {};
  EXPECT_TRUE(layer.kept_per_token().empty());
  EXPECT_TRUE(layer.kept_per_sequence().empty());
  const std::vector<const MoeBlock*> experts = layer.feed_forward.block->moe_blocks();
  std::vector<float> sum =
      run(*layer.feed_forward.block, normed(*layer.feed_forward.before, input()));
  std::ranges::transform(input(), sum, sum.begin(), std::plus());
  EXPECT_EQ(run(input(), experts,
                [&](ValueId x, Builder& pass) {
                  const Residual out = layer.append({.sum = x}, pass);
                  return pass.add(out.sum, out.addend);
                }),
            sum);

  std::vector<Layer> layers;
  layers.push_back(std::move(layer));
  layers.emplace_back();
  int blocks = 0;
  for_each_block(layers, [&](const Block&) { ++blocks; });
  for_each_mixer(layers, [&](const Mixer&, std::size_t) { ++blocks; });
  for_each_moe(layers, [&](const MoeBlock&, std::size_t index) { blocks += index == 0 ? 10 : 0; });
  EXPECT_EQ(blocks, 11);
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
