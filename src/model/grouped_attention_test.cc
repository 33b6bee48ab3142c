#include "model/grouped_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "model/forward/forward.h"
#include "model/test_grouped_attention.h"

namespace motley::model {
namespace {

using tensor::ConstTensor;
using tensor::Tensor;
using test::attention_layer;
using test::GroupedCase;
using test::GroupedUse;
using test::Row;

Tensor view(std::vector<float>& numbers, const tensor::Shape& shape) {
  return Tensor(reinterpret_cast<std::byte*>(numbers.data()), DType::f32, shape);
}

constexpr std::int64_t tokens = 40;  // of a sequence
constexpr std::int64_t pages_each = 3;
constexpr std::size_t sequence_count = 2;

class GroupedAttentionBlocks : public testing::TestWithParam<GroupedCase> {
 protected:
  GroupedAttentionBlocks() {
    std::vector<lora::Mix> mixes{{}, world.mix({{world.load(adapter), 1.5F}})};
    for (std::size_t s = 0; s < sequence_count; ++s) {
      const lora::test::Numbers x(DType::f32, tokens, GetParam().hidden,
                                  lora::test::random_numbers(random, tokens * GetParam().hidden));
      Sequence sequence{.mix = mixes[s]};
      for (std::int64_t t = 0; t < tokens; ++t)
        sequence.x.push_back(lora::test::row_of_numbers(x, t));
      sequences.push_back(std::move(sequence));
    }
    const GroupedConfig& sizes = GetParam().sizes;
    const std::int64_t numbers = 8 * page_tokens * sizes.kv_heads * sizes.head_dim;
    keys.assign(static_cast<std::size_t>(numbers), NAN);
    values = keys;
    if (sizes.rope.dims > 0) rope = RopeTable::create(sizes.rope, world.device, nullptr).value();
  }

  struct Sequence {
    lora::Mix mix;
    std::vector<Row> x;
    std::size_t done = 0;
  };

  // counts[s] more tokens of each sequence; the rows' results.
  std::vector<float> run(const std::vector<int>& counts, bool fuses) {
    std::vector<lora::Mix> mixes;
    std::vector<float> x;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> seq_begin = {0};
    std::vector<std::int32_t> table;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      Sequence& sequence = sequences[s];
      if (counts[s] == 0) continue;
      for (int i = 0; i < counts[s]; ++i, ++sequence.done) {
        mixes.push_back(sequence.mix);
        positions.push_back(static_cast<std::int32_t>(sequence.done));
        for (const double number : sequence.x[sequence.done])
          x.push_back(static_cast<float>(number));
      }
      seq_begin.push_back(static_cast<std::int32_t>(positions.size()));
      for (std::int64_t page = 0; page < pages_each; ++page)
        table.push_back(static_cast<std::int32_t>(7 - 2 * page - static_cast<std::int64_t>(s)));
    }
    const auto rows = std::ssize(positions);
    ops::OpList list;
    Builder pass(list, world.context, {});
    if (rope.spec.dims > 0) pass.add_rope_table(rope);
    const ValueId in = pass.value("x", DType::f32, GetParam().hidden);
    list.set_external(in, 0);
    list.set_external(made.block.append(in, pass), 1);
    Forward forward(list, {.bounds = {rows, 0}, .fuses = fuses});
    const tensor::Buffer memory = world.device.allocate(forward.bytes()).value();
    lora::Batch adapters;
    adapters.build(mixes);
    const GroupedConfig& sizes = GetParam().sizes;
    const tensor::Shape pages{8, page_tokens, sizes.kv_heads, sizes.head_dim};
    std::vector<LayerPages> layers(attention_layer + 1);
    layers[attention_layer] = {view(keys, pages)};
    if (sizes.values != Values::keys) layers[attention_layer].emplace_back(view(values, pages));
    const Batch batch{.count = rows,
                      .rows = {.sequences = std::ssize(seq_begin) - 1,
                               .seq_begin = seq_begin.data(),
                               .positions = positions.data(),
                               .block_table = ConstTensor(
                                   reinterpret_cast<const std::byte*>(table.data()), DType::i32,
                                   {std::ssize(table) / pages_each, pages_each})},
                      .pages = layers,
                      .mixes = {.batch = adapters.empty() ? nullptr : &adapters,
                                .labels = adapters.labels().data()}};
    const tensor::Shape shape{rows, GetParam().hidden};
    std::vector<float> out(static_cast<std::size_t>(shape.elements()), NAN);
    forward.run({.batch = batch,
                 .context = world.context,
                 .experts = {},
                 .memory = memory,
                 .externals = std::array{view(x, shape), view(out, shape)}});
    return out;
  }

  // All rows of each sequence, in steps of these counts.
  std::vector<std::vector<float>> run_all(const std::vector<std::vector<int>>& steps, bool fuses) {
    std::vector<std::vector<float>> all(sequences.size());
    for (Sequence& sequence : sequences) sequence.done = 0;
    for (const std::vector<int>& counts : steps) {
      const std::vector<float> rows = run(counts, fuses);
      auto from = rows.begin();
      for (std::size_t s = 0; s < counts.size(); ++s) {
        const auto end = from + counts[s] * GetParam().hidden;
        all[s].insert(all[s].end(), from, end);
        from = end;
      }
    }
    return all;
  }

  std::mt19937 random{37};
  test::RandomGroupedAttention made{random, GetParam()};
  lora::Adapter adapter = test::adapter_of_all(random, made.block);
  lora::test::World world{DType::f32};
  RopeTable rope;
  std::vector<Sequence> sequences;  // without an adapter, and with one
  std::vector<float> keys, values;
};

TEST_P(GroupedAttentionBlocks, EqualTheDefinition) {
  const std::vector<std::vector<float>> whole = run_all({{tokens, tokens}}, true);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const GroupedUse use{.adapter = s == 0 ? nullptr : &adapter, .scale = 1.5F};
    std::vector<double> wanted;
    for (const Row& row : test::by_definition(made.block, use, sequences[s].x))
      wanted.insert(wanted.end(), row.begin(), row.end());
    double largest = 0;
    for (const double number : wanted) largest = std::max(largest, std::abs(number));
    ASSERT_EQ(wanted.size(), whole[s].size());
    // About ten float32 operations in sequence, each a sum of a few dozen terms: some 1e-6 in all.
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(whole[s][i], wanted[i], 1e-5 * largest)
          << "sequence " << s << ", row " << static_cast<std::int64_t>(i) / GetParam().hidden;
  }
}

// In any steps, and with every op by itself.
TEST_P(GroupedAttentionBlocks, HaveTheSameBitsHoweverTheyRun) {
  const std::vector<std::vector<float>> whole = run_all({{tokens, tokens}}, true);
  EXPECT_EQ(run_all({{tokens, tokens}}, false), whole) << "without fusion";
  const std::vector<std::vector<int>> pieces = {{5, 0}, {1, 17}, {1, 1}, {16, 0}, {0, 21}, {17, 1}};
  EXPECT_EQ(run_all(pieces, true), whole) << "in pieces";
  EXPECT_EQ(run_all(pieces, false), whole) << "in pieces, without fusion";
}

INSTANTIATE_TEST_SUITE_P(Layers, GroupedAttentionBlocks, testing::ValuesIn(test::grouped_cases(16)),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace motley::model
