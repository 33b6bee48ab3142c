#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
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

struct Types {
  DType x;
  DType factors;
};

std::string type_names(const testing::TestParamInfo<Types>& test) {
  return cat("x_", name(test.param.x), "_factors_", name(test.param.factors));
}

class ApplyDense : public testing::TestWithParam<Types> {
 protected:
  Numbers random_x(std::int64_t rows, std::int64_t columns) {
    return {GetParam().x, rows, columns, bf16_numbers(random, rows * columns)};
  }
  Numbers random_acc(std::int64_t rows, std::int64_t columns) {
    return {DType::f32, rows, columns, test::random_numbers(random, rows * columns)};
  }
  Adapter plain(Site site, std::int64_t in, std::int64_t out, int rank, float scale,
                bool zero = false) {
    AdapterMaker maker(random);
    const bool embed = site.projection == Projection::embed;
    const int a = embed ? maker.add(in, rank) : maker.add(rank, in);
    const int b = maker.add(out, rank, zero);
    maker.site(site, in, out).factors[0] = maker.factors(a, b, rank, scale);
    return maker.done();
  }

  std::mt19937 random{17};
  World world{GetParam().factors};
};

TEST_P(ApplyDense, EqualsALoopInFloat64) {
  for (const int rank : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64}) {
    const Site site{2, Projection::o};
    const std::int64_t in = 20 + rank;
    const std::int64_t out = 37;
    const Adapter first = plain(site, in, out, rank, 0.7F);
    const Adapter second = plain(site, in, out, 5, -0.3F);
    const Adapter elsewhere = plain({1, Projection::o}, in, out, 5, 9.0F);
    const Handle one = world.load(first);
    const Handle two = world.load(second);
    const Handle three = world.load(elsewhere);
    const Mix mix = world.mix({{one, 2.0F}, {two, -1.5F}, {three, 1.0F}});
    const std::vector<Mix> rows{Mix(), world.mix({{one, 1.0F}}),   mix,
                                Mix(), world.mix({{three, 1.0F}}), world.mix({{two, 1.0F}})};
    Batch batch;
    batch.build(rows);
    Numbers x = random_x(6, in);
    Numbers acc = random_acc(6, out);
    const Numbers before = acc;
    dense_delta(batch, site, batch.labels(), x.view(), acc.view(), world.context);
    const std::vector<std::vector<std::pair<const Adapter*, double>>> parts{
        {}, {{&first, 1}}, {{&first, 2}, {&second, -1.5}}, {}, {}, {{&second, 1}}};
    for (std::int64_t row = 0; row < 6; ++row) {
      const auto input = row_of_numbers(x, row);
      std::vector<double> expected = row_of_numbers(before, row);
      for (const auto& [adapter, scale] : parts[static_cast<std::size_t>(row)]) {
        const auto delta = delta_of(*adapter, adapter->sites[0].factors[0], input);
        for (std::size_t o = 0; o < delta.size(); ++o) expected[o] += scale * delta[o];
      }
      for (std::int64_t o = 0; o < out; ++o) {
        const double value = expected[static_cast<std::size_t>(o)];
        if (parts[static_cast<std::size_t>(row)].empty()) {
          EXPECT_EQ(acc.at(row, o), before.at(row, o)) << "a row without an adapter";
        } else {
          EXPECT_NEAR(acc.at(row, o), value, test::tolerance(value, in + rank)) << "rank " << rank;
        }
      }
    }
  }
}

TEST_P(ApplyDense, BatchedEqualsAloneBitForBit) {
  const Site site{0, Projection::q};
  const std::int64_t in = 75;
  const std::int64_t out = 300;
  std::vector<Mix> mixes{Mix()};
  for (const int rank : {1, 8, 13, 64})
    mixes.push_back(world.mix({{world.load(plain(site, in, out, rank, 0.25F)), 1.0F}}));
  mixes.push_back(
      world.mix({{mixes[1].parts()[0].adapter, 0.5F}, {mixes[4].parts()[0].adapter, 1.5F}}));
  std::vector<Mix> rows;
  for (int row = 0; row < 40; ++row) rows.push_back(mixes[random() % mixes.size()]);
  Batch batch;
  batch.build(rows);
  Numbers x = random_x(40, in);
  Numbers acc = random_acc(40, out);
  const Numbers before = acc;
  dense_delta(batch, site, batch.labels(), x.view(), acc.view(), world.context);
  World narrow(GetParam().factors, 1);
  for (std::int64_t row = 0; row < 40; ++row) {
    Batch alone;
    alone.build(std::span(rows).subspan(static_cast<std::size_t>(row), 1));
    Numbers one = before;
    const tensor::Tensor row_acc = one.view().slice(0, row, row + 1);
    dense_delta(alone, site, alone.labels(), x.view().slice(0, row, row + 1), row_acc,
                narrow.context);
    EXPECT_EQ(0, std::memcmp(row_acc.bytes(), acc.view().slice(0, row, row + 1).bytes(),
                             static_cast<std::size_t>(out) * sizeof(float)))
        << "row " << row;
  }
}

TEST_P(ApplyDense, RanksThatShareShrinksHaveTheBitsOfOneThatDoesNot) {
  const std::int64_t in = 75;
  const std::int64_t out = 60;
  // A rank has all inputs of q, and a part of those of o.
  for (const Site site : {Site{0, Projection::q}, Site{0, Projection::o}}) {
    std::vector<Mix> mixes{Mix()};
    for (const int rank : {1, 13, 64})
      mixes.push_back(world.mix({{world.load(plain(site, in, out, rank, 0.25F)), 1.0F}}));
    mixes.push_back(
        world.mix({{mixes[1].parts()[0].adapter, 0.5F}, {mixes[3].parts()[0].adapter, 1.5F}}));
    for (const std::int64_t count : {1, 3, 40}) {
      std::vector<Mix> rows;
      for (std::int64_t row = 0; row < count; ++row) rows.push_back(mixes[random() % mixes.size()]);
      Batch batch;
      batch.build(rows);
      const Numbers x = random_x(count, in);
      const Numbers before = random_acc(count, out);
      Numbers alone = before;
      dense_delta(batch, site, batch.labels(), Numbers(x).view(), alone.view(), world.context);
      for (const int ranks : {2, 3, 4}) {
        std::vector<Numbers> accs(static_cast<std::size_t>(ranks), before);
        test::on_sharing_ranks(ranks, [&](std::size_t rank, const ops::Context& context) {
          Numbers own = x;
          // Nothing is exchanged where ranks have other inputs.
          const bool differs = site.projection == Projection::o && rank > 0;
          for (float& number : own.f32) number *= differs ? 2.0F : 1.0F;
          for (bf16& number : own.half)
            number = bf16::from(number.to_float() * (differs ? 2.0F : 1.0F));
          dense_delta(batch, site, batch.labels(), own.view(), accs[rank].view(), context);
        });
        EXPECT_TRUE(accs[0].f32 == alone.f32) << count << " rows, " << ranks << " ranks";
        for (const Numbers& acc : accs) {
          if (site.projection == Projection::q) {
            EXPECT_TRUE(acc.f32 == alone.f32) << count << " rows, " << ranks << " ranks";
          }
        }
      }
    }
  }
}

TEST_P(ApplyDense, WorksThroughRowsThatScratchDoesNotHoldAtOnce) {
  const Site site{0, Projection::q};
  // 700 rows of 2048 numbers exceed the scratch of a call.
  const Mix mix = world.mix({{world.load(plain(site, 3, 2, 2041, 0.01F)), 1.0F}});
  Batch batch;
  batch.build(std::vector<Mix>(700, mix));
  Numbers x = random_x(700, 3);
  Numbers acc = random_acc(700, 2);
  const Numbers before = acc;
  dense_delta(batch, site, batch.labels(), x.view(), acc.view(), world.context);
  EXPECT_LE(world.scratch.peak(), scratch_bytes);
  EXPECT_EQ(world.scratch.used(), 0U);
  int changed = 0;
  for (std::int64_t row = 0; row < 700; ++row)
    changed += acc.at(row, 0) != before.at(row, 0) ? 1 : 0;
  EXPECT_EQ(changed, 700);
}

TEST_P(ApplyDense, ZeroAdapterChangesNoBit) {
  const Site site{0, Projection::q};
  Batch batch;
  batch.build(std::vector<Mix>(2, world.mix({{world.load(plain(site, 9, 11, 3, 2.0F, true)), 1}})));
  Numbers x = random_x(2, 9);
  Numbers acc = random_acc(2, 11);
  const Numbers before = acc;
  dense_delta(batch, site, batch.labels(), x.view(), acc.view(), world.context);
  EXPECT_EQ(acc.f32, before.f32);
}

TEST_P(ApplyDense, FinishAppliesReplacementDeltaGainAndBiasInOrder) {
  const Site site{-1, Projection::lm_head};
  const std::int64_t in = 21;
  const std::int64_t out = 13;
  AdapterMaker maker(random);
  const int a = maker.add(3, in);
  const int b = maker.add(out, 3);
  const int gain = maker.add(1, out);
  const int table = maker.add(out, in);
  const int own_bias = maker.add(1, out);
  SiteDelta& delta = maker.site(site, in, out);
  delta.factors[0] = maker.factors(a, b, 3, 0.5F);
  delta.gain = gain;
  delta.replaced = table;
  delta.replaced_bias = own_bias;
  const Adapter special = maker.done();

  AdapterMaker second(random);
  const int a2 = second.add(2, in);
  const int b2 = second.add(out, 2);
  const int lora_bias = second.add(1, out);
  SiteDelta& biased_delta = second.site(site, in, out);
  biased_delta.factors[0] = second.factors(a2, b2, 2, 0.5F);
  biased_delta.lora_bias = lora_bias;
  const Adapter biased = second.done();

  Batch batch;
  batch.build(std::vector<Mix>{Mix(), world.mix({{world.load(special), 1.0F}}),
                               world.mix({{world.load(biased), 3.0F}})});
  Numbers x = random_x(3, in);
  const std::vector<float> bias = bf16_numbers(random, out);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Numbers acc = random_acc(3, out);
    const Numbers before = acc;
    Numbers result(dtype, 3, out, std::vector<float>(static_cast<std::size_t>(3 * out)));
    finish_linears({&batch, batch.labels().data()}, x.view(),
                   std::array{AdaptedLinear{site, acc.view(), bias.data(), result.view()}},
                   world.context);
    for (std::int64_t o = 0; o < out; ++o) {
      const auto at = static_cast<std::size_t>(o);
      const float plain_sum = before.at(0, o) + bias[at];
      EXPECT_EQ(result.at(0, o),
                dtype == DType::f32 ? plain_sum : bf16::from(plain_sum).to_float());
      double own = 0;
      const auto input = row_of_numbers(x, 1);
      for (std::size_t k = 0; k < input.size(); ++k)
        own += input[k] * double{special.matrices[static_cast<std::size_t>(table)].row(o)[k]};
      own += delta_of(special, special.sites[0].factors[0], input)[at];
      own *= double{special.matrices[static_cast<std::size_t>(gain)].values[at]};
      own += double{special.matrices[static_cast<std::size_t>(own_bias)].values[at]};
      const double rounding = dtype == DType::f32 ? 0 : std::abs(own) / 250;
      EXPECT_NEAR(result.at(1, o), own, test::tolerance(own, 2 * in) + rounding);
      double sum = double{before.at(2, o)} + double{bias[at]};
      sum += 3 * delta_of(biased, biased.sites[0].factors[0], row_of_numbers(x, 2))[at];
      sum += 1.5 * double{biased.matrices[static_cast<std::size_t>(lora_bias)].values[at]};
      const double sum_rounding = dtype == DType::f32 ? 0 : std::abs(sum) / 250;
      EXPECT_NEAR(result.at(2, o), sum, test::tolerance(sum, 2 * in) + sum_rounding);
    }
  }
}

TEST_P(ApplyDense, FinishWithoutABatchRoundsAndAddsTheBias) {
  Numbers acc = random_acc(2, 5);
  const Numbers before = acc;
  Numbers x = random_x(2, 4);
  Numbers out(DType::bf16, 2, 5, std::vector<float>(10));
  finish_linears({}, x.view(),
                 std::array{AdaptedLinear{{0, Projection::q}, acc.view(), nullptr, out.view()}},
                 world.context);
  for (std::int64_t o = 0; o < 5; ++o)
    EXPECT_EQ(out.at(1, o), bf16::from(before.at(1, o)).to_float());
}

TEST_P(ApplyDense, EmbeddingAddsColumnsOrTakesReplacedRows) {
  const Site site{-1, Projection::embed};
  const std::int64_t vocabulary = 19;
  const std::int64_t hidden = 14;
  const Adapter adapter = plain(site, vocabulary, hidden, 3, 0.5F);
  AdapterMaker maker(random);
  const int table = maker.add(vocabulary, hidden);
  maker.site(site, vocabulary, hidden).replaced = table;
  const Adapter replaced = maker.done();
  Batch batch;
  batch.build(std::vector<Mix>{Mix(), world.mix({{world.load(adapter), 2.0F}}),
                               world.mix({{world.load(replaced), 1.0F}})});
  const std::vector<std::int32_t> ids{3, 18, 7};
  Numbers acc = random_acc(3, hidden);
  const Numbers before = acc;
  Numbers out(DType::f32, 3, hidden, std::vector<float>(static_cast<std::size_t>(3 * hidden)));
  finish_embedding({&batch, batch.labels().data()}, ids.data(), vocabulary, acc.view(), out.view(),
                   world.context);
  for (std::int64_t o = 0; o < hidden; ++o) {
    EXPECT_EQ(out.at(0, o), before.at(0, o));
    double value = double{before.at(1, o)};
    for (std::int64_t r = 0; r < 3; ++r)
      value += double{adapter.matrices[0].row(18)[r]} * double{adapter.matrices[1].row(o)[r]};
    EXPECT_NEAR(out.at(1, o), value, test::tolerance(value, 4));
    EXPECT_EQ(out.at(2, o), replaced.matrices[0].row(7)[o]);
  }
}

// q' = W_k^T q, where `weight` has for each head its rows of keys and then its rows of values.
Numbers absorbed_queries(const Numbers& q, const std::vector<float>& weight, std::int64_t heads,
                         std::int64_t keys, std::int64_t head_rows) {
  const std::int64_t latent = std::ssize(weight) / (heads * head_rows);
  Numbers absorbed(DType::f32, 2 * heads, latent,
                   std::vector<float>(static_cast<std::size_t>(2 * heads * latent)));
  for (std::int64_t i = 0; i < 2 * heads; ++i) {
    for (std::int64_t d = 0; d < keys; ++d) {
      for (std::int64_t k = 0; k < latent; ++k)
        absorbed.f32[static_cast<std::size_t>(i * latent + k)] +=
            q.at(i, d) *
            weight[static_cast<std::size_t>(((i % heads) * head_rows + d) * latent + k)];
    }
  }
  return absorbed;
}

// The absorbed products equal the plain product with W + delta.
TEST_P(ApplyDense, AbsorbedKvBEqualsThePlainProduct) {
  const std::int64_t heads = 3;
  const std::int64_t keys = 6;
  const std::int64_t values = 5;
  const std::int64_t latent = 20;
  const std::int64_t out = heads * (keys + values);
  const Site site{1, Projection::kv_b};
  for (const bool dora : {false, true}) {
    AdapterMaker maker(random);
    const int a = maker.add(3, latent);
    const int b = maker.add(out, 3);
    SiteDelta& delta = maker.site(site, latent, out);
    delta.factors[0] = maker.factors(a, b, 3, 0.5F);
    const int extra = maker.add(1, out);
    (dora ? maker.adapter.sites[0].gain : maker.adapter.sites[0].lora_bias) = extra;
    const Adapter adapter = maker.done();
    const std::vector<float>& vector = adapter.matrices[static_cast<std::size_t>(extra)].values;
    const float request = dora ? 1.0F : 1.5F;
    Batch batch;
    batch.build(std::vector<Mix>{Mix(), world.mix({{world.load(adapter), request}})});
    const std::vector<float> weight = bf16_numbers(random, out * latent);
    // y = gain * (W c + scale B A c), row by row of kv_b.
    const auto product = [&](std::int64_t row, const std::vector<double>& c, bool adapted) {
      double sum = 0;
      for (std::int64_t k = 0; k < latent; ++k)
        sum += double{weight[static_cast<std::size_t>(row * latent + k)]} *
               c[static_cast<std::size_t>(k)];
      if (!adapted) return sum;
      const auto at = static_cast<std::size_t>(row);
      sum += double{request} * delta_of(adapter, adapter.sites[0].factors[0], c)[at];
      return dora ? sum * double{vector[at]} : sum;
    };
    // float32 queries, so that scaling them rounds little.
    Numbers q(DType::f32, 2 * heads, keys, bf16_numbers(random, 2 * heads * keys));
    const Numbers plain_q = q;
    const auto three = [&](Numbers& numbers, std::int64_t width) {
      return numbers.view().reshape(tensor::Shape{2, heads, width});
    };
    kv_b_scale_queries({&batch, batch.labels().data()}, {1, keys + values}, three(q, keys),
                       world.context);
    Numbers q_latent = absorbed_queries(q, weight, heads, keys, keys + values);
    kv_b_key_delta({&batch, batch.labels().data()}, {1, keys + values}, three(q, keys),
                   three(q_latent, latent), world.context);
    Numbers c = random_x(2 * heads, latent);
    Numbers result(DType::f32, 2 * heads, values,
                   std::vector<float>(static_cast<std::size_t>(2 * heads * values)));
    for (std::int64_t i = 0; i < 2 * heads; ++i) {
      const std::int64_t head = i % heads;
      const auto cached = row_of_numbers(c, i);
      double score = 0;
      for (std::int64_t d = 0; d < keys; ++d)
        score += double{plain_q.at(i, d)} * product(head * (keys + values) + d, cached, i >= heads);
      double absorbed = 0;
      for (std::int64_t k = 0; k < latent; ++k)
        absorbed += double{q_latent.at(i, k)} * cached[static_cast<std::size_t>(k)];
      EXPECT_NEAR(absorbed, score, 2e-5) << "dora " << dora << " row " << i;
      for (std::int64_t d = 0; d < values; ++d)
        result.f32[static_cast<std::size_t>(i * values + d)] =
            static_cast<float>(product(head * (keys + values) + keys + d, cached, false));
    }
    kv_b_value_delta({&batch, batch.labels().data()}, {1, keys + values}, three(c, latent),
                     three(result, values), world.context);
    for (std::int64_t i = 0; i < 2 * heads; ++i) {
      for (std::int64_t d = 0; d < values; ++d) {
        const std::int64_t row = (i % heads) * (keys + values) + keys + d;
        double expected = product(row, row_of_numbers(c, i), i >= heads);
        if (i >= heads && !dora)
          expected += 0.5 * double{request} * double{vector[static_cast<std::size_t>(row)]};
        EXPECT_NEAR(result.at(i, d), expected, 2e-5) << "dora " << dora;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, ApplyDense,
    testing::Values(Types{DType::f32, DType::f32}, Types{DType::f32, DType::bf16},
                    Types{DType::bf16, DType::f32}, Types{DType::bf16, DType::bf16},
                    Types{DType::f32, DType::f8_e4m3}, Types{DType::bf16, DType::f8_e4m3}),
    type_names);

}  // namespace
}  // namespace motley::lora
