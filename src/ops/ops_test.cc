// The arguments that each call passes to its kernel; kernels are tested in their own module.

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/elementary.h"
#include "ops/activation.h"
#include "ops/combine.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/logits.h"
#include "ops/norm.h"

namespace motley::ops {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

template <class T>
tensor::Tensor view(std::vector<T>& values, const tensor::Shape& shape) {
  return tensor::Tensor(reinterpret_cast<std::byte*>(values.data()), tensor::dtype_of<T>, shape);
}

class Ops : public testing::Test {
 protected:
  ThreadPool pool_{{.threads = 2}};
  Context context_{.kernels = &kernels::cpu_table(), .stream = {&pool_}};
};

TEST_F(Ops, RmsNormOfHeadsInsideARow) {
  // Two rows of [q: 2 heads of 2 | 1 other number]: only q changes.
  std::vector<float> rows = {3, 4, 0, 2, 9, 1, 1, 5, 0, 9};
  std::vector<float> weight = {1, 2};
  const tensor::Tensor q(reinterpret_cast<std::byte*>(rows.data()), DType::f32, {2, 5});
  const tensor::Tensor flat = q.slice(1, 0, 4);
  // Heads of a strided row are normed one by one, as if they were rows of their own.
  for (const std::int64_t head : {0, 1}) {
    const tensor::Tensor part = flat.slice(1, 2 * head, 2 * head + 2);
    rms_norm(context_, part, view(weight, {2}), {.eps = 0}, part);
  }
  const float root = std::sqrt(2.0F);
  const float five = 5 / root;
  EXPECT_THAT(rows, Pointwise(FloatNear(1e-6F), std::vector<float>{3 / five, 8 / five, 0, 2 * root,
                                                                   9, 1, 2, root, 0, 9}));

  std::vector<float> heads = {3, 4, 0, 2, 1, 1, 5, 0};
  rms_norm(context_, view(heads, {2, 2, 2}), view(weight, {2}), {.eps = 0}, view(heads, {2, 2, 2}));
  EXPECT_THAT(heads, Pointwise(FloatNear(1e-6F),
                               std::vector<float>{3 / five, 8 / five, 0, 2 * root, 1, 2, root, 0}));
}

TEST_F(Ops, AddRoundAndScale) {
  std::vector<float> a = {1, 2, 3, 4};
  std::vector<float> b = {10, 20, 30, 40};
  add(context_, view(a, {2, 2}), view(b, {2, 2}), view(a, {2, 2}));
  EXPECT_THAT(a, ElementsAre(11, 22, 33, 44));

  std::vector<float> scale = {2, -1};
  add_scaled(context_, view(b, {2, 2}), view(scale, {2, 1}), {}, view(a, {2, 2}));
  EXPECT_THAT(a, ElementsAre(31, 62, 3, 4));

  const std::vector<float> bias = {0.5F, 100};
  std::vector<bf16> rounded(4);
  round_to(context_, view(a, {2, 2}), {.bias = bias.data(), .limit = 150}, view(rounded, {2, 2}));
  EXPECT_EQ(rounded[0].to_float(), 31.5F);
  EXPECT_EQ(rounded[1].to_float(), 150.0F);
  EXPECT_EQ(rounded[3].to_float(), 104.0F);
}

TEST_F(Ops, EmbedsActivatesAndCombines) {
  std::vector<f16> table = {f16::from(1), f16::from(2), f16::from(3), f16::from(4)};
  const std::vector<std::int32_t> ids = {1, 0, 1};
  std::vector<float> rows(6);
  embed(context_, view(table, {2, 2}), ids.data(), view(rows, {3, 2}));
  EXPECT_THAT(rows, ElementsAre(3, 4, 1, 2, 3, 4));

  std::vector<float> up(6, 2.0F);
  std::vector<float> h(6);
  activate_and_multiply(context_, {}, view(rows, {3, 2}), view(up, {3, 2}), view(h, {3, 2}));
  EXPECT_NEAR(h[0], 3 / (1 + std::exp(-3.0F)) * 2, 1e-5);

  std::vector<float> weights = {1, 10, 100, 1000};
  const std::vector<std::int32_t> places = {2, 1, -1, 0};
  std::vector<float> out = {0.5F, 0.5F, 0.5F, 0.5F};
  combine(context_, view(rows, {3, 2}), view(weights, {2, 2}),
          {.places = places, .accumulate = true}, view(out, {2, 2}));
  EXPECT_THAT(out, ElementsAre(13.5F, 24.5F, 3000.5F, 4000.5F));
}

TEST_F(Ops, ChoosesAndScoresLogits) {
  std::vector<float> logits = {1, 3, 3, 2, 0, 0, 0, 0};
  std::vector<std::int32_t> ids(4);
  std::vector<float> values(4);
  top_k(context_, view(logits, {2, 4}), view(ids, {2, 2}), view(values, {2, 2}));
  EXPECT_THAT(ids, ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(values, ElementsAre(3, 3, 0, 0));
  std::vector<float> scores(2);
  std::vector<std::int32_t> chosen = {3, 0};
  log_probabilities(context_, view(logits, {2, 4}), view(chosen, {2, 1}), view(scores, {2, 1}));
  EXPECT_NEAR(scores[0], 2 - std::log(std::exp(1) + 2 * std::exp(3) + std::exp(2)), 1e-6);
  EXPECT_NEAR(scores[1], -std::log(4.0), 1e-6);
}

TEST(OpsDeathTest, RefusesShapesAndTypesThatDoNotFit) {
  const Context context{.kernels = &kernels::cpu_table()};
  std::vector<float> numbers(16);
  std::vector<f16> halves(16);
  const tensor::Tensor a = view(numbers, {2, 4});
  EXPECT_DEATH(add(context, a, view(numbers, {4, 2}), a), "one shape");
  EXPECT_DEATH(add(context, a, view(halves, {2, 4}), a), "f32 or bf16");
  EXPECT_DEATH(rms_norm(context, a, view(numbers, {3}), {}, a), "a weight for each");
  EXPECT_DEATH(add(Context{}, a, a, a), "a context with kernels");
  std::vector<std::int32_t> ids = {0, 4};
  std::vector<float> out(2);
  EXPECT_DEATH(log_probabilities(context, a, view(ids, {2, 1}), view(out, {2, 1})), "vocabulary");
}

}  // namespace
}  // namespace motley::ops
