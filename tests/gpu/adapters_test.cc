// What adapters do beside experts: a GPU's kernels against the CPU's loops over the same batch.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/device_memory.h"
#include "kernels/elementary.h"
#include "lora/step_table.h"
#include "lora/test_world.h"
#include "ops/attention.h"
#include "ops/norm.h"

namespace motley::gpu_tests {
namespace {

using lora::Adapter;
using lora::Projection;
using lora::Site;
using lora::test::AdapterMaker;
using tensor::Tensor;

constexpr tensor::DeviceId on_gpu{.kind = tensor::DeviceKind::cuda};

// Numbers that every page type holds exactly, whatever power of two scales their row.
std::vector<float> coarse_numbers(std::mt19937& random, std::int64_t count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  std::uniform_int_distribution<int> eighths(-8, 8);
  for (float& number : numbers) number = static_cast<float>(eighths(random)) / 8;
  return numbers;
}

// The same adapters in the host's float32 pages and on the GPU.
class BothPools {
 public:
  BothPools(DType pages, int rows)
      : gpu_(tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value()),
        stream_(gpu_->create_stream().value()),
        pool_(lora::Pool::create(*gpu_, {.bytes = std::uint64_t{64} << 20,
                                         .page_bytes = 4096,
                                         .dtype = pages,
                                         .directory = true,
                                         .poison = true})
                  .value()),
        table_(lora::StepTable::create(*gpu_, *pool_,
                                       {.rows = rows, .labels = rows, .terms = 8 * rows})
                   .value()) {}

  struct Part {
    const Adapter* adapter;
    float scale;
  };
  // A row's mix; none is the base.
  void build(const std::vector<std::vector<Part>>& rows) {
    std::vector<lora::Mix> host;
    std::vector<lora::Mix> device;
    for (const std::vector<Part>& row : rows) {
      std::vector<lora::Mix::Part> here;
      std::vector<lora::Mix::Part> there;
      for (const Part& part : row) {
        const auto& [a, b] = handles(*part.adapter);
        here.push_back({a, part.scale});
        there.push_back({b, part.scale});
      }
      host.push_back(lora::Mix::make(here).value());
      device.push_back(lora::Mix::make(there).value());
    }
    host_batch_.build(host);
    device_batch_.build(device);
    table_->upload(device_batch_, *stream_).value();
  }

  lora::RowMixes on_host() const {
    return {.batch = &host_batch_, .labels = host_batch_.labels().data()};
  }
  lora::RowMixes on_device() const {
    return {.batch = &device_batch_, .labels = table_->labels(), .table = table_.get()};
  }
  ops::Context context() const {
    return {.kernels = kernels::cuda_table().value(), .stream = stream_->handle()};
  }
  const ops::Context& host_context() const { return world_.context; }
  void finish_stream() {
    stream_->synchronize().value();
    kernels::cuda_launches().value();
  }

 private:
  const std::pair<lora::Handle, lora::Handle>& handles(const Adapter& adapter) {
    const std::string name = to_string(adapter.version);
    const auto known = loaded_.find(name);
    if (known != loaded_.end()) return known->second;
    return loaded_[name] = {world_.load(adapter), pool_->load(name, adapter).value()};
  }

  std::unique_ptr<tensor::Device> gpu_;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<lora::StepTable> table_;
  lora::test::World world_{DType::f32};
  std::map<std::string, std::pair<lora::Handle, lora::Handle>> loaded_;
  lora::Batch host_batch_;
  lora::Batch device_batch_;
};

template <class T>
Tensor view(const DeviceArray<T>& array, const tensor::Shape& shape) {
  return {reinterpret_cast<std::byte*>(array.data()), tensor::dtype_of<T>, shape, on_gpu};
}

class GpuAdapters : public testing::TestWithParam<DType> {
 protected:
  using Sizes = std::vector<std::pair<Site, std::pair<std::int64_t, std::int64_t>>>;  // in, out
  using More = std::function<void(AdapterMaker&, lora::SiteDelta&)>;
  Adapter make(const Sizes& sites, int rank, const More& more = {}) {
    AdapterMaker maker(random);
    for (const auto& [site, size] : sites) {
      const auto& [in, out] = size;
      const bool embed = site.projection == Projection::embed;
      const int a = embed ? add(maker, in, rank) : add(maker, rank, in);
      const int b = add(maker, out, rank);
      maker.site(site, in, out).factors[0] = maker.factors(a, b, rank, 0.25F);
      if (more) more(maker, maker.adapter.sites.back());
    }
    return maker.done();
  }
  int add(AdapterMaker& maker, std::int64_t rows, std::int64_t columns) {
    const int index = maker.add(rows, columns);
    maker.adapter.matrices.back().values = coarse_numbers(random, rows * columns);
    return index;
  }

  std::mt19937 random{23};
};

INSTANTIATE_TEST_SUITE_P(Pages, GpuAdapters,
                         testing::Values(DType::f32, DType::bf16, DType::f8_e4m3),
                         [](const auto& pages) { return std::string(name(pages.param)); });

// Maps of unequal widths that share x; adapters that have all of them, some, or none; mixes; ranks
// beyond a window; odd sizes.
TEST_P(GpuAdapters, LinearsEqualTheCpu) {
  constexpr Site q{0, Projection::q};
  constexpr Site k{0, Projection::k};
  constexpr Site v{0, Projection::v};
  for (const auto& [in, q_out, k_out] : std::vector<std::array<std::int64_t, 3>>{
           {64, 160, 48}, {37, 130, 5}, {264, 17, 300}, {1032, 1300, 36}}) {
    for (const int rows : {1, 7, 150, 300}) {
      BothPools pools(GetParam(), rows);
      const Adapter all = make({{q, {in, q_out}}, {k, {in, k_out}}, {v, {in, k_out}}}, 5);
      const Adapter some =
          make({{k, {in, k_out}}}, 16, [&](AdapterMaker& maker, lora::SiteDelta& site) {
            site.lora_bias = add(maker, 1, k_out);
          });
      const Adapter wide = make({{q, {in, q_out}}, {v, {in, k_out}}}, 300);
      const Adapter elsewhere = make({{{3, Projection::q}, {in, q_out}}}, 8);
      const Adapter dora = make(
          {{q, {in, q_out}}}, 3,
          [&](AdapterMaker& maker, lora::SiteDelta& site) { site.gain = add(maker, 1, q_out); });
      const Adapter own =
          make({{v, {in, k_out}}}, 0, [&](AdapterMaker& maker, lora::SiteDelta& site) {
            site.factors[0] = {};
            site.replaced = add(maker, k_out, in);
            site.replaced_bias = add(maker, 1, k_out);
          });
      const std::vector<std::vector<BothPools::Part>> kinds = {
          {},
          {{&all, 1}},
          {{&some, 0.5F}, {&all, 2}},
          {{&wide, 1}},
          {{&elsewhere, 1}},
          {{&dora, 1}},
          {{&own, 1}},
          {{&wide, 0.25F}, {&all, -1}, {&some, 1}}};
      std::vector<std::vector<BothPools::Part>> mixes;
      // Rows side by side share a mix, for a while.
      for (int row = 0; row < rows; ++row)
        mixes.push_back(kinds[static_cast<std::size_t>(row / 3 + rows) % kinds.size()]);
      pools.build(mixes);

      for (const DType x_type : {DType::f32, DType::bf16}) {
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

        const std::vector<lora::test::Numbers> before = accs;
        // What poisons k_there is on another stream.
        finish();
        lora::finish_linears(
            pools.on_host(), x.view(),
            std::array{lora::AdaptedLinear{q, accs[0].view(), bias.data(), accs[0].view()},
                       lora::AdaptedLinear{k, accs[1].view(), nullptr, k_here.view()},
                       lora::AdaptedLinear{v, accs[2].view(), nullptr, accs[2].view()}},
            pools.host_context());
        const auto at = [&](std::size_t i, std::int64_t out) {
          return view(there[i], {rows, out});
        };
        lora::finish_linears(
            pools.on_device(), x_there,
            std::array{lora::AdaptedLinear{q, at(0, q_out), bias_there.data(), at(0, q_out)},
                       lora::AdaptedLinear{k, at(1, k_out), nullptr, view(k_there, {rows, k_out})},
                       lora::AdaptedLinear{v, at(2, k_out), nullptr, at(2, k_out)}},
            pools.context());
        pools.finish_stream();

        const auto compare = [&](const char* what, std::size_t i, const std::vector<float>& got,
                                 std::int64_t out, double rounding) {
          double largest = 0;
          for (const float number : accs[i].f32)
            largest = std::max(largest, std::abs(double{number}));
          // Every product is exact and sums are of some hundred numbers below a thousand: what is
          // left is the order of float32 additions.
          const double tolerance = 4e-6 * largest;
          for (std::int64_t row = 0; row < rows; ++row) {
            const bool base = mixes[static_cast<std::size_t>(row)].empty();
            for (std::int64_t o = 0; o < out; ++o) {
              const auto index = static_cast<std::size_t>(row * out + o);
              const double wanted =
                  rounding > 0 ? double{k_here.at(row, o)} : double{accs[i].f32[index]};
              const double apart = std::abs(double{got[index]} - wanted);
              ASSERT_LE(apart, base ? 0 : tolerance + rounding * std::abs(wanted))
                  << what << " of row " << row << ", output " << o << ", " << rows << " rows, in "
                  << in;
            }
          }
        };
        compare("q", 0, there[0].read(), q_out, 0);
        std::vector<float> k_got;
        for (const bf16 number : k_there.read()) k_got.push_back(number.to_float());
        compare("k", 1, k_got, k_out, 1.0 / 128);
        compare("v", 2, there[2].read(), k_out, 0);
      }
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
    const std::vector<std::vector<BothPools::Part>> kinds = {
        {{&first, 0.7F}},
        {},
        {{&second, -1.3F}},
        {{&first, 0.3F}, {&second, 1.1F}, {&third, 0.9F}},
        {{&third, 1}}};
    std::vector<std::vector<BothPools::Part>> mixes;
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
    const std::vector<std::vector<BothPools::Part>> kinds = {
        {{&first, 0.7F}}, {}, {{&second, -1.3F}}, {{&first, 0.3F}, {&second, 1.1F}}};
    std::vector<std::vector<BothPools::Part>> mixes;
    for (int row = 0; row < rows; ++row)
      mixes.push_back(kinds[static_cast<std::size_t>(row < 60 ? row / 20 : row) % kinds.size()]);
    std::vector<std::vector<BothPools::Part>> many = mixes;
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
    std::vector<std::vector<BothPools::Part>> mixes;
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

// Heads on their way to attention have the bits of deltas and prepare_heads one after the other:
// rows of every kind, the base's too; projections without a delta; heads that lanes hold, and
// others.
TEST_P(GpuAdapters, HeadsEqualLinearsAndThenHeads) {
  constexpr Site q{0, Projection::q};
  constexpr Site k{0, Projection::k};
  constexpr Site v{0, Projection::v};
  constexpr std::int64_t in = 136;
  constexpr std::int64_t kv_heads = 2;
  constexpr std::int64_t page_tokens = 16;
  for (const auto& [width, q_heads] :
       std::vector<std::array<std::int64_t, 2>>{{128, 9}, {64, 6}, {48, 3}}) {
    const std::int64_t q_width = q_heads * width;
    const std::int64_t kv_width = kv_heads * width;
    const Adapter all = make({{q, {in, q_width}}, {k, {in, kv_width}}}, 5);
    const Adapter wide = make(
        {{q, {in, q_width}}, {k, {in, kv_width}}}, 100,
        [&](AdapterMaker& maker, lora::SiteDelta& site) {
          site.lora_bias = add(maker, 1, site.site.projection == q.projection ? q_width : kv_width);
        });
    const Adapter dora = make(
        {{k, {in, kv_width}}}, 24,
        [&](AdapterMaker& maker, lora::SiteDelta& site) { site.gain = add(maker, 1, kv_width); });
    const Adapter zero = make({{q, {in, q_width}}}, 16);
    const std::vector<std::vector<BothPools::Part>> kinds = {
        {}, {{&all, 1}}, {{&wide, 0.5F}, {&all, 2}}, {{&dora, 1}}, {}, {{&wide, -1}}, {{&zero, 1}}};
    for (const int rows : {1, 20, 300}) {
      std::vector<std::vector<BothPools::Part>> mixes;
      for (int row = 0; row < rows; ++row)
        mixes.push_back(kinds[static_cast<std::size_t>(row / 5 + 1) % kinds.size()]);
      BothPools pools(GetParam(), rows);
      pools.build(mixes);
      const ops::Context context = pools.context();

      const lora::test::Numbers x(DType::bf16, rows, in,
                                  lora::test::random_numbers(random, rows * in));
      const DeviceArray<bf16> x_there(x.half);
      const std::vector<float> products =
          lora::test::random_numbers(random, rows * (q_width + 2 * kv_width));
      const DeviceArray<float> bias(lora::test::random_numbers(random, q_width));
      const DeviceArray<float> weight(lora::test::random_numbers(random, width));
      const DeviceArray<float> cos_sin(lora::test::random_numbers(random, rows * width));
      std::vector<std::int32_t> positions;
      for (int row = 0; row < rows; ++row) positions.push_back(row);
      const DeviceArray<std::int32_t> positions_there(positions);
      const DeviceArray<std::int32_t> seq_begin(std::vector<std::int32_t>{0, rows / 3, rows});
      const std::int64_t pages = rows / page_tokens + 1;
      std::vector<std::int32_t> table;
      for (int page = 0; page < 2 * pages; ++page)
        table.push_back(static_cast<std::int32_t>(2 * pages - 1 - page));
      const DeviceArray<std::int32_t> table_there(table);
      const ops::PagedRows paged{.sequences = 2,
                                 .seq_begin = seq_begin.data(),
                                 .positions = positions_there.data(),
                                 .block_table = view(table_there, {2, pages}),
                                 .most_rows = rows};

      struct Results {
        DeviceArray<float> products;
        DeviceArray<bf16> queries, keys, values;
      };
      const auto run = [&](bool together) {
        const std::int64_t stored = 2 * pages * page_tokens * kv_width;
        Results to{DeviceArray<float>(products),
                   DeviceArray<bf16>(static_cast<std::size_t>(rows * q_width)),
                   DeviceArray<bf16>(static_cast<std::size_t>(stored)),
                   DeviceArray<bf16>(static_cast<std::size_t>(stored))};
        // What poisons them is on another stream.
        finish();
        const Tensor qkv = view(to.products, {rows, q_width + 2 * kv_width});
        const Tensor q_rows = qkv.slice(1, 0, q_width);
        const Tensor k_rows = qkv.slice(1, q_width, q_width + kv_width);
        const Tensor v_rows = qkv.slice(1, q_width + kv_width, qkv.dim(1));
        const Tensor heads = qkv.reshape({rows, q_heads + 2 * kv_heads, width});
        const auto page_view = [&](const DeviceArray<bf16>& array) {
          return view(array, {2 * pages, page_tokens, kv_heads, width});
        };
        const ops::HeadNorm norm{.weight = weight.data()};
        const ops::HeadsCall call(
            context, paged, {.cos_sin = view(cos_sin, {rows, width})},
            std::array{ops::PreparedHeads{.x = heads.slice(1, 0, q_heads),
                                          .norm = norm,
                                          .turned = true,
                                          .out = view(to.queries, {rows, q_heads, width})},
                       ops::PreparedHeads{.x = heads.slice(1, q_heads, q_heads + kv_heads),
                                          .norm = norm,
                                          .turned = true,
                                          .pages = page_view(to.keys)},
                       ops::PreparedHeads{.x = heads.slice(1, q_heads + kv_heads, heads.dim(1)),
                                          .pages = page_view(to.values)}});
        const std::array linears{lora::AdaptedLinear{q, q_rows, bias.data(), q_rows},
                                 lora::AdaptedLinear{k, k_rows, nullptr, k_rows},
                                 lora::AdaptedLinear{v, v_rows, nullptr, v_rows}};
        const lora::RowMixes mixes_there = pools.on_device();
        const Tensor x_rows = view(x_there, {rows, in});
        if (together) {
          lora::finish_heads(mixes_there, x_rows, linears, call, context);
        } else {
          lora::finish_linears(mixes_there, x_rows, linears, context);
          ops::prepare_heads(context, call);
        }
        pools.finish_stream();
        return to;
      };
      const Results together = run(true);
      const Results apart = run(false);
      const auto same = [](const DeviceArray<bf16>& a, const DeviceArray<bf16>& b) {
        const std::vector<bf16> left = a.read();
        const std::vector<bf16> right = b.read();
        return std::memcmp(left.data(), right.data(), left.size() * sizeof(bf16)) == 0;
      };
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
    const std::vector<std::vector<BothPools::Part>> kinds = {
        {},           {{&plain, 1}},     {{&wide, 0.5F}, {&plain, 2}},
        {{&dora, 1}}, {{&elsewhere, 1}}, {{&wide, 1}}};
    constexpr int rows = 300;
    std::vector<std::vector<BothPools::Part>> mixes;
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
          context, view(hidden, {rows, width}), results, view(to.sums, {rows, width}),
          view(weight, {width}), {}, view(to.normed, {rows, width}));
      const Tensor x_rows = view(x_there, {rows, in});
      const bool done =
          together && lora::finish_linear_and_norm(pools.on_device(), x_rows, map, sum, context);
      EXPECT_EQ(done, together && width > 1024 && GetParam() != DType::f32) << "width " << width;
      if (!done) {
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
