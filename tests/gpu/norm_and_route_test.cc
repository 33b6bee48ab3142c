#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/twin.h"

// The entry ahead of routed experts against those that it stands for.
namespace motley::gpu_tests {
namespace {

using kernels::cpu::Numbers;

struct Case {
  std::int64_t rows;
  std::int64_t width;
  kernels::RouteTokens route;
  bool bias = false;        // of the logits
  bool added_bias = false;  // of the second addend
};

struct Routed {
  Twin<std::int32_t> ids;
  Twin<float> weights;
  explicit Routed(std::size_t pairs) : ids(pairs), weights(pairs) {}
};

template <class T>
std::vector<T> read(const Twin<T>& twin) {
  std::vector<T> values(twin.size());
  EXPECT_EQ(cudaMemcpy(values.data(), twin.device(), values.size() * sizeof(T), cudaMemcpyDefault),
            cudaSuccess);
  return values;
}

// `biased` holds the second addend with its bias meanwhile.
void run_one_after_the_other(kernels::NormAndRoute p, const TwinRows& biased) {
  kernels::Add& add = p.rows.add;
  if (add.b_bias != nullptr) {
    device_table().round_to({.rows = add.rows,
                             .width = add.width,
                             .x = add.b,
                             .x_stride = add.b_stride,
                             .bias = add.b_bias,
                             .out = biased.device(),
                             .out_stride = biased.stride()},
                            default_stream());
    add.b = biased.device();
    add.b_stride = biased.stride();
    add.b_bias = nullptr;
  }
  device_table().add_and_norm(p.rows, default_stream());
  device_table().linear(p.router, default_stream());
  if (p.bias != nullptr) {
    device_table().round_to({.rows = p.router.rows,
                             .width = p.router.out,
                             .x = p.router.y,
                             .x_stride = p.router.y_stride,
                             .bias = p.bias,
                             .out = p.router.y,
                             .out_stride = p.router.y_stride},
                            default_stream());
  }
  device_table().route(p.route, default_stream());
}

// Two orders of a float32 sum of `width` products differ by what the roundings of each may.
void expect_close_choices(const Case& c, const TwinRows& logits, const Routed& together,
                          const Routed& apart) {
  const std::vector<std::byte> all = logits.read_device();
  const std::vector<std::int32_t> ids = read(together.ids);
  const std::vector<std::int32_t> ids_apart = read(apart.ids);
  const std::vector<float> weights = read(together.weights);
  const std::vector<float> weights_apart = read(apart.weights);
  const double most = static_cast<double>(c.width) * 0x1p-22;
  for (std::size_t pair = 0; pair < ids.size(); ++pair) {
    const auto row = static_cast<std::int64_t>(pair) / c.route.experts_per_token;
    ASSERT_TRUE(ids[pair] >= 0 && ids[pair] < c.route.experts) << "pair " << pair;
    ASSERT_NEAR(logits.at(all.data(), row, ids[pair]), logits.at(all.data(), row, ids_apart[pair]),
                most)
        << "pair " << pair;
    ASSERT_NEAR(weights[pair], weights_apart[pair], 2 * most * std::abs(weights_apart[pair]) + most)
        << "pair " << pair;
  }
}

void expect_one_after_the_other(const Case& c, unsigned seed) {
  Numbers numbers(seed);
  const std::int64_t experts = c.route.experts;
  const auto pairs = static_cast<std::size_t>(c.rows * c.route.experts_per_token);
  const TwinRows a(numbers, DType::f32, c.rows, c.width, 4, {-4, 4});
  const TwinRows b(numbers, DType::f32, c.rows, c.width, 0);
  const TwinRows router(numbers, DType::bf16, experts, c.width, 0, {-0.1F, 0.1F});
  const Twin<float> weight(numbers.floats(c.width, 0.5, 1.5));
  const Twin<float> bias(numbers.floats(experts, -1, 1));
  const Twin<float> added_bias(numbers.floats(c.width, -1, 1));
  const TwinRows biased(DType::f32, c.rows, c.width, 0);
  const TwinRows logits(DType::f32, c.rows, experts, 0);
  struct Side {
    TwinRows sum;
    TwinRows normed;
    Routed routed;
  };
  const auto side = [&] {
    return Side{TwinRows(DType::f32, c.rows, c.width, 4), TwinRows(DType::bf16, c.rows, c.width, 8),
                Routed(pairs)};
  };
  const Side together = side();
  const Side apart = side();
  const auto call = [&](const Side& to) {
    kernels::NormAndRoute p{.rows = {.add = {.rows = c.rows,
                                             .width = c.width,
                                             .a = a.device(),
                                             .a_stride = a.stride(),
                                             .b = b.device(),
                                             .b_stride = b.stride(),
                                             .b_bias = c.added_bias ? added_bias.device() : nullptr,
                                             .out = to.sum.device(),
                                             .out_stride = to.sum.stride()},
                                     .norm = {.size = {c.rows, 1, c.width},
                                              .x = to.sum.device(),
                                              .x_stride = to.sum.stride(),
                                              .weight = weight.device(),
                                              .out = to.normed.device(),
                                              .out_type = DType::bf16,
                                              .out_stride = to.normed.stride()}},
                            .router = {.rows = c.rows,
                                       .x = to.normed.device(),
                                       .x_type = DType::bf16,
                                       .x_stride = to.normed.stride(),
                                       .w = {.kind = kernels::WeightKind::bf16,
                                             .data = router.device(),
                                             .out = experts,
                                             .in = c.width},
                                       .w_rows_per_head = experts,
                                       .out = experts,
                                       .y = reinterpret_cast<float*>(logits.device()),
                                       .y_stride = experts,
                                       .exact = false},
                            .bias = c.bias ? bias.device() : nullptr,
                            .route = c.route};
    p.route.tokens = c.rows;
    p.route.logits = p.router.y;
    p.route.ids = to.routed.ids.device();
    p.route.weights = to.routed.weights.device();
    return p;
  };
  device_table().norm_and_route(call(together), default_stream());
  run_one_after_the_other(call(apart), biased);
  finish();
  ASSERT_TRUE(launches().ok());
  ASSERT_TRUE(together.sum.read_device() == apart.sum.read_device());
  ASSERT_TRUE(together.normed.read_device() == apart.normed.read_device());
  expect_close_choices(c, logits, together.routed, apart.routed);
}

TEST(DeviceNormAndRoute, IsOneAfterTheOther) {
  const kernels::RouteTokens qwen{.experts = 128, .experts_per_token = 8, .renormalise = true};
  const std::vector<Case> cases = {
      {.rows = 1, .width = 2048, .route = qwen},
      {.rows = 2, .width = 2048, .route = qwen},
      {.rows = 1, .width = 4352, .route = {.experts = 8, .experts_per_token = 2}},
      {.rows = 9, .width = 2048, .route = qwen},
      {.rows = 250, .width = 512, .route = qwen},
      {.rows = 12, .width = 64, .route = {.experts = 8, .experts_per_token = 2}},
      {.rows = 2, .width = 64, .route = {.experts = 8, .experts_per_token = 2}},
      {.rows = 3,
       .width = 2880,
       .route = {.experts = 32,
                 .experts_per_token = 4,
                 .scores = kernels::RouterScores::chosen_softmax},
       .bias = true,
       .added_bias = true},
      {.rows = 1,
       .width = 2880,
       .route = {.experts = 32, .experts_per_token = 4},
       .bias = true,
       .added_bias = true},
      {.rows = 100,
       .width = 2880,
       .route = {.experts = 128, .experts_per_token = 4},
       .added_bias = true},
      {.rows = 10,
       .width = 4128,
       .route =
           {.experts = 160, .experts_per_token = 6, .groups = 8, .kept_groups = 3, .scale = 16}},
      // Too many rows, a width that ends anywhere: one launch after the other.
      {.rows = 257, .width = 64, .route = qwen},
      {.rows = 4, .width = 70, .route = qwen, .added_bias = true}};
  unsigned seed = 1;
  for (const Case& c : cases) {
    SCOPED_TRACE(cat(c.rows, " rows of ", c.width, ", ", c.route.experts, " experts"));
    expect_one_after_the_other(c, seed++);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace motley::gpu_tests
