#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/device_memory.h"
#include "kernels/cuda/expert_images.h"
#include "lora/pool.h"

// The images that a pool writes on the host are those that the kernels' own packing makes of rows.
namespace motley::gpu_tests {
namespace {

using kernels::cuda::PackDelta;
using kernels::cuda::PackedDelta;
using lora::Adapter;
using lora::Factors;
using lora::Handle;
using lora::Pool;
using lora::Projection;

static_assert(sizeof(PackedDelta) == sizeof(kernels::FactorEntry) &&
              offsetof(PackedDelta, rank) == offsetof(kernels::FactorEntry, rank) &&
              offsetof(PackedDelta, split) == offsetof(kernels::FactorEntry, split) &&
              offsetof(PackedDelta, scale) == offsetof(kernels::FactorEntry, scale));

constexpr int hidden = 136;
constexpr int inner = 72;

class Maker {
 public:
  explicit Maker(unsigned seed) : random_(seed) {}

  int add(int rows, int columns) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    adapter.matrices.push_back({rows, columns, std::vector<float>(std::size_t(rows) * columns)});
    for (float& number : adapter.matrices.back().values) number = uniform(random_);
    return int(adapter.matrices.size()) - 1;
  }

  Adapter adapter;

 private:
  std::mt19937 random_;
};

// One expert each: ranks of gate, up and down, and whether gate and up share A.
struct Case {
  int gate, up, down;
  bool shared;
};

Adapter make(const std::vector<Case>& cases) {
  Maker maker(3);
  std::vector<Factors> gate, up, down;
  for (const Case& one : cases) {
    const int gate_a = one.gate > 0 ? maker.add(one.gate, hidden) : -1;
    const int up_a = one.shared ? gate_a : maker.add(one.up, hidden);
    gate.push_back(one.gate > 0 ? Factors{gate_a, maker.add(inner, one.gate), one.gate, 0.5F}
                                : Factors{});
    up.push_back({up_a, maker.add(inner, one.up), one.up, 0.5F});
    down.push_back({maker.add(one.down, inner), maker.add(hidden, one.down), one.down, 2.0F});
  }
  maker.adapter.sites.push_back({{0, Projection::expert_gate}, hidden, inner, gate});
  maker.adapter.sites.push_back({{0, Projection::expert_up}, hidden, inner, up});
  maker.adapter.sites.push_back({{0, Projection::expert_down}, inner, hidden, down});
  maker.adapter.largest_rank = 100;
  maker.adapter.version = hash_content(maker.adapter);
  return maker.adapter;
}

TEST(DeviceImages, HostAndKernelsPackTheSame) {
  const std::vector<Case> cases = {{1, 1, 1, false},    {8, 8, 16, false},  {16, 16, 17, true},
                                   {5, 12, 40, false},  {33, 33, 64, true}, {0, 7, 100, false},
                                   {100, 20, 8, false}, {64, 64, 31, false}};
  const Adapter adapter = make(cases);
  const auto device = tensor::open_device({.kind = tensor::DeviceChoice::Kind::cuda}).value();
  Pool::Options options{.bytes = 8 << 20, .page_bytes = 64 << 10, .dtype = DType::bf16};
  const auto row_pool = Pool::create(*device, options).value();
  options.experts = lora::Layout::images;
  const auto image_pool = Pool::create(*device, options).value();
  const Handle in_rows = row_pool->load("a", adapter).value();
  const Handle in_images = image_pool->load("a", adapter).value();
  for (std::size_t e = 0; e < cases.size(); ++e) {
    for (const bool is_down : {false, true}) {
      const auto view = [&](Projection projection) {
        return in_rows->find({0, projection})->factors[e];
      };
      const lora::FactorView first =
          view(is_down ? Projection::expert_down : Projection::expert_gate);
      const lora::FactorView second = is_down ? lora::FactorView() : view(Projection::expert_up);
      const bool shared = !is_down && cases[e].shared;
      const int in = is_down ? inner : hidden;
      const int out = is_down ? hidden : inner;
      const kernels::FactorEntry entry = in_images->seam(0, is_down ? 1 : 0)[e];
      ASSERT_EQ(entry.rank, kernels::cuda::packed_rank(first.rank, second.rank, shared));
      DeviceArray<std::uint8_t> a(kernels::cuda::packed_a_bytes(entry.rank, in));
      DeviceArray<std::uint8_t> b(
          kernels::cuda::packed_b_bytes(entry.rank, is_down ? out : 2 * out));
      const DeviceArray<PackDelta> item(
          std::vector<PackDelta>{{.a = {first.a, second.a},
                                  .b = {first.b, second.b},
                                  .rank = {first.rank, second.rank},
                                  .padded = {first.padded, second.padded},
                                  .shared_a = shared ? 1 : 0,
                                  .gate_up = is_down ? 0 : 1,
                                  .in = in,
                                  .out = out,
                                  .a_image = a.data(),
                                  .b_image = b.data()}});
      ASSERT_TRUE(kernels::cuda::pack_deltas(item.data(), 1, {}).ok());
      finish();
      const auto ours = [](const void* from, std::size_t bytes) {
        std::vector<std::uint8_t> back(bytes);
        EXPECT_EQ(cudaMemcpy(back.data(), from, bytes, cudaMemcpyDefault), cudaSuccess);
        return back;
      };
      EXPECT_EQ(ours(entry.a, a.size()), a.read()) << "A of expert " << e << ", down " << is_down;
      EXPECT_EQ(ours(entry.b, b.size()), b.read()) << "B of expert " << e << ", down " << is_down;
    }
  }
}

}  // namespace
}  // namespace motley::gpu_tests
