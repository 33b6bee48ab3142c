#include "kernels/elementary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"

namespace motley::kernels::cpu {
namespace {

constexpr std::array types = {DType::f32, DType::bf16};
constexpr std::array<std::int64_t, 6> widths = {1, 7, 16, 33, 64, 130};

// One rounding of the out type, and a few of float32 inside.
double tolerance(DType out, double magnitude) {
  return magnitude * (out == DType::f32 ? 4e-6 : 4.2e-3) + 1e-6;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class Elementary : public testing::TestWithParam<InstructionSet> {
 protected:
  const ElementaryTable& table() const { return elementary_table(GetParam()); }
  StreamHandle stream() { return {&pool_}; }

 private:
  ThreadPool pool_{{.threads = 3}};
};
INSTANTIATE_TEST_SUITE_P(EverySet, Elementary, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(Elementary, EveryEntryIsFilled) {
  using Entry = void (*)();
  // All but the last eight, which other devices have.
  static_assert(offsetof(ElementaryTable, arrange_inputs) + 8 * sizeof(void*) ==
                sizeof(ElementaryTable));
  constexpr std::size_t count = offsetof(ElementaryTable, arrange_inputs) / sizeof(Entry);
  std::array<Entry, count> entries{};
  std::memcpy(static_cast<void*>(entries.data()), &table(), sizeof entries);
  for (std::size_t i = 0; i < count; ++i) EXPECT_NE(entries[i], nullptr) << "entry " << i;
}

TEST_P(Elementary, RmsNormFollowsItsDefinition) {
  Numbers numbers(1);
  for (const DType x_type : types) {
    for (const DType out_type : types) {
      for (const bool weight_in_f32 : {false, true}) {
        for (const std::int64_t width : widths) {
          constexpr std::int64_t rows = 5;
          constexpr std::int64_t parts = 3;
          const TestRows x(numbers, x_type, rows * parts, width);
          TestRows out(out_type, rows * parts, width);
          const std::vector<float> weight = numbers.floats(width, 0.5, 1.5);
          table().rms_norm({.size = {rows, parts, width},
                            .x = x.row(0),
                            .x_type = x_type,
                            .x_stride = parts * x.stride(),
                            .x_part_stride = x.stride(),
                            .weight = weight.data(),
                            .eps = 1e-5F,
                            .weight_in_f32 = weight_in_f32,
                            .out = out.data(),
                            .out_type = out_type,
                            .out_stride = parts * out.stride(),
                            .out_part_stride = out.stride()},
                           stream());
          for (std::int64_t row = 0; row < rows * parts; ++row) {
            double squares = 0;
            for (std::int64_t i = 0; i < width; ++i) squares += x.at(row, i) * x.at(row, i);
            const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
            for (std::int64_t i = 0; i < width; ++i) {
              double value = x.at(row, i) * factor;
              // Half a step of bf16 more where the value is rounded on the way.
              const double rounds = out_type == DType::bf16 && !weight_in_f32 ? 2 : 1;
              value *= static_cast<double>(weight[static_cast<std::size_t>(i)]);
              ASSERT_NEAR(out.at(row, i), value, rounds * tolerance(out_type, std::abs(value)));
            }
          }
          EXPECT_TRUE(out.gaps_are_poison());
        }
      }
    }
  }
}

TEST_P(Elementary, RmsNormRoundsBeforeTheWeightUnlessToldOtherwise) {
  // x / rms is 1.0026: bf16 rounds it to 1. Times the weight, one rounds down and the other up.
  const std::vector<float> x = {1.0F, 0.9948F};
  const std::vector<float> weight = {1.0029F, 1.0F};
  std::array<bf16, 2> early{};
  std::array<bf16, 2> late{};
  RmsNorm norm{.size = {1, 1, 2},
               .x = x.data(),
               .x_stride = 2,
               .weight = weight.data(),
               .eps = 0,
               .out = early.data(),
               .out_type = DType::bf16,
               .out_stride = 2};
  table().rms_norm(norm, stream());
  norm.weight_in_f32 = true;
  norm.out = late.data();
  table().rms_norm(norm, stream());
  const float rms = std::sqrt((1.0F + 0.9948F * 0.9948F) / 2);
  EXPECT_EQ(early[0].bits, bf16::from(bf16::from(1 / rms).to_float() * weight[0]).bits);
  EXPECT_EQ(late[0].bits, bf16::from(1 / rms * weight[0]).bits);
  EXPECT_NE(early[0].bits, late[0].bits);
}

TEST_P(Elementary, AddRoundsOnce) {
  Numbers numbers(2);
  for (const DType a_type : types) {
    for (const DType b_type : types) {
      for (const DType out_type : types) {
        for (const std::int64_t width : widths) {
          const TestRows a(numbers, a_type, 4, width);
          const TestRows b(numbers, b_type, 4, width);
          TestRows out(out_type, 4, width);
          table().add({.rows = 4,
                       .width = width,
                       .a = a.row(0),
                       .a_type = a_type,
                       .a_stride = a.stride(),
                       .b = b.row(0),
                       .b_type = b_type,
                       .b_stride = b.stride(),
                       .out = out.data(),
                       .out_type = out_type,
                       .out_stride = out.stride()},
                      stream());
          for (std::int64_t row = 0; row < 4; ++row) {
            for (std::int64_t i = 0; i < width; ++i) {
              const float sum = a.get(row, i) + b.get(row, i);
              ASSERT_EQ(out.get(row, i), out_type == DType::f32 ? sum : bf16::from(sum).to_float());
            }
          }
          EXPECT_TRUE(out.gaps_are_poison());
        }
      }
    }
  }
}

TEST_P(Elementary, AddScaledTakesFactorsAndGates) {
  Numbers numbers(3);
  const std::int64_t width = 37;
  for (const bool gate : {false, true}) {
    const TestRows x(numbers, DType::bf16, 4, width);
    TestRows y(numbers, DType::f32, 4, width);
    const TestRows before = y;
    const std::vector<float> scale = numbers.floats(4, -3, 3);
    table().add_scaled({.rows = 4,
                        .width = width,
                        .x = x.row(0),
                        .x_type = DType::bf16,
                        .x_stride = x.stride(),
                        .scale = scale.data(),
                        .sigmoid = gate,
                        .y = y.floats(),
                        .y_stride = y.stride()},
                       stream());
    for (std::int64_t row = 0; row < 4; ++row) {
      const double given = static_cast<double>(scale[static_cast<std::size_t>(row)]);
      const double factor = gate ? sigmoid(given) : given;
      for (std::int64_t i = 0; i < width; ++i)
        ASSERT_NEAR(y.at(row, i), before.at(row, i) + factor * x.at(row, i), 2e-6);
    }
    EXPECT_TRUE(y.gaps_are_poison());
  }
}

TEST_P(Elementary, RoundToAddsBiasClampsAndRoundsOnce) {
  Numbers numbers(4);
  for (const DType out_type : types) {
    const std::int64_t width = 45;
    const TestRows x(numbers, DType::f32, 3, width);
    const std::vector<float> bias = numbers.floats(width, -1, 1);
    TestRows out(out_type, 3, width);
    table().round_to({.rows = 3,
                      .width = width,
                      .x = x.row(0),
                      .x_stride = x.stride(),
                      .factor = 2,
                      .bias = bias.data(),
                      .limit = 1.25F,
                      .out = out.data(),
                      .out_type = out_type,
                      .out_stride = out.stride()},
                     stream());
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        const float value =
            std::clamp(x.get(row, i) * 2 + bias[static_cast<std::size_t>(i)], -1.25F, 1.25F);
        ASSERT_EQ(out.get(row, i), out_type == DType::f32 ? value : bf16::from(value).to_float());
      }
    }
    EXPECT_TRUE(out.gaps_are_poison());
  }
}

TEST_P(Elementary, NarrowingFollowsTheNumberType) {
  // Ties, carries, the largest numbers, infinities and NaNs of both signs.
  const std::vector<std::uint32_t> codes = {
      0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
      0x7F800001, 0xFFC00001, 0x7FFFFFFF, 0x00000001, 0x80000000, 0x00008000, 0x00018000};
  std::vector<float> x;
  for (const std::uint32_t code : codes) x.push_back(std::bit_cast<float>(code));
  std::vector<bf16> out(x.size());
  table().add({.rows = 1,
               .width = std::int64_t(x.size()),
               .a = x.data(),
               .b = std::vector<float>(x.size(), -0.0F).data(),
               .out = out.data(),
               .out_type = DType::bf16},
              stream());
  for (std::size_t i = 0; i < x.size(); ++i) {
    // A sum makes a signalling NaN quiet, in the same place.
    EXPECT_EQ(out[i].bits, bf16::from(x[i] + -0.0F).bits) << std::hex << codes[i];
  }
}

TEST_P(Elementary, RopeTurnsPairsOfBothKinds) {
  Numbers numbers(5);
  for (const DType type : types) {
    for (const bool interleaved : {false, true}) {
      for (const std::int64_t pairs : {1, 5, 16, 35}) {
        constexpr std::int64_t rows = 4;
        constexpr std::int64_t heads = 3;
        const std::vector<std::int32_t> positions = {0, 3, 100, 70000};
        const std::vector<float> frequencies = numbers.floats(pairs, 0, 1);
        std::vector<float> cos_sin(static_cast<std::size_t>(rows * pairs * 2), poison);
        table().rope_table({.rows = rows,
                            .pairs = pairs,
                            .positions = positions.data(),
                            .inverse_frequencies = frequencies.data(),
                            .factor = 1.25F,
                            .cos_sin = cos_sin.data()},
                           stream());
        TestRows x(numbers, type, rows * heads, pairs * 2 + 3);
        const TestRows before = x;
        const Heads all{.heads = heads,
                        .width = 2 * pairs,
                        .x = x.data(),
                        .x_type = type,
                        .x_stride = heads * x.stride(),
                        .x_head_stride = x.stride(),
                        .cos_sin = cos_sin.data(),
                        .pairs = pairs,
                        .interleaved = interleaved,
                        .out = x.data(),
                        .out_type = type,
                        .out_stride = heads * x.stride(),
                        .out_head_stride = x.stride()};
        table().prepare_heads({.rows = rows, .all = &all, .count = 1}, stream());
        for (std::int64_t row = 0; row < rows * heads; ++row) {
          const auto token = static_cast<std::size_t>(row / heads);
          for (std::int64_t i = 0; i < pairs; ++i) {
            const double angle = static_cast<double>(static_cast<float>(positions[token]) *
                                                     frequencies[static_cast<std::size_t>(i)]);
            const std::int64_t first = interleaved ? 2 * i : i;
            const std::int64_t second = interleaved ? 2 * i + 1 : i + pairs;
            const double a = before.at(row, first);
            const double b = before.at(row, second);
            ASSERT_NEAR(x.at(row, first), 1.25 * (a * std::cos(angle) - b * std::sin(angle)),
                        tolerance(type, 1.8));
            ASSERT_NEAR(x.at(row, second), 1.25 * (b * std::cos(angle) + a * std::sin(angle)),
                        tolerance(type, 1.8));
          }
          for (std::int64_t i = 2 * pairs; i < x.width(); ++i)
            ASSERT_EQ(x.get(row, i), before.get(row, i)) << "beyond the turned elements";
        }
      }
    }
  }
}

TEST_P(Elementary, EmbedGathersRowsAtAnyByte) {
  constexpr std::int64_t width = 5;
  const std::vector<float> rows = {0, 1, 2, 3, 4, 10, 11, 12, 13, 14, -20, -21, -22, -23, -24};
  const std::vector<std::int32_t> ids = {2, 0, 2, 3, -1};
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<std::byte> bytes(1 + rows.size() * 4);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (type == DType::f32) std::memcpy(bytes.data() + 1 + 4 * i, &rows[i], 4);
      const f16 half = f16::from(rows[i]);
      const bf16 brain = bf16::from(rows[i]);
      if (type == DType::f16) std::memcpy(bytes.data() + 1 + 2 * i, &half, 2);
      if (type == DType::bf16) std::memcpy(bytes.data() + 1 + 2 * i, &brain, 2);
    }
    TestRows out(DType::f32, 5, width);
    table().embed({.rows = 5,
                   .width = width,
                   .table = bytes.data() + 1,
                   .table_type = type,
                   .table_rows = 3,
                   .ids = ids.data(),
                   .out = out.floats(),
                   .out_stride = out.stride()},
                  stream());
    for (std::int64_t row = 0; row < 5; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        const std::int32_t id = ids[static_cast<std::size_t>(row)];
        const bool inside = id >= 0 && id < 3;
        EXPECT_EQ(out.get(row, i), inside ? rows[static_cast<std::size_t>(id * width + i)] : 0.0F);
      }
    }
    EXPECT_TRUE(out.gaps_are_poison());
  }
}

TEST_P(Elementary, ActivationsFollowTheirDefinitions) {
  Numbers numbers(6);
  for (const DType type : types) {
    for (const DType out_type : types) {
      for (const std::int64_t width : widths) {
        TestRows gate(numbers, type, 3, width, -20, 20);
        const TestRows up(numbers, type, 3, width, -12, 12);
        gate.set(0, 0, -200);
        TestRows out(out_type, 3, width);
        ActivateAndMultiply call{.rows = 3,
                                 .width = width,
                                 .gate = gate.row(0),
                                 .up = up.row(0),
                                 .type = type,
                                 .gate_stride = gate.stride(),
                                 .up_stride = up.stride(),
                                 .out = out.data(),
                                 .out_type = out_type,
                                 .out_stride = out.stride()};
        for (const Activation activation : {Activation::silu, Activation::clamped_swiglu}) {
          call.activation = activation;
          table().activate_and_multiply(call, stream());
          for (std::int64_t row = 0; row < 3; ++row) {
            for (std::int64_t i = 0; i < width; ++i) {
              double g = gate.at(row, i);
              double u = up.at(row, i);
              double expected = g * sigmoid(g) * u;
              if (activation == Activation::clamped_swiglu) {
                g = std::min(g, 7.0);
                u = std::clamp(u, -7.0, 7.0);
                expected = (u + 1) * g * sigmoid(static_cast<double>(1.702F) * g);
              }
              ASSERT_NEAR(out.at(row, i), expected, tolerance(out_type, std::abs(expected)))
                  << gate.at(row, i) << " " << up.at(row, i);
            }
          }
          EXPECT_TRUE(out.gaps_are_poison());
        }
      }
    }
  }
}

TEST_P(Elementary, LinearServesHeadsOfOneWeight) {
  Numbers numbers(7);
  constexpr std::int64_t rows = 3;
  constexpr std::int64_t heads = 4;
  constexpr std::int64_t in = 20;
  constexpr std::int64_t rows_per_head = 9;
  constexpr std::int64_t first = 2;
  constexpr std::int64_t out = 5;
  const std::vector<float> weight = numbers.floats(heads * rows_per_head * in, -1, 1);
  const auto w = [&](std::int64_t head, std::int64_t j, std::int64_t k) {
    const std::int64_t row = head * rows_per_head + first + j;
    return static_cast<double>(weight[static_cast<std::size_t>(row * in + k)]);
  };
  for (const DType type : types) {
    const TestRows x(numbers, type, rows * heads, in);
    TestRows y(DType::f32, rows * heads, out);
    Linear call{.rows = rows,
                .heads = heads,
                .x = x.row(0),
                .x_type = type,
                .x_stride = heads * x.stride(),
                .x_head_stride = x.stride(),
                .w = {.data = weight.data(), .out = heads * rows_per_head, .in = in},
                .w_rows_per_head = rows_per_head,
                .w_first = first,
                .out = out,
                .y = y.floats(),
                .y_stride = heads * y.stride(),
                .y_head_stride = y.stride()};
    table().linear(call, stream());
    for (std::int64_t row = 0; row < rows * heads; ++row) {
      for (std::int64_t j = 0; j < out; ++j) {
        double expected = 0;
        for (std::int64_t k = 0; k < in; ++k) expected += x.at(row, k) * w(row % heads, j, k);
        ASSERT_NEAR(y.at(row, j), expected, 1e-5);
      }
    }
    EXPECT_TRUE(y.gaps_are_poison());

    const TestRows back(numbers, type, rows * heads, out);
    TestRows z(DType::f32, rows * heads, in);
    call.x = back.row(0);
    call.x_stride = heads * back.stride();
    call.x_head_stride = back.stride();
    call.y = z.floats();
    call.y_stride = heads * z.stride();
    call.y_head_stride = z.stride();
    table().linear_per_head({.product = call, .transposed = true}, stream());
    for (std::int64_t row = 0; row < rows * heads; ++row) {
      for (std::int64_t k = 0; k < in; ++k) {
        double expected = 0;
        for (std::int64_t j = 0; j < out; ++j) expected += back.at(row, j) * w(row % heads, j, k);
        ASSERT_NEAR(z.at(row, k), expected, 1e-5);
      }
    }
    EXPECT_TRUE(z.gaps_are_poison());
  }
}

TEST_P(Elementary, CombineSumsInOrderAndLeavesOutWhatIsMissing) {
  Numbers numbers(8);
  const std::int64_t width = 21;
  const TestRows x(numbers, DType::f32, 5, width);
  const std::vector<std::int32_t> places = {4, 0, -1, 2, 2, 5, 1, 3, 0};
  const std::vector<float> weights = numbers.floats(9, 0, 1);
  for (const bool accumulate : {false, true}) {
    TestRows out(numbers, DType::f32, 3, width);
    const TestRows before = out;
    table().combine({.rows = 3,
                     .slots = 3,
                     .width = width,
                     .x = static_cast<const float*>(x.row(0)),
                     .x_stride = x.stride(),
                     .x_rows = 5,
                     .places = places.data(),
                     .weights = weights.data(),
                     .out = out.floats(),
                     .out_stride = out.stride(),
                     .accumulate = accumulate},
                    stream());
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        float expected = accumulate ? before.get(row, i) : 0.0F;
        for (std::size_t slot = 0; slot < 3; ++slot) {
          const std::size_t pair = static_cast<std::size_t>(row) * 3 + slot;
          if (places[pair] < 0 || places[pair] >= 5) continue;
          expected += x.get(places[pair], i) * weights[pair];
        }
        ASSERT_EQ(out.get(row, i), expected);
      }
    }
    EXPECT_TRUE(out.gaps_are_poison());
  }
}

TEST_P(Elementary, LogProbabilitiesOfChosenIds) {
  Numbers numbers(9);
  for (const std::int64_t width : {1, 15, 1024, 5003}) {
    TestRows logits(numbers, DType::f32, 3, width, -30, 30);
    const auto last = static_cast<std::int32_t>(width - 1);
    const std::vector<std::int32_t> ids = {0, last, last / 2, 0, last / 3, last};
    if (width > 8) logits.set(2, last / 2, logits.get(2, last));  // equal to a later one
    std::vector<float> out(6, poison);
    std::vector<std::int32_t> ranks(6, -1);
    table().log_probabilities({.rows = 3,
                               .width = width,
                               .logits = logits.floats(),
                               .logits_stride = logits.stride(),
                               .chosen = 2,
                               .ids = ids.data(),
                               .out = out.data(),
                               .ranks = ranks.data()},
                              stream());
    std::vector<std::int32_t> order(static_cast<std::size_t>(3 * width));
    table().top_k({.rows = 3,
                   .width = width,
                   .x = logits.floats(),
                   .x_stride = logits.stride(),
                   .k = width,
                   .ids = order.data()},
                  stream());
    for (std::size_t i = 0; i < 6; ++i)
      ASSERT_EQ(
          order[(i / 2) * static_cast<std::size_t>(width) + static_cast<std::size_t>(ranks[i] - 1)],
          ids[i]);
    for (std::size_t i = 0; i < 6; ++i) {
      const auto row = static_cast<std::int64_t>(i / 2);
      double total = 0;
      for (std::int64_t j = 0; j < width; ++j) total += std::exp(logits.at(row, j) - 30);
      ASSERT_NEAR(out[i], logits.at(row, ids[i]) - 30 - std::log(total), 5e-6);
    }
  }
}

TEST_P(Elementary, LogProbabilitiesOfWhatHasOverflowedAreNoNumbers) {
  for (const std::int64_t width : {2, 37, 3000}) {
    Numbers numbers(12);
    TestRows logits(numbers, DType::f32, 5, width, -3, 3);
    const std::int64_t last = width - 1;
    logits.set(0, last, poison);
    logits.set(1, 0, INFINITY);
    for (std::int64_t i = 0; i < width; ++i) logits.set(2, i, -INFINITY);
    logits.set(3, last, -INFINITY);
    const auto end = static_cast<std::int32_t>(last);
    const std::vector<std::int32_t> ids = {0, end, 0, end, 0, end, 0, end, 0, end};
    std::vector<float> out(ids.size(), 7);
    table().log_probabilities({.rows = 5,
                               .width = width,
                               .logits = logits.floats(),
                               .logits_stride = logits.stride(),
                               .chosen = 2,
                               .ids = ids.data(),
                               .out = out.data()},
                              stream());
    for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(out[i])) << "row " << i / 2;
    EXPECT_EQ(out[7], -INFINITY) << "ruled out, in a row that is whole";
    for (const std::size_t i : {6U, 8U, 9U}) EXPECT_TRUE(std::isfinite(out[i])) << i;
  }
}

TEST_P(Elementary, TopKBreaksTiesByLowerId) {
  Numbers numbers(10);
  const std::int64_t width = 200;
  TestRows x(DType::f32, 4, width);
  for (std::int64_t row = 0; row < 4; ++row) {
    // Few distinct values: many ties.
    for (std::int64_t i = 0; i < width; ++i)
      x.set(row, i, static_cast<float>(numbers.below(9)) - 4.0F);
  }
  x.set(3, 7, poison);
  x.set(3, 8, -INFINITY);
  for (const std::int64_t k : {1, 8, 200}) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(4 * k), -1);
    std::vector<float> values(ids.size(), poison);
    table().top_k({.rows = 4,
                   .width = width,
                   .x = x.floats(),
                   .x_stride = x.stride(),
                   .k = k,
                   .ids = ids.data(),
                   .values = values.data()},
                  stream());
    for (std::int64_t row = 0; row < 4; ++row) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(width));
      std::iota(order.begin(), order.end(), 0);
      const auto key = [&](std::int32_t id) {
        const float value = x.get(row, id);
        return std::isnan(value) ? -1e30 : std::max(static_cast<double>(value), -1e20);
      };
      std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return key(a) > key(b) || (key(a) == key(b) && a < b);
      });
      for (std::int64_t i = 0; i < k; ++i) {
        const auto at = static_cast<std::size_t>(row * k + i);
        ASSERT_EQ(ids[at], order[static_cast<std::size_t>(i)]) << "k " << k << " place " << i;
        const float value = x.get(row, ids[at]);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(values[at]), std::bit_cast<std::uint32_t>(value));
      }
    }
  }
}

TEST_P(Elementary, GivesTheBitsOfThePlainSet) {
  Numbers numbers(11);
  for (const std::int64_t width : widths) {
    const TestRows gate(numbers, DType::bf16, 6, width, -9, 9);
    const TestRows up(numbers, DType::bf16, 6, width, -9, 9);
    TestRows here(DType::f32, 6, width);
    TestRows plain(DType::f32, 6, width);
    ActivateAndMultiply call{.rows = 6,
                             .width = width,
                             .gate = gate.row(0),
                             .up = up.row(0),
                             .type = DType::bf16,
                             .gate_stride = gate.stride(),
                             .up_stride = up.stride(),
                             .out = here.data(),
                             .out_stride = here.stride()};
    table().activate_and_multiply(call, stream());
    call.out = plain.data();
    elementary_table(InstructionSet::plain).activate_and_multiply(call, {});
    for (std::int64_t row = 0; row < 6; ++row)
      ASSERT_EQ(0, std::memcmp(here.row(row), plain.row(row), here.row_bytes()));
  }
}

}  // namespace
}  // namespace motley::kernels::cpu
