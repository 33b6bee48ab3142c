// What adapters do with what comes next, with embeddings and with latents.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "gpu/adapters_world.h"
#include "ops/attention.h"
#include "ops/norm.h"

namespace motley::gpu_tests {
namespace {

// Mixes of `rows` rows, five of a kind after one another.
Mixes mixes_of(const Mixes& kinds, int rows) {
  Mixes mixes;
  for (int row = 0; row < rows; ++row)
    mixes.push_back(kinds[static_cast<std::size_t>(row / 5 + 1) % kinds.size()]);
  return mixes;
}

constexpr std::int64_t kv_heads = 2;

// The rows of two sequences on their way to attention.
class RowsOfHeads {
 public:
  struct Sizes {
    std::int64_t rows, in, width, q_heads;
    std::int64_t rotated;  // columns of a head

    std::int64_t q_width() const { return q_heads * width; }
    std::int64_t kv_width() const { return kv_heads * width; }
  };
  struct Results {
    DeviceArray<float> products;
    DeviceArray<bf16> queries, keys, values;
  };

  RowsOfHeads(std::mt19937& random, const Sizes& sizes)
      : sizes_(sizes),
        x_(lora::test::Numbers(DType::bf16, sizes.rows, sizes.in,
                               lora::test::random_numbers(random, sizes.rows * sizes.in))
               .half),
        products_(lora::test::random_numbers(
            random, sizes.rows * (sizes.q_width() + 2 * sizes.kv_width()))),
        bias_(lora::test::random_numbers(random, sizes.q_width())),
        v_bias_(lora::test::random_numbers(random, sizes.kv_width())),
        weight_(lora::test::random_numbers(random, sizes.width)),
        cos_sin_(lora::test::random_numbers(random, sizes.rows * sizes.rotated)),
        positions_(counted(sizes.rows, false)),
        seq_begin_(std::vector<std::int32_t>{0, static_cast<std::int32_t>(sizes.rows / 3),
                                             static_cast<std::int32_t>(sizes.rows)}),
        pages_(sizes.rows / page_tokens + 1),
        table_(counted(2 * pages_, true)) {}

  // By one call, or by finish_linears and prepare_heads.
  Results run(BothPools& pools, bool together) const {
    const auto& [rows, in, width, q_heads, rotated] = sizes_;
    const std::int64_t q_width = sizes_.q_width();
    const std::int64_t kv_width = sizes_.kv_width();
    const auto stored = static_cast<std::size_t>(2 * pages_ * page_tokens * kv_width);
    Results to{DeviceArray<float>(products_),
               DeviceArray<bf16>(static_cast<std::size_t>(rows * q_width)),
               DeviceArray<bf16>(stored), DeviceArray<bf16>(stored)};
    // What poisons them is on another stream.
    finish();
    const ops::Context context = pools.context();
    const Tensor qkv = view(to.products, {rows, q_width + 2 * kv_width});
    const Tensor q_rows = qkv.slice(1, 0, q_width);
    const Tensor k_rows = qkv.slice(1, q_width, q_width + kv_width);
    const Tensor v_rows = qkv.slice(1, q_width + kv_width, qkv.dim(1));
    // No adapter changes the values: what they get is their bias.
    const ops::HeadsCall call = heads_call(context, qkv, together ? v_bias_.data() : nullptr, to);
    const std::array linears{lora::AdaptedLinear{q_site, q_rows, bias_.data(), q_rows},
                             lora::AdaptedLinear{k_site, k_rows, nullptr, k_rows},
                             lora::AdaptedLinear{v_site, v_rows, v_bias_.data(), v_rows}};
    const lora::RowMixes mixes = pools.on_device();
    const Tensor x = view(x_, {rows, in});
    if (together) {
      lora::finish_heads(mixes, x, std::span(linears).first(2), call, context);
    } else {
      lora::finish_linears(mixes, x, linears, context);
      ops::prepare_heads(context, call);
    }
    pools.finish_stream();
    return to;
  }

 private:
  static constexpr std::int64_t page_tokens = 16;

  // 0, 1, 2, ..., or the other way round.
  static std::vector<std::int32_t> counted(std::int64_t count, bool down) {
    std::vector<std::int32_t> numbers;
    for (std::int64_t i = 0; i < count; ++i)
      numbers.push_back(static_cast<std::int32_t>(down ? count - 1 - i : i));
    return numbers;
  }
  ops::HeadsCall heads_call(const ops::Context& context, const Tensor& qkv, const float* v_bias,
                            const Results& to) const {
    const auto& [rows, in, width, q_heads, rotated] = sizes_;
    const Tensor heads = qkv.reshape({rows, q_heads + 2 * kv_heads, width});
    const auto pages = [&](const DeviceArray<bf16>& array) {
      return view(array, {2 * pages_, page_tokens, kv_heads, sizes_.width});
    };
    const ops::PagedRows paged{.sequences = 2,
                               .seq_begin = seq_begin_.data(),
                               .positions = positions_.data(),
                               .block_table = view(table_, {2, pages_}),
                               .max_rows = rows};
    const ops::HeadNorm norm{.weight = weight_.data()};
    return {context,
            paged,
            {.cos_sin = view(cos_sin_, {rows, rotated})},
            std::array{ops::PreparedHeads{.x = heads.slice(1, 0, q_heads),
                                          .norm = norm,
                                          .rotated = true,
                                          .out = view(to.queries, {rows, q_heads, width})},
                       ops::PreparedHeads{.x = heads.slice(1, q_heads, q_heads + kv_heads),
                                          .norm = norm,
                                          .rotated = true,
                                          .pages = pages(to.keys)},
                       ops::PreparedHeads{.x = heads.slice(1, q_heads + kv_heads, heads.dim(1)),
                                          .bias = v_bias,
                                          .pages = pages(to.values)}}};
  }

  Sizes sizes_;
  DeviceArray<bf16> x_;
  std::vector<float> products_;
  DeviceArray<float> bias_, v_bias_, weight_, cos_sin_;
  DeviceArray<std::int32_t> positions_, seq_begin_;
  std::int64_t pages_;  // of a sequence
  DeviceArray<std::int32_t> table_;
};

bool same(const DeviceArray<bf16>& a, const DeviceArray<bf16>& b) {
  const std::vector<bf16> left = a.read();
  const std::vector<bf16> right = b.read();
  return std::memcmp(left.data(), right.data(), left.size() * sizeof(bf16)) == 0;
}

// Heads on their way to attention have the bits of deltas and prepare_heads one after the other:
// rows of every kind, the base's too; projections without a delta; heads that lanes hold, and
// others.
TEST_P(GpuAdapters, HeadsEqualLinearsAndThenHeads) {
  constexpr std::int64_t in = 136;
  for (const auto& [width, q_heads, rotated] : std::vector<std::array<std::int64_t, 3>>{
           {128, 9, 128}, {64, 6, 64}, {48, 3, 48}, {128, 9, 64}, {64, 6, 32}}) {
    const std::int64_t q_width = q_heads * width;
    const std::int64_t kv_width = kv_heads * width;
    const Adapter all = make({{q_site, {in, q_width}}, {k_site, {in, kv_width}}}, 5);
    const Adapter wide =
        make({{q_site, {in, q_width}}, {k_site, {in, kv_width}}}, 100,
             [&](AdapterMaker& maker, lora::SiteDelta& site) {
               site.lora_bias =
                   add(maker, 1, site.site.projection == Projection::q ? q_width : kv_width);
             });
    const Adapter dora = make(
        {{k_site, {in, kv_width}}}, 24,
        [&](AdapterMaker& maker, lora::SiteDelta& site) { site.gain = add(maker, 1, kv_width); });
    const Adapter zero = make({{q_site, {in, q_width}}}, 16);
    const Mixes kinds = {
        {}, {{&all, 1}}, {{&wide, 0.5F}, {&all, 2}}, {{&dora, 1}}, {}, {{&wide, -1}}, {{&zero, 1}}};
    for (const int rows : {1, 20, 300}) {
      BothPools pools(GetParam(), rows);
      pools.build(mixes_of(kinds, rows));
      const RowsOfHeads world(random, {rows, in, width, q_heads, rotated});
      const RowsOfHeads::Results together = world.run(pools, true);
      const RowsOfHeads::Results apart = world.run(pools, false);
      EXPECT_TRUE(same(together.queries, apart.queries)) << "width " << width << ", rows " << rows;
      EXPECT_TRUE(same(together.keys, apart.keys)) << "width " << width << ", rows " << rows;
      EXPECT_TRUE(same(together.values, apart.values)) << "width " << width << ", rows " << rows;
    }
  }
}

// A map's deltas and the sum and norm behind them have the bits of one after the other: rows of
// every kind, the base's too; widths that teams of both sizes share, and one that goes apart.
TEST_P(GpuAdapters, NormsEqualLinearsAndThenNorms) {
  constexpr Site site{0, Projection::o};
  constexpr std::int64_t in = 136;
  for (const std::int64_t width : {1056, 2048, 2880, 4096, 96}) {
    const Adapter plain = make({{site, {in, width}}}, 5);
    const Adapter wide =
        make({{site, {in, width}}}, 100, [&](AdapterMaker& maker, lora::SiteDelta& delta) {
          delta.lora_bias = add(maker, 1, width);
        });
    const Adapter dora = make(
        {{site, {in, width}}}, 24,
        [&](AdapterMaker& maker, lora::SiteDelta& delta) { delta.gain = add(maker, 1, width); });
    const Adapter elsewhere = make({{{3, Projection::o}, {in, width}}}, 8);
    const Mixes kinds = {{},           {{&plain, 1}},     {{&wide, 0.5F}, {&plain, 2}},
                         {{&dora, 1}}, {{&elsewhere, 1}}, {{&wide, 1}}};
    constexpr int rows = 300;
    Mixes mixes;
    for (int row = 0; row < rows; ++row)
      mixes.push_back(kinds[static_cast<std::size_t>(row < 200 ? row / 37 : row) % kinds.size()]);
    BothPools pools(GetParam(), rows);
    pools.build(mixes);
    const ops::Context context = pools.context();
    const lora::test::Numbers x(DType::bf16, rows, in,
                                lora::test::random_numbers(random, rows * in));
    const DeviceArray<bf16> x_there(x.half);
    const std::vector<float> products = lora::test::random_numbers(random, rows * width);
    const DeviceArray<float> hidden(lora::test::random_numbers(random, rows * width));
    const DeviceArray<float> bias(lora::test::random_numbers(random, width));
    const DeviceArray<float> weight(lora::test::random_numbers(random, width));
    struct Results {
      DeviceArray<float> sums;
      DeviceArray<bf16> normed;
    };
    const auto run = [&](bool together) {
      const DeviceArray<float> acc(products);
      Results to{DeviceArray<float>(static_cast<std::size_t>(rows * width)),
                 DeviceArray<bf16>(static_cast<std::size_t>(rows * width))};
      // What poisons them is on another stream.
      finish();
      const Tensor results = view(acc, {rows, width});
      const lora::AdaptedLinear map{site, results, bias.data(), results};
      const kernels::AddAndNorm sum = ops::add_and_norm_call(
          context, {view(hidden, {rows, width}), results, view(to.sums, {rows, width})},
          view(weight, {width}), {}, view(to.normed, {rows, width}));
      const Tensor x_rows = view(x_there, {rows, in});
      const bool takes = lora::takes_norm(pools.on_device(), x_rows, map, sum, context);
      EXPECT_EQ(takes, width > 1024 && GetParam() != DType::f32) << "width " << width;
      if (together && takes) {
        lora::finish_linear_and_norm(pools.on_device(), x_rows, map, sum, context);
      } else {
        lora::finish_linears(pools.on_device(), x_rows, std::array{map}, context);
        context.kernels->add_and_norm(sum, context.stream);
      }
      pools.finish_stream();
      return to;
    };
    const Results together = run(true);
    const Results apart = run(false);
    EXPECT_EQ(together.sums.read(), apart.sums.read()) << "width " << width;
    const std::vector<bf16> left = together.normed.read();
    const std::vector<bf16> right = apart.normed.read();
    EXPECT_EQ(std::memcmp(left.data(), right.data(), left.size() * sizeof(bf16)), 0)
        << "width " << width;
  }
}

TEST_P(GpuAdapters, ZeroFactorsChangeNothing) {
  constexpr Site site{0, Projection::o};
  Adapter zero = make({{site, {40, 50}}}, 9);
  std::ranges::fill(zero.matrices[1].values, 0.0F);
  BothPools pools(GetParam(), 3);
  pools.build({{{&zero, 1}}, {{&zero, -3}}, {}});
  const DeviceArray<float> x(lora::test::random_numbers(random, 120));
  const std::vector<float> acc = lora::test::random_numbers(random, 150);
  const DeviceArray<float> there(acc);
  const Tensor out = view(there, {3, 50});
  lora::finish_linears(pools.on_device(), view(x, {3, 40}),
                       std::array{lora::AdaptedLinear{site, out, nullptr, out}}, pools.context());
  pools.finish_stream();
  EXPECT_EQ(there.read(), acc);
}

TEST_P(GpuAdapters, EmbeddingsEqualTheCpu) {
  constexpr Site site{-1, Projection::embed};
  constexpr std::int64_t vocabulary = 53;
  constexpr std::int64_t width = 70;
  const Adapter adapter = make({{site, {vocabulary, width}}}, 6);
  const Adapter own =
      make({{site, {vocabulary, width}}}, 0, [&](AdapterMaker& maker, lora::SiteDelta& delta) {
        delta.factors[0] = {};
        delta.replaced = add(maker, vocabulary, width);
      });
  BothPools pools(GetParam(), 4);
  pools.build({{{&adapter, 2}}, {}, {{&own, 1}}, {{&adapter, 0.5F}}});
  const std::vector<std::int32_t> ids = {52, 3, 17, 0};
  const DeviceArray<std::int32_t> ids_there(ids);
  lora::test::Numbers here(DType::f32, 4, width, lora::test::random_numbers(random, 4 * width));
  const DeviceArray<float> there(here.f32);
  lora::finish_embedding(pools.on_host(), ids.data(), vocabulary, here.view(), here.view(),
                         pools.host_context());
  const Tensor out = view(there, {4, width});
  lora::finish_embedding(pools.on_device(), ids_there.data(), vocabulary, out, out,
                         pools.context());
  pools.finish_stream();
  const std::vector<float> got = there.read();
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], here.f32[i], 4e-6) << "row " << i / width << ", number " << i % width;
}

TEST_P(GpuAdapters, LatentDeltasEqualTheCpu) {
  constexpr std::int32_t layer = 2;
  constexpr Site site{layer, Projection::kv_b};
  constexpr std::int64_t heads = 3;
  constexpr std::int64_t keys = 19;
  constexpr std::int64_t values = 11;
  constexpr std::int64_t latent = 45;
  constexpr std::int64_t out = heads * (keys + values);
  constexpr lora::KvB kv_b{.layer = layer, .rows_a_head = keys + values};
  const Adapter plain = make(
      {{site, {latent, out}}}, 70,
      [&](AdapterMaker& maker, lora::SiteDelta& delta) { delta.lora_bias = add(maker, 1, out); });
  const Adapter dora =
      make({{site, {latent, out}}}, 5,
           [&](AdapterMaker& maker, lora::SiteDelta& delta) { delta.gain = add(maker, 1, out); });
  BothPools pools(GetParam(), 4);
  pools.build({{{&plain, 1.5F}}, {}, {{&dora, 1}}, {{&plain, 1}}});
  const auto numbers = [&](std::int64_t width) {
    return lora::test::Numbers(DType::f32, 4, heads * width,
                               coarse_numbers(random, 4 * heads * width));
  };
  lora::test::Numbers q = numbers(keys);
  lora::test::Numbers c = numbers(latent);
  lora::test::Numbers v = numbers(values);
  const DeviceArray<float> q_there(q.f32);
  const DeviceArray<float> c_there(c.f32);
  const DeviceArray<float> v_there(v.f32);
  const DeviceArray<bf16> c_rounded(c.f32.size());
  const DeviceArray<bf16> v_rounded(v.f32.size());
  const auto run = [&](const lora::RowMixes& mixes, const Tensor& queries, const Tensor& latents,
                       const Tensor& heads_values, const ops::Context& context) {
    const bool device = mixes.table != nullptr;
    lora::kv_b_scale_queries(mixes, kv_b, queries, context);
    lora::kv_b_value_delta(mixes, kv_b, latents, heads_values, context,
                           device ? view(v_rounded, {4, heads, values}) : Tensor());
    lora::kv_b_key_delta(mixes, kv_b, queries, latents, context,
                         device ? view(c_rounded, {4, heads, latent}) : Tensor());
  };
  run(pools.on_host(), q.view().reshape({4, heads, keys}), c.view().reshape({4, heads, latent}),
      v.view().reshape({4, heads, values}), pools.host_context());
  run(pools.on_device(), view(q_there, {4, heads, keys}), view(c_there, {4, heads, latent}),
      view(v_there, {4, heads, values}), pools.context());
  pools.finish_stream();
  const auto compare = [](const char* what, const std::vector<float>& got,
                          const lora::test::Numbers& wanted) {
    double largest = 0;
    for (const float number : wanted.f32) largest = std::max(largest, std::abs(double{number}));
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted.f32[i], 4e-6 * largest) << what << " " << i;
  };
  compare("queries", q_there.read(), q);
  compare("latents", c_there.read(), c);
  compare("values", v_there.read(), v);
  const auto compare_rounded = [](const std::vector<bf16>& got, const std::vector<float>& whole) {
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_EQ(got[i].to_float(), bf16::from(whole[i]).to_float()) << i;
  };
  compare_rounded(c_rounded.read(), c_there.read());
  compare_rounded(v_rounded.read(), v_there.read());
}

}  // namespace
}  // namespace motley::gpu_tests
