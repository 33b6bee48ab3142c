#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/elementary.h"

// Entries that do what others do one after the other.
namespace motley::kernels::cpu {
namespace {

class Joined : public testing::TestWithParam<InstructionSet> {
 protected:
  const ElementaryTable& table() const { return elementary_table(GetParam()); }
  StreamHandle stream() { return {&pool_}; }

 private:
  ThreadPool pool_{{.threads = 3}};
};
INSTANTIATE_TEST_SUITE_P(EverySet, Joined, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

void expect_same(const TestRows& a, const TestRows& b) {
  const auto bytes = static_cast<std::size_t>(a.rows() * a.stride()) * (a.row_bytes() / a.width());
  EXPECT_EQ(0, std::memcmp(a.row(0), b.row(0), bytes));
}

TEST_P(Joined, LinearsAreLinearForEach) {
  Numbers numbers(1);
  const TestRows x(numbers, DType::f32, 3, 20);
  const std::vector<float> weight = numbers.floats(15 * 20, -1, 1);
  TestRows together(DType::f32, 3, 15);
  TestRows apart(DType::f32, 3, 15);
  std::vector<Linear> products;
  for (const std::int64_t first : {0, 4, 5}) {
    products.push_back({.rows = 3,
                        .x = x.row(0),
                        .x_stride = x.stride(),
                        .w = {.data = weight.data(), .out = 15, .in = 20},
                        .w_rows_per_head = 15,
                        .w_first = first,
                        .out = 5,
                        .y = together.floats() + first,
                        .y_stride = together.stride()});
  }
  table().linears({.all = products.data(), .count = 3}, stream());
  for (Linear& product : products) {
    product.y = apart.floats() + product.w_first;
    table().linear(product, stream());
  }
  expect_same(together, apart);
}

TEST_P(Joined, AddAndNormNormsTheSum) {
  Numbers numbers(2);
  const TestRows a(numbers, DType::f32, 5, 70);
  const TestRows b(numbers, DType::f32, 5, 70);
  const std::vector<float> weight = numbers.floats(70, 0.5, 1.5);
  TestRows sum(DType::bf16, 5, 70);
  TestRows sum_apart(DType::bf16, 5, 70);
  TestRows out(DType::bf16, 5, 70);
  TestRows out_apart(DType::bf16, 5, 70);
  AddAndNorm both{.add = {.rows = 5,
                          .width = 70,
                          .a = a.row(0),
                          .a_stride = a.stride(),
                          .b = b.row(0),
                          .b_stride = b.stride(),
                          .out = sum.data(),
                          .out_type = DType::bf16,
                          .out_stride = sum.stride()},
                  .norm = {.size = {5, 1, 70},
                           .x = sum.data(),
                           .x_type = DType::bf16,
                           .x_stride = sum.stride(),
                           .weight = weight.data(),
                           .out = out.data(),
                           .out_type = DType::bf16,
                           .out_stride = out.stride()}};
  table().add_and_norm(both, stream());
  both.add.out = sum_apart.data();
  both.norm.x = sum_apart.data();
  both.norm.out = out_apart.data();
  table().add(both.add, stream());
  table().rms_norm(both.norm, stream());
  expect_same(sum, sum_apart);
  expect_same(out, out_apart);
}

TEST_P(Joined, AnAddendGetsItsBiasBeforeTheSum) {
  Numbers numbers(5);
  for (const DType type : {DType::f32, DType::bf16}) {
    const TestRows a(numbers, DType::f32, 5, 70);
    const TestRows b(numbers, type, 5, 70);
    const std::vector<float> bias = numbers.floats(70, -1, 1);
    TestRows biased(type, 5, 70);
    TestRows sum(DType::f32, 5, 70);
    TestRows sum_apart(DType::f32, 5, 70);
    Add add{.rows = 5,
            .width = 70,
            .a = a.row(0),
            .a_stride = a.stride(),
            .b = b.row(0),
            .b_type = type,
            .b_stride = b.stride(),
            .b_bias = bias.data(),
            .out = sum.data(),
            .out_stride = sum.stride()};
    table().add(add, stream());
    table().round_to({.rows = 5,
                      .width = 70,
                      .x = b.row(0),
                      .x_type = type,
                      .x_stride = b.stride(),
                      .bias = bias.data(),
                      .out = biased.data(),
                      .out_type = type,
                      .out_stride = biased.stride()},
                     stream());
    add.b = biased.data();
    add.b_bias = nullptr;
    add.out = sum_apart.data();
    table().add(add, stream());
    expect_same(sum, sum_apart);
  }
}

TEST_P(Joined, NormAndRouteRoutesTheNormedSum) {
  Numbers numbers(4);
  constexpr std::int64_t rows = 5;
  constexpr std::int64_t width = 40;
  constexpr int experts = 12;
  constexpr int choices = 3;
  const TestRows a(numbers, DType::f32, rows, width);
  const TestRows b(numbers, DType::f32, rows, width);
  const std::vector<float> weight = numbers.floats(width, 0.5, 1.5);
  const std::vector<float> router = numbers.floats(experts * width, -1, 1);
  const std::vector<float> bias = numbers.floats(experts, -1, 1);
  TestRows sum(DType::f32, rows, width);
  TestRows x(DType::f32, rows, width);
  std::vector<float> logits(rows * experts);
  std::vector<std::int32_t> ids(rows * choices);
  std::vector<float> weights(rows * choices);
  const NormAndRoute all{.rows = {.add = {.rows = rows,
                                          .width = width,
                                          .a = a.row(0),
                                          .a_stride = a.stride(),
                                          .b = b.row(0),
                                          .b_stride = b.stride(),
                                          .out = sum.data(),
                                          .out_stride = sum.stride()},
                                  .norm = {.size = {rows, 1, width},
                                           .x = sum.data(),
                                           .x_stride = sum.stride(),
                                           .weight = weight.data(),
                                           .out = x.data(),
                                           .out_stride = x.stride()}},
                         .router = {.rows = rows,
                                    .x = x.data(),
                                    .x_stride = x.stride(),
                                    .w = {.data = router.data(), .out = experts, .in = width},
                                    .w_rows_per_head = experts,
                                    .out = experts,
                                    .y = logits.data(),
                                    .y_stride = experts},
                         .bias = bias.data(),
                         .route = {.tokens = rows,
                                   .experts = experts,
                                   .experts_per_token = choices,
                                   .renormalise = true,
                                   .logits = logits.data(),
                                   .ids = ids.data(),
                                   .weights = weights.data()}};
  table().norm_and_route(all, stream());
  const TestRows x_together = x;
  const std::vector<std::int32_t> ids_together = ids;
  const std::vector<float> weights_together = weights;
  table().add_and_norm(all.rows, stream());
  table().linear(all.router, stream());
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] += bias[i % experts];
  table().route(all.route, stream());
  expect_same(x, x_together);
  EXPECT_EQ(ids, ids_together);
  EXPECT_EQ(weights, weights_together);
}

TEST_P(Joined, HeadsGetTheirBiasBeforeTheNorm) {
  Numbers numbers(6);
  constexpr std::int64_t rows = 3;
  constexpr std::int64_t heads = 2;
  constexpr std::int64_t width = 21;
  for (const DType type : {DType::f32, DType::bf16}) {
    TestRows x(numbers, type, rows, heads * width);
    TestRows apart = x;
    const std::vector<float> bias = numbers.floats(heads * width, -1, 1);
    const std::vector<float> weight = numbers.floats(width, 0.5, 1.5);
    const auto prepare = [&](TestRows& to, const float* added) {
      const Heads all{.heads = heads,
                      .width = width,
                      .x = to.data(),
                      .x_type = type,
                      .x_stride = to.stride(),
                      .x_head_stride = width,
                      .bias = added,
                      .norm_weight = weight.data(),
                      .out = to.data(),
                      .out_type = type,
                      .out_stride = to.stride(),
                      .out_head_stride = width};
      table().prepare_heads({.rows = rows, .all = &all, .count = 1}, stream());
    };
    prepare(x, bias.data());
    table().round_to({.rows = rows,
                      .width = heads * width,
                      .x = apart.data(),
                      .x_type = type,
                      .x_stride = apart.stride(),
                      .bias = bias.data(),
                      .out = apart.data(),
                      .out_type = type,
                      .out_stride = apart.stride()},
                     stream());
    prepare(apart, nullptr);
    expect_same(x, apart);
  }
}

TEST_P(Joined, HeadsAreNormedThenTurnedThenStoredAndWritten) {
  Numbers numbers(3);
  constexpr std::int64_t rows = 3;
  constexpr std::int64_t heads = 2;
  constexpr std::int64_t width = 21;
  constexpr std::int64_t pairs = 8;
  TestRows x(numbers, DType::f32, rows * heads, width);
  TestRows apart = x;
  const std::vector<float> weight = numbers.floats(width, 0.5, 1.5);
  const std::vector<float> cos_sin = numbers.floats(rows * 2 * pairs, -1, 1);
  const std::array<std::int32_t, 3> seq_begin = {0, 2, 3};
  const std::array<std::int32_t, 3> positions = {1, 2, 0};
  const std::array<std::int32_t, 4> pages = {3, 0, 1, -1};
  TestRows stored(DType::bf16, 4 * 2 * heads, width);
  TestRows stored_apart(DType::bf16, 4 * 2 * heads, width);
  TestRows out(DType::bf16, rows * heads, width);
  TestRows out_apart(DType::bf16, rows * heads, width);
  const Sequences sequences{
      .count = 2, .seq_begin = seq_begin.data(), .positions = positions.data()};
  const BlockTable blocks{.pages = pages.data(), .stride = 2, .page_tokens = 2};
  const auto pages_of = [&](TestRows& all) {
    return Pages{.data = all.data(),
                 .type = DType::bf16,
                 .page_stride = 2 * heads * all.stride(),
                 .token_stride = heads * all.stride(),
                 .head_stride = all.stride()};
  };
  const Heads all{.heads = heads,
                  .width = width,
                  .x = x.data(),
                  .x_stride = heads * x.stride(),
                  .x_head_stride = x.stride(),
                  .norm_weight = weight.data(),
                  .cos_sin = cos_sin.data(),
                  .pairs = pairs,
                  .pages = pages_of(stored),
                  .out = out.data(),
                  .out_type = DType::bf16,
                  .out_stride = heads * out.stride(),
                  .out_head_stride = out.stride()};
  table().prepare_heads(
      {.rows = rows, .all = &all, .count = 1, .sequences = sequences, .table = blocks}, stream());
  table().rms_norm({.size = {rows, heads, width},
                    .x = apart.data(),
                    .x_stride = heads * apart.stride(),
                    .x_part_stride = apart.stride(),
                    .weight = weight.data(),
                    .out = apart.data(),
                    .out_stride = heads * apart.stride(),
                    .out_part_stride = apart.stride()},
                   stream());
  const Heads plain{.heads = heads,
                    .width = width,
                    .x = apart.data(),
                    .x_stride = heads * apart.stride(),
                    .x_head_stride = apart.stride()};
  Heads rotated = plain;
  rotated.cos_sin = cos_sin.data();
  rotated.pairs = pairs;
  rotated.out = apart.data();
  rotated.out_stride = plain.x_stride;
  rotated.out_head_stride = plain.x_head_stride;
  table().prepare_heads({.rows = rows, .all = &rotated, .count = 1}, stream());
  Heads placed = plain;
  placed.pages = pages_of(stored_apart);
  table().prepare_heads(
      {.rows = rows, .all = &placed, .count = 1, .sequences = sequences, .table = blocks},
      stream());
  table().round_to({.rows = rows * heads,
                    .width = width,
                    .x = apart.data(),
                    .x_stride = apart.stride(),
                    .out = out_apart.data(),
                    .out_type = DType::bf16,
                    .out_stride = out_apart.stride()},
                   stream());
  expect_same(stored, stored_apart);
  expect_same(out, out_apart);
}

}  // namespace
}  // namespace motley::kernels::cpu
