#include "model/latent_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/elementary.h"
#include "lora/test_world.h"
#include "model/forward/forward.h"
#include "model/grouped_attention.h"
#include "tensor/device/cpu_device.h"

namespace motley::model {
namespace {

using lora::Projection;
using tensor::ConstTensor;
using tensor::Tensor;
using Row = std::vector<double>;

constexpr std::int32_t layer = 3;
constexpr lora::Site kv_b_site{layer, Projection::kv_b};

Tensor view(std::vector<float>& numbers, const tensor::Shape& shape) {
  return Tensor(reinterpret_cast<std::byte*>(numbers.data()), DType::f32, shape);
}

// A block of random weights of size 1 / sqrt(in).
class RandomBlock {
  tensor::CpuDevice device_{{.threads = 1}};  // outlives the block's vectors

 public:
  RandomBlock(std::mt19937& random, const LatentConfig& sizes, std::int64_t hidden)
      : random_(&random) {
    const std::int64_t heads = sizes.heads;
    block.sizes = sizes;
    block.heads = heads;
    const std::int64_t q_width = heads * (sizes.nope_dim + sizes.rope_dim);
    if (sizes.q_rank == 0) {
      block.q = linear(Projection::q, q_width, hidden);
    } else {
      block.q_a = linear(Projection::q_a, sizes.q_rank, hidden);
      block.q_b = linear(Projection::q_b, q_width, sizes.q_rank);
      block.q_a_norm = norm(sizes.q_rank);
    }
    block.kv_a = linear(Projection::kv_a, sizes.kv_rank + sizes.rope_dim, hidden);
    block.kv_a_norm = norm(sizes.kv_rank);
    block.kv_b =
        linear(Projection::kv_b, heads * (sizes.nope_dim + sizes.value_dim), sizes.kv_rank);
    block.o = linear(Projection::o, hidden, heads * sizes.value_dim);
  }

  LatentAttention block;

 private:
  Linear linear(Projection projection, std::int64_t out, std::int64_t in) {
    std::vector<float>& weight =
        weights_.emplace_back(lora::test::random_numbers(*random_, out * in));
    for (float& number : weight) number *= std::sqrt(3.0F / static_cast<float>(in));
    return {.site = {layer, projection}, .weight = quant::Weight::borrow(view(weight, {out, in}))};
  }
  Norm norm(std::int64_t width) {
    std::vector<float> weight = lora::test::random_numbers(*random_, width);
    for (float& number : weight) number += 1.5F;
    return {.weight = Vector::create(weight, device_, nullptr).value()};
  }

  std::mt19937* random_;
  std::list<std::vector<float>> weights_;
};

// kv_b's delta: of plain LoRA with a bias behind B, or of DoRA.
lora::Adapter kv_b_adapter(std::mt19937& random, const LatentAttention& block, bool dora) {
  const std::int64_t in = block.kv_b.in();
  const std::int64_t out = block.kv_b.out();
  lora::test::AdapterMaker maker(random);
  const int a = maker.add(3, in);
  const int b = maker.add(out, 3);
  const int extra = maker.add(1, out);
  lora::SiteDelta& delta = maker.site(kv_b_site, in, out);
  delta.factors[0] = maker.factors(a, b, 3, 0.4F);
  (dora ? delta.gain : delta.lora_bias) = extra;
  return maker.done();
}

Row product(const Linear& linear, const Row& x) {
  std::vector<float> weight(static_cast<std::size_t>(linear.out() * linear.in()));
  linear.weight.decode(0, linear.out(), weight.data());
  Row y(static_cast<std::size_t>(linear.out()));
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += double{weight[o * x.size() + i]} * x[i];
  }
  return y;
}

void normalise(const Norm& norm, std::span<double> x) {
  double squares = 0;
  for (const double number : x) squares += number * number;
  const double by = 1 / std::sqrt(squares / static_cast<double>(x.size()) + double{norm.eps});
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= by * double{norm.weight.data()[i]};
}

// A request's mix, and the adapter in it with its scale.
struct Use {
  lora::Mix mix;
  const lora::Adapter* adapter = nullptr;
  float scale = 1;
};

Row expand(const LatentAttention& block, const Use& use, const Row& latent) {
  Row y = product(block.kv_b, latent);
  if (use.adapter == nullptr) return y;
  const lora::SiteDelta& delta = use.adapter->sites[0];
  const Row more = lora::test::delta_of(*use.adapter, delta.factors[0], latent);
  const auto vector = [&](int index, std::size_t at) {
    return double{use.adapter->matrices[static_cast<std::size_t>(index)].values[at]};
  };
  for (std::size_t o = 0; o < y.size(); ++o) {
    y[o] += double{use.scale} * more[o];
    if (delta.lora_bias >= 0)
      y[o] += double{use.scale} * double{delta.factors[0].scale} * vector(delta.lora_bias, o);
    if (delta.gain >= 0) y[o] *= vector(delta.gain, o);
  }
  return y;
}

// The definition in float64, for all rows of a sequence at once.
std::vector<Row> by_definition(const LatentAttention& block, const Use& use,
                               const std::vector<float>& frequencies, const std::vector<Row>& xs) {
  const auto heads = static_cast<std::size_t>(block.heads);
  const auto kl = static_cast<std::size_t>(block.sizes.kv_rank);
  const auto dn = static_cast<std::size_t>(block.sizes.nope_dim);
  const auto dr = static_cast<std::size_t>(block.sizes.rope_dim);
  const auto dv = static_cast<std::size_t>(block.sizes.value_dim);
  const bool interleaved = block.sizes.rope.pairs == ops::RopeSpec::Pairs::interleaved;
  const auto rotate = [&](std::size_t position, std::span<double> x) {
    for (std::size_t i = 0; i < dr / 2; ++i) {
      double& first = x[interleaved ? 2 * i : i];
      double& second = x[interleaved ? 2 * i + 1 : i + dr / 2];
      const double angle = static_cast<double>(position) * double{frequencies[i]};
      const double kept = first;
      first = kept * std::cos(angle) - second * std::sin(angle);
      second = second * std::cos(angle) + kept * std::sin(angle);
    }
  };
  std::vector<Row> rotated;
  std::vector<Row> expanded;
  std::vector<Row> result;
  for (std::size_t position = 0; position < xs.size(); ++position) {
    Row kv = product(block.kv_a, xs[position]);
    const std::span<double> latent = std::span(kv).first(kl);
    normalise(block.kv_a_norm, latent);
    expanded.push_back(expand(block, use, {latent.begin(), latent.end()}));
    rotate(position, std::span(kv).subspan(kl));
    rotated.emplace_back(kv.begin() + static_cast<std::ptrdiff_t>(kl), kv.end());

    Row q;
    if (block.q) {
      q = product(*block.q, xs[position]);
    } else {
      Row q_latent = product(*block.q_a, xs[position]);
      normalise(block.q_a_norm, q_latent);
      q = product(*block.q_b, q_latent);
    }
    Row values(heads * dv);
    for (std::size_t head = 0; head < heads; ++head) {
      const std::span<double> query = std::span(q).subspan(head * (dn + dr), dn + dr);
      rotate(position, query.subspan(dn));
      double total = 0;
      for (std::size_t at = 0; at <= position; ++at) {
        const double* const own = expanded[at].data() + head * (dn + dv);
        double score = 0;
        for (std::size_t i = 0; i < dn; ++i) score += query[i] * own[i];
        for (std::size_t i = 0; i < dr; ++i) score += query[dn + i] * rotated[at][i];
        const double weight = std::exp(block.sizes.scale * score);
        total += weight;
        for (std::size_t i = 0; i < dv; ++i) values[head * dv + i] += weight * own[dn + i];
      }
      for (std::size_t i = 0; i < dv; ++i) values[head * dv + i] /= total;
    }
    result.push_back(product(block.o, values));
  }
  return result;
}

struct Sequence {
  std::array<std::int32_t, 6> pages;
  Use use;
  std::vector<Row> x;
  std::size_t done = 0;
};

struct Case {
  LatentConfig sizes;
  std::int64_t hidden = 16;
};

class LatentAttentionForms : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t page_tokens = 3;
  static constexpr std::int64_t pages = 24;

  LatentAttentionForms() {
    world.context.kernels = &kernels::cpu_table();
    Builder pass(ops, world.context, {});
    pass.add_rope_table(rope);
    const ValueId x = pass.value("x", DType::f32, GetParam().hidden);
    ops.set_external(x, 0);
    ops.set_external(made.block.append(x, true, pass), 1);
    const lora::Handle lora_handle = world.load(plain_lora);
    uses = {{},
            {world.mix({{lora_handle, 1.5F}}), &plain_lora, 1.5F},
            {world.mix({{world.load(dora), 1.0F}}), &dora, 1.0F}};
  }

  // Pages of other sequences, and free pages, are full of NaN.
  struct Form {
    std::vector<float> numbers;
    LayerPages pages;
    std::vector<float> out;
  };
  Form form() const {
    const std::int64_t width = made.block.kept_per_token().front().width;
    Form form{.numbers =
                  std::vector<float>(static_cast<std::size_t>(pages * page_tokens * width), NAN)};
    form.pages = {view(form.numbers, {pages, page_tokens, 1, width})};
    return form;
  }

  // Runs one step with counts[s] more tokens of sequence s; writes the rows of both forms to `out`.
  void run(std::vector<Sequence>& sequences, const std::vector<int>& counts, Form& absorbed,
           Form& expanded) {
    std::vector<lora::Mix> mixes;
    std::vector<float> x;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> seq_begin = {0};
    std::vector<std::int32_t> table;
    std::vector<std::int32_t> position_begin = {0};
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      Sequence& sequence = sequences[s];
      if (counts[s] == 0) continue;
      for (int i = 0; i < counts[s]; ++i, ++sequence.done) {
        mixes.push_back(sequence.use.mix);
        positions.push_back(static_cast<std::int32_t>(sequence.done));
        for (const double number : sequence.x[sequence.done])
          x.push_back(static_cast<float>(number));
      }
      seq_begin.push_back(static_cast<std::int32_t>(positions.size()));
      position_begin.push_back(position_begin.back() + static_cast<std::int32_t>(sequence.done));
      table.insert(table.end(), sequence.pages.begin(), sequence.pages.end());
    }
    const auto rows = static_cast<std::int64_t>(positions.size());
    StepPart all{.form = ops::second_form,
                 .sequences = std::ssize(seq_begin) - 1,
                 .rows = rows,
                 .positions = position_begin.back()};
    for (const std::int32_t position : positions)
      all.max_positions = std::max<std::int64_t>(all.max_positions, position + 1);
    Forward forward(ops, {.bounds = {rows, all.positions + ops::rows_after_positions}});
    const tensor::Buffer memory = world.device.allocate(forward.bytes()).value();
    lora::Batch adapters;
    adapters.build(mixes);
    const std::int64_t width = std::ssize(sequences[0].pages);
    Batch batch{
        .count = rows,
        .rows = {.sequences = std::ssize(seq_begin) - 1,
                 .seq_begin = seq_begin.data(),
                 .positions = positions.data(),
                 .block_table = ConstTensor(reinterpret_cast<const std::byte*>(table.data()),
                                            DType::i32, {std::ssize(table) / width, width})},
        .mixes = {.batch = adapters.empty() ? nullptr : &adapters,
                  .labels = adapters.labels().data()},
        .position_begin = position_begin.data()};
    const tensor::Shape shape{rows, GetParam().hidden};
    for (Form* const form : {&absorbed, &expanded}) {
      form->out.assign(static_cast<std::size_t>(shape.elements()), NAN);
      std::vector<LayerPages> layers(layer + 1);
      layers[layer] = form->pages;
      batch.pages = layers;
      if (form == &expanded) batch.parts = std::span(&all, 1);
      forward.run({.batch = batch,
                   .context = world.context,
                   .experts = {},
                   .memory = memory,
                   .externals = std::array{view(x, shape), view(form->out, shape)}});
    }
  }

  std::mt19937 random{29};
  RandomBlock made{random, GetParam().sizes, GetParam().hidden};
  lora::Adapter plain_lora = kv_b_adapter(random, made.block, false);
  lora::Adapter dora = kv_b_adapter(random, made.block, true);
  lora::test::World world{DType::f32};
  RopeTable rope = RopeTable::create(GetParam().sizes.rope, world.device, nullptr).value();
  ops::OpList ops;  // x -> the layer's result, both external
  std::vector<Use> uses;
};

TEST_P(LatentAttentionForms, BothEqualTheDefinition) {
  // The base, LoRA, DoRA, and LoRA again; their pages are interleaved.
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> free_pages(pages);
  for (std::int32_t page = 0; page < pages; ++page)
    free_pages[static_cast<std::size_t>(page)] = page;
  std::ranges::shuffle(free_pages, random);
  const std::vector<float> frequencies =
      ops::rope_frequencies(GetParam().sizes.rope).inverse_frequencies;
  std::vector<std::vector<Row>> expected;
  for (std::size_t s = 0; s < 4; ++s) {
    Sequence sequence{.use = uses[s % 3 + s / 3]};
    std::copy_n(free_pages.begin() + static_cast<std::ptrdiff_t>(6 * s), 6, sequence.pages.begin());
    const lora::test::Numbers x(DType::f32, 16, GetParam().hidden,
                                lora::test::random_numbers(random, 16 * GetParam().hidden));
    for (std::int64_t t = 0; t < 16; ++t) sequence.x.push_back(lora::test::row_of_numbers(x, t));
    expected.push_back(by_definition(made.block, sequence.use, frequencies, sequence.x));
    sequences.push_back(std::move(sequence));
  }

  Form absorbed = form();
  Form expanded = form();
  for (const std::vector<int>& counts : std::vector<std::vector<int>>{
           {5, 1, 4, 0}, {1, 7, 1, 11}, {3, 0, 0, 0}, {0, 1, 6, 1}, {7, 7, 5, 4}}) {
    std::vector<double> wanted;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      for (int i = 0; i < counts[s]; ++i) {
        const Row& row = expected[s][sequences[s].done + static_cast<std::size_t>(i)];
        wanted.insert(wanted.end(), row.begin(), row.end());
      }
    }
    run(sequences, counts, absorbed, expanded);
    double largest = 0;
    for (const double number : wanted) largest = std::max(largest, std::abs(number));
    // About a dozen float32 products in sequence, each a sum of a few dozen terms: some 1e-6 in
    // all.
    const double tolerance = 1e-5 * largest;
    ASSERT_EQ(wanted.size(), absorbed.out.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / GetParam().hidden;
      ASSERT_NEAR(absorbed.out[i], wanted[i], tolerance) << "absorbed, row " << row;
      ASSERT_NEAR(expanded.out[i], wanted[i], tolerance) << "expanded, row " << row;
    }
  }
}

// With scores that are far from equal.
LatentConfig sizes(LatentConfig sizes, bool interleaved) {
  sizes.scale = 0.9;
  sizes.rope = {
      .pairs = interleaved ? ops::RopeSpec::Pairs::interleaved : ops::RopeSpec::Pairs::half,
      .dims = sizes.rope_dim,
      .base = 100.0};
  return sizes;
}

INSTANTIATE_TEST_SUITE_P(Blocks, LatentAttentionForms,
                         testing::Values(Case{sizes({1, 0, 16, 8, 4, 8}, false), 16},
                                         Case{sizes({3, 0, 13, 7, 6, 5}, true), 19},
                                         Case{sizes({2, 11, 9, 5, 2, 11}, false), 23},
                                         Case{sizes({3, 24, 33, 17, 10, 9}, true), 31}),
                         [](const testing::TestParamInfo<Case>& test) {
                           const LatentConfig& shape = test.param.sizes;
                           return cat(shape.heads, "_heads_q_rank_", shape.q_rank, "_kv_rank_",
                                      shape.kv_rank);
                         });

TEST(AttentionShape, IsWhatTheLayersKernelsRead) {
  GroupedAttention grouped;
  grouped.heads = 12;
  grouped.kv_heads = 3;
  grouped.sizes.head_dim = 64;
  const kernels::AttentionShape of_grouped = grouped.attention_shape(5);
  EXPECT_EQ(of_grouped.sequences, 5);
  EXPECT_EQ(of_grouped.heads, 12);
  EXPECT_EQ(of_grouped.kv_heads, 3);
  EXPECT_EQ(of_grouped.value_width, 64);
  LatentAttention latent;
  latent.heads = 16;
  latent.sizes.kv_rank = 24;
  latent.sizes.value_dim = 8;
  const kernels::AttentionShape of_latent = latent.attention_shape(2);
  EXPECT_EQ(of_latent.sequences, 2);
  EXPECT_EQ(of_latent.heads, 16);
  EXPECT_EQ(of_latent.kv_heads, 1) << "all heads read the latent";
  EXPECT_EQ(of_latent.value_width, 24);
}

}  // namespace
}  // namespace motley::model
