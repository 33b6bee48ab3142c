// What adapters do beside experts: a GPU's kernels against the CPU's loops over the same batch.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "base/cat.h"
#include "gpu/adapters_world.h"
#include "gpu/ranks_in_turn.h"
#include "kernels/cuda/thresholds.h"

namespace motley::gpu_tests {
namespace {

INSTANTIATE_TEST_SUITE_P(Pages, GpuAdapters,
                         testing::Values(DType::f32, DType::bf16, DType::f8_e4m3),
                         [](const auto& pages) { return std::string(name(pages.param)); });

// Every product is exact and sums are of some hundred numbers below a thousand: what is left is the
// order of float32 additions. `sums`: before they are rounded.
void expect_near(const lora::test::Numbers& sums, const lora::test::Numbers& wanted,
                 const std::vector<float>& got, const Mixes& mixes, double rounding,
                 const std::string& what) {
  double largest = 0;
  for (const float number : sums.f32) largest = std::max(largest, std::abs(double{number}));
  const double tolerance = 4e-6 * largest;
  const std::int64_t out = wanted.shape[1];
  for (std::int64_t row = 0; row < wanted.shape[0]; ++row) {
    const bool base = mixes[static_cast<std::size_t>(row)].empty();
    for (std::int64_t o = 0; o < out; ++o) {
      const double want = wanted.at(row, o);
      const double apart = std::abs(double{got[static_cast<std::size_t>(row * out + o)]} - want);
      ASSERT_LE(apart, base ? 0 : tolerance + rounding * std::abs(want))
          << what << ", row " << row << ", output " << o;
    }
  }
}

struct LinearSizes {
  std::int64_t rows, in, q_out, k_out;
};

void expect_linears_equal(BothPools& pools, const Mixes& mixes, const LinearSizes& sizes,
                          DType x_type, std::mt19937& random) {
  const auto& [rows, in, q_out, k_out] = sizes;
  lora::test::Numbers x(x_type, rows, in, coarse_numbers(random, rows * in));
  const DeviceArray<float> x32(x.f32);
  const DeviceArray<bf16> x16(x.half);
  const Tensor x_there = x_type == DType::f32 ? view(x32, {rows, in}) : view(x16, {rows, in});
  const std::vector<float> bias = coarse_numbers(random, q_out);
  const DeviceArray<float> bias_there(bias);
  std::vector<lora::test::Numbers> accs;
  for (const std::int64_t out : {q_out, k_out, k_out})
    accs.emplace_back(DType::f32, rows, out, lora::test::random_numbers(random, rows * out));
  std::vector<DeviceArray<float>> there;
  for (const lora::test::Numbers& acc : accs) there.emplace_back(acc.f32);
  lora::test::Numbers k_here(DType::bf16, rows, k_out,
                             std::vector<float>(static_cast<std::size_t>(rows * k_out)));
  const DeviceArray<bf16> k_there(static_cast<std::size_t>(rows * k_out));

  // What poisons k_there is on another stream.
  finish();
  lora::finish_linears(
      pools.on_host(), x.view(),
      std::array{lora::AdaptedLinear{q_site, accs[0].view(), bias.data(), accs[0].view()},
                 lora::AdaptedLinear{k_site, accs[1].view(), nullptr, k_here.view()},
                 lora::AdaptedLinear{v_site, accs[2].view(), nullptr, accs[2].view()}},
      pools.host_context());
  const auto at = [&](std::size_t i, std::int64_t out) { return view(there[i], {rows, out}); };
  lora::finish_linears(
      pools.on_device(), x_there,
      std::array{lora::AdaptedLinear{q_site, at(0, q_out), bias_there.data(), at(0, q_out)},
                 lora::AdaptedLinear{k_site, at(1, k_out), nullptr, view(k_there, {rows, k_out})},
                 lora::AdaptedLinear{v_site, at(2, k_out), nullptr, at(2, k_out)}},
      pools.context());
  pools.finish_stream();

  const auto trace = cat(rows, " rows, in ", in);
  expect_near(accs[0], accs[0], there[0].read(), mixes, 0, cat("q, ", trace));
  std::vector<float> k_got;
  for (const bf16 number : k_there.read()) k_got.push_back(number.to_float());
  expect_near(accs[1], k_here, k_got, mixes, 1.0 / 128, cat("k, ", trace));
  expect_near(accs[2], accs[2], there[2].read(), mixes, 0, cat("v, ", trace));
}

// Maps of unequal widths that share x; adapters that have all of them, some, or none; mixes; ranks
// beyond a chunk; odd sizes.
TEST_P(GpuAdapters, LinearsEqualTheCpu) {
  for (const auto& [in, q_out, k_out] : std::vector<std::array<std::int64_t, 3>>{
           {64, 160, 48}, {37, 130, 5}, {264, 17, 300}, {1032, 1300, 36}}) {
    for (const int rows : {1, 7, 150, 300}) {
      BothPools pools(GetParam(), rows);
      const Adapter all =
          make({{q_site, {in, q_out}}, {k_site, {in, k_out}}, {v_site, {in, k_out}}}, 5);
      const Adapter some =
          make({{k_site, {in, k_out}}}, 16, [&](AdapterMaker& maker, lora::SiteDelta& site) {
            site.lora_bias = add(maker, 1, k_out);
          });
      const Adapter wide = make({{q_site, {in, q_out}}, {v_site, {in, k_out}}}, 300);
      const Adapter elsewhere = make({{{3, Projection::q}, {in, q_out}}}, 8);
      const Adapter dora = make(
          {{q_site, {in, q_out}}}, 3,
          [&](AdapterMaker& maker, lora::SiteDelta& site) { site.gain = add(maker, 1, q_out); });
      const Adapter own =
          make({{v_site, {in, k_out}}}, 0, [&](AdapterMaker& maker, lora::SiteDelta& site) {
            site.factors[0] = {};
            site.replaced = add(maker, k_out, in);
            site.replaced_bias = add(maker, 1, k_out);
          });
      const Mixes kinds = {{},
                           {{&all, 1}},
                           {{&some, 0.5F}, {&all, 2}},
                           {{&wide, 1}},
                           {{&elsewhere, 1}},
                           {{&dora, 1}},
                           {{&own, 1}},
                           {{&wide, 0.25F}, {&all, -1}, {&some, 1}}};
      Mixes mixes;
      // Rows side by side share a mix, for a while.
      for (int row = 0; row < rows; ++row)
        mixes.push_back(kinds[static_cast<std::size_t>(row / 3 + rows) % kinds.size()]);
      pools.build(mixes);

      for (const DType x_type : {DType::f32, DType::bf16})
        expect_linears_equal(pools, mixes, {rows, in, q_out, k_out}, x_type, random);
    }
  }
}

// A row's bits are its own: alone, and among rows of other mixes; whatever the kernel that so many
// rows take.
TEST_P(GpuAdapters, RowsDoNotSeeEachOther) {
  constexpr Site q{0, Projection::q};
  constexpr Site k{0, Projection::k};
  constexpr int rows = 600;
  struct Case {
    DType x;
    std::int64_t in, q_out, k_out;
  };
  for (const auto& [x_type, in, q_out, k_out] :
       {Case{DType::f32, 104, 77, 12}, Case{DType::bf16, 104, 77, 12},
        Case{DType::bf16, 1368, 1100, 36}, Case{DType::bf16, 4504, 20, 600}}) {
    const Adapter first = make({{q, {in, q_out}}, {k, {in, k_out}}}, 12);
    const Adapter second = make({{q, {in, q_out}}}, 70);
    const Adapter third = make({{q, {in, q_out}}, {k, {in, k_out}}}, 200);
    const Mixes kinds = {{{&first, 0.7F}},
                         {},
                         {{&second, -1.3F}},
                         {{&first, 0.3F}, {&second, 1.1F}, {&third, 0.9F}},
                         {{&third, 1}}};
    Mixes mixes;
    // Prompts, and behind them rows of their own.
    for (int row = 0; row < rows; ++row)
      mixes.push_back(kinds[static_cast<std::size_t>(row < 400 ? row / 90 : row) % kinds.size()]);
    BothPools pools(GetParam(), rows);
    pools.build(mixes);
    const lora::test::Numbers x(x_type, rows, in, lora::test::random_numbers(random, rows * in));
    const DeviceArray<float> x32(x.f32);
    const DeviceArray<bf16> x16(x.half);
    const Tensor x_there = x_type == DType::f32 ? view(x32, {rows, in}) : view(x16, {rows, in});
    struct Results {
      DeviceArray<float> q;
      DeviceArray<float> k;
    };
    const std::vector<float> q_acc = lora::test::random_numbers(random, rows * q_out);
    const std::vector<float> k_acc = lora::test::random_numbers(random, rows * k_out);
    const auto call = [&](std::int64_t row, std::int64_t count, const Results& to) {
      lora::RowMixes mixes_there = pools.on_device();
      mixes_there.labels += row;
      const auto out = [&](const DeviceArray<float>& array, std::int64_t width) {
        return view(array, {rows, width}).slice(0, row, row + count);
      };
      lora::finish_linears(
          mixes_there, x_there.slice(0, row, row + count),
          std::array{lora::AdaptedLinear{q, out(to.q, q_out), nullptr, out(to.q, q_out)},
                     lora::AdaptedLinear{k, out(to.k, k_out), nullptr, out(to.k, k_out)}},
          pools.context());
    };
    const Results together{DeviceArray<float>(q_acc), DeviceArray<float>(k_acc)};
    call(0, rows, together);
    const Results apart{DeviceArray<float>(q_acc), DeviceArray<float>(k_acc)};
    for (std::int64_t row = 0; row < rows; row += 75)
      for (std::int64_t more = 0; more < 75; more += more < 30 ? 1 : 15)
        call(row + more, more < 30 ? 1 : 15, apart);
    const Results halves{DeviceArray<float>(q_acc), DeviceArray<float>(k_acc)};
    call(0, 200, halves);
    call(200, 400, halves);
    pools.finish_stream();
    EXPECT_EQ(together.q.read(), apart.q.read()) << "in " << in;
    EXPECT_EQ(together.k.read(), apart.k.read()) << "in " << in;
    EXPECT_EQ(together.q.read(), halves.q.read()) << "in " << in;
    EXPECT_EQ(together.k.read(), halves.k.read()) << "in " << in;
    const std::vector<float> got = together.q.read();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto row = i / static_cast<std::size_t>(q_out);
      const std::vector<BothPools::Part>& mix = mixes[row];
      ASSERT_TRUE(std::isfinite(got[i])) << "row " << row;
      ASSERT_TRUE(got[i] == q_acc[i] || !mix.empty()) << "row " << row;
    }
  }
}

TEST_P(GpuAdapters, RanksThatShareShrinksHaveTheBitsOfOneThatDoesNot) {
  // They share rows of panels, which are of factors in bf16 or FP8.
  const bool may_share = GetParam() != DType::f32;
  constexpr int rows = 601;
  for (const auto& [in, q_out, k_out] :
       std::vector<std::array<std::int64_t, 3>>{{104, 77, 12}, {1368, 1100, 36}}) {
    const Adapter first = make({{q_site, {in, q_out}}, {k_site, {in, k_out}}}, 12);
    const Adapter second = make({{q_site, {in, q_out}}}, 70);
    const Mixes kinds = {
        {{&first, 0.7F}}, {}, {{&second, -1.3F}}, {{&first, 0.3F}, {&second, 1.1F}}};
    Mixes mixes;
    // Prompts, and behind them rows of their own.
    for (int row = 0; row < rows; ++row)
      mixes.push_back(kinds[static_cast<std::size_t>(row < 400 ? row / 90 : row) % kinds.size()]);
    BothPools pools(GetParam(), rows);
    pools.build(mixes);
    const lora::test::Numbers x(DType::bf16, rows, in,
                                lora::test::random_numbers(random, rows * in));
    const DeviceArray<bf16> x_there(x.half);
    const std::vector<float> q_acc = lora::test::random_numbers(random, rows * q_out);
    const std::vector<float> k_acc = lora::test::random_numbers(random, rows * k_out);
    const auto results = [&](const ops::Context& context) {
      const DeviceArray<float> q(q_acc);
      const DeviceArray<float> k(k_acc);
      const Tensor q_result = view(q, {rows, q_out});
      const Tensor k_result = view(k, {rows, k_out});
      lora::finish_linears(pools.on_device(), view(x_there, {rows, in}),
                           std::array{lora::AdaptedLinear{q_site, q_result, nullptr, q_result},
                                      lora::AdaptedLinear{k_site, k_result, nullptr, k_result}},
                           context);
      pools.finish_stream();
      return std::pair(q.read(), k.read());
    };
    const auto own = results(pools.context());
    for (const int ranks : {2, 3, 8}) {
      RanksInTurn in_turn(ranks);
      ops::Context context = pools.context();
      context.ranks = &in_turn;
      context.shared_shrinks = {.dense = true, .from_rows = 0};
      auto shared = own;
      for (; in_turn.rank() >= 0; in_turn.next()) shared = results(context);
      EXPECT_EQ(in_turn.gathered(), may_share ? ranks : 0);
      EXPECT_TRUE(shared == own) << "in " << in << ", " << ranks << " ranks";
    }
  }
}

// Groups that are listed, or looked for where some of a table's rows are worked on; few labels, or
// many, which have a way of their own: all have the same bits.
TEST_P(GpuAdapters, GroupsChangeNoBit) {
  constexpr Site q{0, Projection::q};
  constexpr Site k{0, Projection::k};
  constexpr int rows = 90;
  for (const auto& [in, q_out, k_out] :
       std::vector<std::array<std::int64_t, 3>>{{104, 77, 12}, {2048, 1100, 36}, {4504, 20, 600}}) {
    const Adapter first = make({{q, {in, q_out}}, {k, {in, k_out}}}, 12);
    const Adapter second = make({{q, {in, q_out}}}, 70);
    const Mixes kinds = {
        {{&first, 0.7F}}, {}, {{&second, -1.3F}}, {{&first, 0.3F}, {&second, 1.1F}}};
    Mixes mixes;
    for (int row = 0; row < rows; ++row)
      mixes.push_back(kinds[static_cast<std::size_t>(row < 60 ? row / 20 : row) % kinds.size()]);
    Mixes many = mixes;
    for (int row = 0; row < rows; row += row < 60 ? 20 : 1)
      for (BothPools::Part& part : many[static_cast<std::size_t>(row)])
        part.scale += 0.01F * static_cast<float>(row);
    BothPools pools(GetParam(), rows);
    const DeviceArray<bf16> x(
        lora::test::Numbers(DType::bf16, rows, in, lora::test::random_numbers(random, rows * in))
            .half);
    const std::vector<float> products = lora::test::random_numbers(random, rows * (q_out + k_out));
    const auto run = [&](int parts) {
      const DeviceArray<float> results(products);
      finish();
      for (int part = 0; part < parts; ++part) {
        const int begin = part * rows / parts;
        const int end = (part + 1) * rows / parts;
        const Tensor both = view(results, {rows, q_out + k_out}).slice(0, begin, end);
        const Tensor q_rows = both.slice(1, 0, q_out);
        const Tensor k_rows = both.slice(1, q_out, q_out + k_out);
        lora::RowMixes mixes_there = pools.on_device();
        mixes_there.labels += begin;
        lora::finish_linears(mixes_there, view(x, {rows, in}).slice(0, begin, end),
                             std::array{lora::AdaptedLinear{q, q_rows, nullptr, q_rows},
                                        lora::AdaptedLinear{k, k_rows, nullptr, k_rows}},
                             pools.context());
      }
      pools.finish_stream();
      return results.read();
    };
    for (const auto& each : {mixes, many}) {
      pools.build(each);
      EXPECT_EQ(run(1), run(3)) << "in " << in;
    }
  }
}

// Every rank there is, in one batch with an adapter for each row; prompts' kernels and decode's.
TEST_P(GpuAdapters, ManyAdaptersOfAllRanks) {
  constexpr Site site{0, Projection::o};
  constexpr std::int64_t in = 72;
  constexpr std::int64_t out = 40;
  std::vector<Adapter> adapters;
  for (const int rank :
       {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 33, 63, 64, 65, 100, 128, 200, 255, 256})
    adapters.push_back(make({{site, {in, out}}}, rank));
  for (int more = 0; more < 45; ++more) adapters.push_back(make({{site, {in, out}}}, 3 + more % 5));
  for (const int rows : {64, 320}) {
    BothPools pools(GetParam(), rows);
    Mixes mixes;
    for (int row = 0; row < rows; ++row)
      mixes.push_back({{&adapters[static_cast<std::size_t>(row) % adapters.size()], 0.5F}});
    pools.build(mixes);
    lora::test::Numbers x(DType::bf16, rows, in, coarse_numbers(random, rows * in));
    lora::test::Numbers acc(DType::f32, rows, out, lora::test::random_numbers(random, rows * out));
    const DeviceArray<bf16> x_there(x.half);
    const DeviceArray<float> there(acc.f32);
    lora::finish_linears(pools.on_host(), x.view(),
                         std::array{lora::AdaptedLinear{site, acc.view(), nullptr, acc.view()}},
                         pools.host_context());
    const Tensor results = view(there, {rows, out});
    lora::finish_linears(pools.on_device(), view(x_there, {rows, in}),
                         std::array{lora::AdaptedLinear{site, results, nullptr, results}},
                         pools.context());
    pools.finish_stream();
    double largest = 0;
    for (const float number : acc.f32) largest = std::max(largest, std::abs(double{number}));
    const std::vector<float> got = there.read();
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], acc.f32[i], 4e-6 * largest)
          << "row " << i / out << ", " << rows << " rows";
  }
}

struct DeltaCase {
  DType x = DType::bf16;
  DType factors = DType::bf16;
  int rows = 1;
  std::int64_t in = 2048;
  std::int64_t out = 1024;
  int rank = 16;
  int labels = 1;
};

std::string name_of(const testing::TestParamInfo<DeltaCase>& of) {
  const DeltaCase& each = of.param;
  return cat("x_", name(each.x), "_factors_", name(each.factors), "_rows_", each.rows, "_in_",
             each.in, "_out_", each.out, "_rank_", each.rank, "_labels_", each.labels);
}

class GpuDeltaKernels : public AdapterTest, public testing::WithParamInterface<DeltaCase> {};

INSTANTIATE_TEST_SUITE_P(
    Shapes, GpuDeltaKernels,
    testing::Values(DeltaCase{.rows = 1}, DeltaCase{.rows = 16, .labels = 5},
                    DeltaCase{.rows = 90, .in = 4504, .out = 600, .rank = 70, .labels = 20},
                    DeltaCase{.factors = DType::f8_e4m3, .rows = 90, .out = 1100, .labels = 40},
                    DeltaCase{.rows = 256, .out = 77, .rank = 128, .labels = 3},
                    DeltaCase{.rows = 256, .out = 77, .rank = 300, .labels = 3},
                    DeltaCase{.rows = 600, .in = 1368, .rank = 200, .labels = 9},
                    DeltaCase{.x = DType::f32, .rows = 150, .in = 37, .out = 50, .labels = 7},
                    DeltaCase{.factors = DType::f32, .rows = 150, .rank = 300, .labels = 7}),
    name_of);

// All deltas of one arithmetic that take a problem give the same bits; base rows keep theirs in
// every one.
TEST_P(GpuDeltaKernels, OfOneArithmeticGiveTheSameBits) {
  constexpr Site site{0, Projection::o};
  const DeltaCase& of = GetParam();
  std::vector<Adapter> adapters;
  for (int i = 0; i < of.labels; ++i) adapters.push_back(make({{site, {of.in, of.out}}}, of.rank));
  BothPools pools(of.factors, of.rows);
  Mixes mixes;
  for (int row = 0; row < of.rows; ++row) {
    mixes.emplace_back();
    const int label = row % (of.labels + 1);
    if (row == 0 || label < of.labels)
      mixes.back().push_back({&adapters[static_cast<std::size_t>(label % of.labels)], 0.5F});
  }
  pools.build(mixes);
  const lora::test::Numbers x(of.x, of.rows, of.in,
                              lora::test::random_numbers(random, of.rows * of.in));
  const DeviceArray<float> x32(x.f32);
  const DeviceArray<bf16> x16(x.half);
  const std::vector<float> products = lora::test::random_numbers(random, of.rows * of.out);
  std::map<std::string_view, std::vector<float>> first;
  int ran = 0;
  for (const kernels::cuda::DeltaThreshold& row : kernels::cuda::delta_thresholds) {
    const DeviceArray<float> results(products);
    const lora::StepTable& table = pools.table();
    kernels::AdaptLinears call{
        .adapters = table.rows(table.labels(), of.rows),
        .x = of.x == DType::f32 ? static_cast<const void*>(x32.data()) : x16.data(),
        .x_type = of.x,
        .x_stride = of.in,
        .in = of.in,
        .count = 1,
        .rank_rows = table.rank_rows(),
        .max_ranks = table.scope().max_ranks};
    call.linears[0] = {.site = lora::StepTable::entry_of(site),
                       .out = of.out,
                       .acc = results.data(),
                       .acc_stride = of.out,
                       .result = results.data(),
                       .result_stride = of.out};
    const kernels::cuda::DeltaProblem problem{.linears = call};
    if (!row.delta.supports(problem)) continue;
    SCOPED_TRACE(row.delta.expand().info.name);
    // What the array held is written on another stream.
    finish();
    row.delta.run(problem, pools.context().stream);
    pools.finish_stream();
    ++ran;
    const std::vector<float> got = results.read();
    EXPECT_NE(got, products);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(got[i] == products[i] || !mixes[i / static_cast<std::size_t>(of.out)].empty())
          << "base row " << i / static_cast<std::size_t>(of.out);
    const auto [before, is_first] = first.emplace(row.delta.arithmetic().name, got);
    if (!is_first) {
      EXPECT_EQ(got, before->second);
    }
  }
  EXPECT_GE(ran, 2);
}

}  // namespace
}  // namespace motley::gpu_tests
